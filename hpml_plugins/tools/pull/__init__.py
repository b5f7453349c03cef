"""`hpml pull`: merges the results of another repository under the name of the source."""

from hpml_plugins.cli import adds_commands

hpml_commands = adds_commands(
    (
        "pull",
        "hpml_plugins.tools.pull.command:command",
        "Merge the results of another repository.",
    ),
)
