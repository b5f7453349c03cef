"""One file for a node without a network: the packages that it lacks, the repository with its
history, an installer.

Two modules of it travel and run on a bare node, so they use the standard library only: `ask_node`
and `install`.
"""

import click

from hpml_plugins.cli import LazyCommand
from hpml_plugins.hookspecs import hookimpl


@hookimpl
def hpml_commands(cli: click.Group) -> None:
    """Called by `hpml`: adds `bundle`."""
    cli.add_command(
        LazyCommand(
            "bundle",
            "hpml_plugins.tools.bundle.command:command",
            "Make one file for a node without a network.",
        )
    )
