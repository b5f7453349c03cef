"""`hpml import`: results of other benchmark tools as Records."""

import click

from hpml_plugins.cli import LazyCommand
from hpml_plugins.hookspecs import hookimpl


@hookimpl
def hpml_commands(cli: click.Group) -> None:
    """Called by `hpml`: adds `import`."""
    cli.add_command(
        LazyCommand(
            "import",
            "hpml_plugins.tools.importing.command:command",
            "Read result files of other benchmark tools into Records.",
        )
    )
