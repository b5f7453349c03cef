"""Checking a plugin before it is trusted with numbers: `hpml check`, and `hpml_plugins.testing.check_plugin`."""

from hpml_plugins.checking.check import check
from hpml_plugins.checking.target import Target, find_target

__all__ = ["Target", "check", "find_target"]
