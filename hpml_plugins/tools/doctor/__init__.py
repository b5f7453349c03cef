"""What this node has, what is broken, and how to fix it."""

import click

from hpml_plugins.cli import LazyCommand
from hpml_plugins.hookspecs import hookimpl


@hookimpl
def hpml_commands(cli: click.Group) -> None:
    """Called by `hpml`: adds `doctor`."""
    cli.add_command(
        LazyCommand(
            "doctor",
            "hpml_plugins.tools.doctor.command:command",
            "Show what this node has, what is broken, and how to fix it.",
        )
    )
