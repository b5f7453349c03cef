"""All nodes of all GPU types with one command: jobs for the targets of cluster.yaml, submitted to
Slurm by submitit.

Without Slurm, and without a cluster.yaml, the same command measures here.
"""

import click

from hpml_plugins.cli import LazyCommand
from hpml_plugins.hookspecs import hookimpl


@hookimpl
def hpml_commands(cli: click.Group) -> None:
    """Called by `hpml`: adds `submit` and `jobs`."""
    cli.add_command(
        LazyCommand(
            "submit",
            "hpml_plugins.tools.cluster.commands:submit",
            "Measure on each TARGET of cluster.yaml through Slurm, or here.",
        )
    )
    cli.add_command(
        LazyCommand(
            "jobs",
            "hpml_plugins.tools.cluster.commands:jobs",
            "Show the state of submitted jobs.",
        )
    )
