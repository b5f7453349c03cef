"""`hpml doctor`: what this node has, what is broken, and the command that mends it."""

from __future__ import annotations

import sys

import click

from hpml_plugins.cli import Settings

SIGNS = {"ok": "✓", "missing": "–", "warning": "!", "broken": "✗"}


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: the findings, and what hpml bundle asks.")
@click.pass_obj
def command(settings: Settings, as_json: bool) -> int:
    """Say what this node has, what is broken, and what mends it. Exit status 1 when something is broken."""
    from hpml_plugins.tools.doctor import diagnose

    findings = list(diagnose(settings.registry))
    if as_json:
        import msgspec

        from hpml_plugins.tools.bundle.ask_node import ask

        told = msgspec.json.encode({**ask(), "findings": findings})
        sys.stdout.write(msgspec.json.format(told).decode() + "\n")
    else:
        width = max(len(finding.subject) for finding in findings)
        for finding in findings:
            print(f"{SIGNS[finding.state]} {finding.subject:{width}}  {finding.what}")
            if finding.mend:
                print(f"  {'':{width}}  mend: {finding.mend}")
    return 1 if any(finding.state == "broken" for finding in findings) else 0
