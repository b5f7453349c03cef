"""`hpml init`: what a git repository needs to measure its own commits."""

import click

from hpml_plugins.cli import LazyCommand
from hpml_plugins.hookspecs import hookimpl


@hookimpl
def hpml_commands(cli: click.Group) -> None:
    """Called by `hpml`: adds `init`."""
    cli.add_command(
        LazyCommand(
            "init",
            "hpml_plugins.tools.init.command:command",
            "Prepare the git repository of this folder to measure its own commits.",
        )
    )
