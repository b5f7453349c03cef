"""`hpml check`: hold a plugin to the rules before its numbers are believed."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from hpml_plugins.cli import Settings


@click.command("check")
@click.argument("plugin")
@click.option("--limit", default=120.0, show_default=True, help="Seconds for measuring points.")
@click.option("--results", type=click.Path(path_type=Path), help="asv's results; beside the registry when left out.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def command(settings: Settings, plugin: str, limit: float, results: Path | None, as_json: bool) -> int:
    """Check PLUGIN: a name of the registry, a file, an entry point or a module. It is imported and measured.

    Exit status 1 when something must be mended.
    """
    import msgspec

    from hpml_plugins.cli.doctor import SIGNS
    from hpml_plugins.tools.check.check import check
    from hpml_plugins.tools.check.target import find_target

    findings = []
    for finding in check(find_target(plugin, settings.registry), limit=limit, results=results):
        findings.append(finding)
        if not as_json:
            print(f"{SIGNS[finding.state]} {finding.subject}: {finding.what}", flush=True)
            if finding.mend:
                print(f"  mend: {finding.mend}", flush=True)
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(findings)).decode() + "\n")
    broken = sum(finding.state == "broken" for finding in findings)
    print(f"hpml: {broken} to mend" if broken else "hpml: nothing to mend", file=sys.stderr)
    return 1 if broken else 0
