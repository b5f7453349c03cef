"""`hpml new`: a working plugin to start from."""

from hpml_plugins.cli import adds_commands

hpml_commands = adds_commands(
    (
        "new",
        "hpml_plugins.tools.scaffold.command:command",
        "Write a working plugin NAME to start from.",
    ),
)
