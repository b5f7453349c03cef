"""What this node has, what is broken, and how to fix it."""

from hpml_plugins.tools.doctor.diagnosis import diagnose

__all__ = ["diagnose"]
