"""`hpml data`: the command of the data sets in `hpml_plugins.workloads.datasets`."""

from hpml_plugins.cli import adds_commands

hpml_commands = adds_commands(
    (
        "data",
        "hpml_plugins.workloads.datasets.command:command",
        "Show which data sets are present and how to get the others.",
    ),
)
