"""What this node has, what is broken, and what mends it."""

from hpml_plugins.tools.doctor.diagnosis import diagnose
from hpml_plugins.tools.doctor.finding import Finding

__all__ = ["Finding", "diagnose"]
