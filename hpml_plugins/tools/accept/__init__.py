"""Acceptance of a node: is each of its cards as good as its kind? `hpml accept`."""

from hpml_plugins.cli import adds_commands

hpml_commands = adds_commands(
    (
        "accept",
        "hpml_plugins.tools.accept.command:command",
        "Say whether each card of this node is as good as its kind: pass, fail or cannot say.",
    ),
)
