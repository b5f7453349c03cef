"""`hpml bundle`: one file with what a node without a network needs in addition to its own Python
and torch."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

import click

from hpml_plugins.cli import PATH, Settings, refuse_beside
from hpml_plugins.errors import UsageError
from hpml_plugins.model import counted
from hpml_plugins.terminal import say, warn
from hpml_plugins.tools.bundle import packages
from hpml_plugins.tools.bundle.pack import make_bundle


@click.command("bundle")
@click.option(
    "--ask",
    is_flag=True,
    help="Print a script that reports the node's Python and packages.",
)
@click.option(
    "--node",
    "file",
    type=PATH,
    metavar="JSON",
    help="The node's facts.",
)
@click.option("--python", metavar="3.12", help="Instead of --node: its Python.")
@click.option(
    "--platform", metavar="TAG", help="With --python; default: manylinux_2_28_x86_64."
)
@click.option(
    "--has", metavar="NAME[==VERSION],…", help="With --python; default: torch,torchvision."
)
@click.option(
    "--with",
    "extra",
    multiple=True,
    metavar="REQUIREMENT",
    help="Also carry this package, for plugins of your own.",
)
@click.option(
    "-o",
    "--output",
    type=PATH,
    default="hpml-bundle.sh",
    show_default=True,
)
@click.pass_obj
def command(
    settings: Settings,
    ask: bool,
    file: Path | None,
    python: str | None,
    platform: str | None,
    has: str | None,
    extra: tuple[str, ...],
    output: Path,
) -> int:
    """Make one file for a node without a network.

    It holds the packages that the node lacks, the repository with its history, and an installer.

    \b
    hpml bundle --ask | ssh NODE python3 - > node.json
    hpml bundle --node node.json
    """
    if ask:
        refuse_beside("--ask")
        say(*Path(__file__).with_name("ask_node.py").read_text().splitlines())
        return 0
    if (file is None) == (python is None) or (file and (platform or has)):
        raise UsageError(
            f"either --node, or --python with --platform and --has; {packages.ASK}"
        )
    if file:
        node = packages.read_node(file)
    else:
        node = packages.assume_node(
            python or "",
            platform or packages.EXAMPLE,
            (has or "torch,torchvision").split(","),
        )
    made = make_bundle(settings.registry.resolve().parent, node, output, extra)
    for warning in made.warnings:
        warn(warning)
    say(
        f"for      Python {node.minor}, {node.machine}, {node.libc}, torch"
        f" {node.packages.get('torch') or 'its own'}"
    )
    say(f"carries  {_listed(made.carried)}")
    for name, version in made.carried.items():
        if name in node.packages:
            replaced = node.packages[name] or "its own"
            say(f"         {name} {version} in place of {replaced}")
    say(f"keeps    {_listed(made.kept)}")
    history = made.history
    commits = counted(history.commits, "commit")
    say(f"history  {', '.join(history.branches)} at {history.commit[:8]}, {commits}")
    say("", f"{output}  {output.stat().st_size / 1e6:.1f} MB; on the node:")
    say(f"    sh {shlex.quote(output.name)}")
    say("    hpml/asv run")
    return 0


def _listed(packages: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in packages.items()) or "nothing"
