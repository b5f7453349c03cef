"""`hpml doctor`: the state of this node, problems, and how to fix them."""

from __future__ import annotations

import click

from hpml_plugins.cli import Settings, json_option, show_findings, status_of_findings
from hpml_plugins.tools.bundle.ask_node import ask
from hpml_plugins.tools.doctor.diagnosis import diagnose


@click.command("doctor")
@json_option("Print JSON: the findings, and the facts that hpml bundle needs.")
@click.pass_obj
def command(settings: Settings, as_json: bool) -> int:
    """Show what this node has, what is broken, and how to fix it. Exit status 1 if something is
    broken, 3 if something could not be checked."""
    found = show_findings(diagnose(settings.registry), as_json, ask() if as_json else None)
    return status_of_findings(found)
