"""`hpml schema`: JSON schemas of registry.yaml and cluster.yaml, for editors."""

import click

from hpml_plugins.cli import LazyCommand
from hpml_plugins.hookspecs import hookimpl


@hookimpl
def hpml_commands(cli: click.Group) -> None:
    """Called by `hpml`: adds `schema`."""
    cli.add_command(
        LazyCommand(
            "schema",
            "hpml_plugins.tools.schema.command:command",
            "Print the JSON schema of registry.yaml.",
        )
    )
