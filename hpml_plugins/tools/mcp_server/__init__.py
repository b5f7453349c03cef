"""`hpml mcp`: results for language models, over the Model Context Protocol."""

import click

from hpml_plugins.cli import LazyCommand
from hpml_plugins.hookspecs import hookimpl


@hookimpl
def hpml_commands(cli: click.Group) -> None:
    """Called by `hpml`: adds `mcp`."""
    cli.add_command(
        LazyCommand(
            "mcp",
            "hpml_plugins.tools.mcp_server.server:command",
            "Serve the results to a language model, over the Model Context Protocol.",
        )
    )
