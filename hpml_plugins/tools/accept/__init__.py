"""Acceptance of a node: is each of its cards as good as its kind? `hpml accept`."""

from hpml_plugins.cli import adds_commands

hpml_commands = adds_commands(
    (
        "accept",
        "hpml_plugins.tools.accept.command:command",
        "Judge each card of this node against its type: pass, fail or cannot say.",
    ),
)
