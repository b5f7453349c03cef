"""`hpml schema`: JSON schemas of registry.yaml and cluster.yaml, for editors."""

from hpml_plugins.cli import adds_commands

hpml_commands = adds_commands(
    (
        "schema",
        "hpml_plugins.tools.schema.command:command",
        "Print the JSON schema of registry.yaml.",
    ),
)
