"""`hpml doctor`: the state of this node, problems, and how to fix them."""

from hpml_plugins.cli import adds_commands

hpml_commands = adds_commands(
    (
        "doctor",
        "hpml_plugins.tools.doctor.command:command",
        "Show what this node has, what is broken, and how to fix it.",
    ),
)
