"""Acceptance of a node: is each of its cards as good as its kind? `hpml accept`."""

import click

from hpml_plugins.cli import LazyCommand
from hpml_plugins.hookspecs import hookimpl


@hookimpl
def hpml_commands(cli: click.Group) -> None:
    """Called by `hpml`: adds `accept`."""
    cli.add_command(
        LazyCommand(
            "accept",
            "hpml_plugins.tools.accept.command:command",
            "Say whether each card of this node is as good as its kind: pass, fail or cannot say.",
        )
    )
