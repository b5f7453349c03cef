"""`hpml check`: check a plugin against the rules before its numbers are trusted."""

from __future__ import annotations

import click

from hpml_plugins.cli import (
    Positive,
    Settings,
    json_option,
    show_findings,
    status_of_findings,
)
from hpml_plugins.terminal import warn
from hpml_plugins.tools.check.check import check, find_plugin
from hpml_plugins.tools.check.judging import MOST_POINTS


@click.command("check")
@click.argument("plugin")
@click.option(
    "--limit",
    type=Positive(),
    default=120.0,
    show_default=True,
    help="Seconds for measuring points.",
)
@click.option(
    "--all",
    "every",
    is_flag=True,
    help=f"Measure every point, not {MOST_POINTS} of each benchmark.",
)
@json_option()
@click.pass_obj
def command(
    settings: Settings, plugin: str, limit: float, every: bool, as_json: bool
) -> int:
    """Check PLUGIN: a name of the registry, a file, an entry point or a module. It is imported and
    measured.

    Exit status 1 if something must be fixed, 3 if something could not be judged.
    """
    most = None if every else MOST_POINTS
    found = show_findings(
        check(find_plugin(plugin, settings.registry), limit=limit, most=most), as_json
    )
    broken = found["broken"]
    not_judged = found["not judged"]
    said = f"{broken} to fix" if broken else "nothing to fix"
    if not_judged:
        said = f"{said} in what was judged; {not_judged} not judged (?)"
    warn(said)
    return status_of_findings(found)
