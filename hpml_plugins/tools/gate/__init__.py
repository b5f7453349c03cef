"""`hpml gate`: two commits measured in turns on this machine, and a verdict on the difference."""

import click

from hpml_plugins.cli import LazyCommand
from hpml_plugins.hookspecs import hookimpl


@hookimpl
def hpml_commands(cli: click.Group) -> None:
    """Called by `hpml`: adds `gate` and `comment`."""
    for name, module, text in (
        ("gate", "command", "Refuse what is checked out here if it is slower than BASE."),
        ("comment", "comment", "Keep one comment of a GitLab merge request up to date."),
    ):
        cli.add_command(
            LazyCommand(name, f"hpml_plugins.tools.gate.{module}:command", text)
        )
