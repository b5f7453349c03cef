"""Checking a plugin before its numbers are trusted: `hpml check`,
`hpml_plugins.testing.check_plugin`."""

from hpml_plugins.cli import adds_commands

hpml_commands = adds_commands(
    (
        "check",
        "hpml_plugins.tools.check.command:command",
        "Check PLUGIN: a name of the registry, a file, an entry point or a module.",
    ),
)
