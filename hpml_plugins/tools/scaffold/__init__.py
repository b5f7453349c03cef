"""x"""

import click

from hpml_plugins.cli import LazyCommand
from hpml_plugins.hookspecs import hookimpl


@hookimpl
def hpml_commands(cli: click.Group) -> None:
    """Called by `hpml`: adds `new`."""
    cli.add_command(
        LazyCommand(
            "new",
            "hpml_plugins.tools.scaffold.command:command",
            "Write a working plugin NAME to start from.",
        )
    )
