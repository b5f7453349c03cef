"""`hpml gate`: two commits measured in turns on this machine, and a verdict on the difference."""

import click

from hpml_plugins.cli import LazyCommand
from hpml_plugins.hookspecs import hookimpl


@hookimpl
def hpml_commands(cli: click.Group) -> None:
    """Called by `hpml`: adds `gate`."""
    cli.add_command(
        LazyCommand(
            "gate",
            "hpml_plugins.tools.gate.command:command",
            "Refuse what is checked out here if it is slower than BASE.",
        )
    )
