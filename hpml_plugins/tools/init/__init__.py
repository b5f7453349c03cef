"""`hpml init`: prepares a git repository to measure its own commits."""

from hpml_plugins.cli import adds_commands

hpml_commands = adds_commands(
    (
        "init",
        "hpml_plugins.tools.init.command:command",
        "Prepare the git repository of this folder to measure its own commits.",
    ),
)
