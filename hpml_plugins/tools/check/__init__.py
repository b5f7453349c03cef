"""Checking a plugin before it is trusted with numbers: `hpml check`, `hpml_plugins.testing.check_plugin`."""
