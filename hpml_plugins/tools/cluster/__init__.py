"""All nodes of all GPU types with one command: jobs for the targets of cluster.yaml, submitted to
Slurm by submitit.

Without Slurm, and without a cluster.yaml, the same command measures here.
"""

from hpml_plugins.cli import adds_commands

hpml_commands = adds_commands(
    (
        "submit",
        "hpml_plugins.tools.cluster.commands:submit",
        "Measure on each TARGET of cluster.yaml through Slurm, or here.",
    ),
    (
        "jobs",
        "hpml_plugins.tools.cluster.commands:jobs",
        "Show the state of submitted jobs.",
    ),
)
