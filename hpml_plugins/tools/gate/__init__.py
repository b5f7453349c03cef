"""`hpml gate`: measures two commits alternately on this machine and judges the difference."""

from hpml_plugins.cli import adds_commands

hpml_commands = adds_commands(
    (
        "gate",
        "hpml_plugins.tools.gate.command:command",
        "Fail if the current checkout is slower than BASE.",
    ),
    (
        "comment",
        "hpml_plugins.tools.gate.comment:command",
        "Keep one comment of a GitLab merge request up to date.",
    ),
)
