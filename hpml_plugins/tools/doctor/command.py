"""`hpml doctor`: what this node has, what is broken, and how to fix it."""

from __future__ import annotations

import sys

import click

from hpml_plugins.cli import Settings

_WIDTH = 14


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: the findings, and the facts that hpml bundle needs.")
@click.pass_obj
def command(settings: Settings, as_json: bool) -> int:
    """Show what this node has, what is broken, and how to fix it. Exit status 1 when something is broken."""
    from hpml_plugins.tools.doctor.diagnosis import diagnose

    findings = []
    for finding in diagnose(settings.registry):
        findings.append(finding)
        if not as_json:
            print(f"{finding.sign} {finding.subject:{_WIDTH}}  {finding.what}", flush=True)
            if finding.fix:
                print(f"  {'':{_WIDTH}}  fix: {finding.fix}", flush=True)
    if as_json:
        import msgspec

        from hpml_plugins.tools.bundle.ask_node import ask

        text = msgspec.json.encode({**ask(), "findings": findings})
        sys.stdout.write(msgspec.json.format(text).decode() + "\n")
    return 1 if any(finding.state == "broken" for finding in findings) else 0
