"""Checking a plugin before its numbers are trusted: `hpml check`,
`hpml_plugins.testing.check_plugin`."""

from hpml_plugins.tools.check.check import check, find_plugin

__all__ = ["check", "find_plugin"]
