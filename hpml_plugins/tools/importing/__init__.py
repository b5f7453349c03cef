"""`hpml import`: results of other benchmark tools as Records."""

from hpml_plugins.cli import adds_commands

hpml_commands = adds_commands(
    (
        "import",
        "hpml_plugins.tools.importing.command:command",
        "Read result files of other benchmark tools into Records.",
    ),
)
