"""`hpml pull`: results of another repository, as those of a named source."""

import click

from hpml_plugins.cli import LazyCommand
from hpml_plugins.hookspecs import hookimpl


@hookimpl
def hpml_commands(cli: click.Group) -> None:
    """Called by `hpml`: adds `pull`."""
    cli.add_command(
        LazyCommand(
            "pull",
            "hpml_plugins.tools.pull.command:command",
            "Merge the results of another repository.",
        )
    )
