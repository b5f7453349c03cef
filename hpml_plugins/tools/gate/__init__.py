"""`hpml gate`: two commits measured in turns on this machine, and a verdict on the difference."""

from hpml_plugins.cli import adds_commands

hpml_commands = adds_commands(
    (
        "gate",
        "hpml_plugins.tools.gate.command:command",
        "Fail if what is checked out here is slower than BASE.",
    ),
    (
        "comment",
        "hpml_plugins.tools.gate.comment:command",
        "Keep one comment of a GitLab merge request up to date.",
    ),
)
