"""One file for a node without a network: the packages that it lacks, the repository with its
history, an installer.

Two modules of it travel and run on a bare node, so they use the standard library only: `ask_node`
and `install`.
"""

from hpml_plugins.cli import adds_commands

hpml_commands = adds_commands(
    (
        "bundle",
        "hpml_plugins.tools.bundle.command:command",
        "Make one file for a node without a network.",
    ),
)
