"""`hpml check`: hold a plugin to the rules before its numbers are trusted."""

from __future__ import annotations

import sys

import click

from hpml_plugins.cli import Settings


@click.command("check")
@click.argument("plugin")
@click.option("--limit", default=120.0, show_default=True, help="Seconds for measuring points.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
def command(settings: Settings, plugin: str, limit: float, as_json: bool) -> int:
    """Check PLUGIN: a name of the registry, a file, an entry point or a module. It is imported and measured.

    Exit status 1 when something must be fixed.
    """
    import msgspec

    from hpml_plugins.tools.check import check, find_plugin

    findings = []
    for finding in check(find_plugin(plugin, settings.registry), limit=limit):
        findings.append(finding)
        if not as_json:
            print(f"{finding.sign} {finding.subject}: {finding.what}", flush=True)
            if finding.fix:
                print(f"  fix: {finding.fix}", flush=True)
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(findings)).decode() + "\n")
    broken = sum(finding.state == "broken" for finding in findings)
    print(f"hpml: {broken} to fix" if broken else "hpml: nothing to fix", file=sys.stderr)
    return 1 if broken else 0
