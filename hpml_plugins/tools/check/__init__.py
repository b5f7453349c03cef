"""Checking a plugin before its numbers are trusted: `hpml check`,
`hpml_plugins.testing.check_plugin`."""

import click

from hpml_plugins.cli import LazyCommand
from hpml_plugins.hookspecs import hookimpl


@hookimpl
def hpml_commands(cli: click.Group) -> None:
    """Called by `hpml`: adds `check`."""
    cli.add_command(
        LazyCommand(
            "check",
            "hpml_plugins.tools.check.command:command",
            "Check PLUGIN: a name of the registry, a file, an entry point or a module.",
        )
    )
