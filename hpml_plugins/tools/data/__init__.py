"""`hpml data`: the command of the data sets in `hpml_plugins.workloads.datasets`."""

import click

from hpml_plugins.cli import LazyCommand
from hpml_plugins.hookspecs import hookimpl


@hookimpl
def hpml_commands(cli: click.Group) -> None:
    """Called by `hpml`: adds `data`."""
    cli.add_command(
        LazyCommand(
            "data",
            "hpml_plugins.workloads.datasets.command:command",
            "Show which data sets are here and how to get the others.",
        )
    )
