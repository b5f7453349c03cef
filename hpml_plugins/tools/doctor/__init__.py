"""What this node has, what is broken, and how to fix it."""

from hpml_plugins.cli import adds_commands

hpml_commands = adds_commands(
    (
        "doctor",
        "hpml_plugins.tools.doctor.command:command",
        "Show what this node has, what is broken, and how to fix it.",
    ),
)
