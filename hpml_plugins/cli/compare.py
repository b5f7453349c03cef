"""`hpml compare A B`: two machines, commits or environments, point by point."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click

from hpml_plugins.cli import Settings


@click.command("compare")
@click.argument("a")
@click.argument("b")
@click.option("--format", "form", type=click.Choice(["text", "markdown", "csv"]), default="text", show_default=True)
@click.option("--benchmark", help="Only this benchmark.")
@click.option("--machine", help="Only Records of this machine.")
@click.option("--results", type=click.Path(path_type=Path), default=Path("results"), show_default=True)
@click.pass_obj
def command(
    settings: Settings, a: str, b: str, form: str, benchmark: str | None, machine: str | None, results: Path
) -> int:
    """Compare B with A, each a machine, a commit (or what git calls it) or an environment, from their Records.

    Each side's current Record of a point counts. ▲ is better and ▼ worse, whichever direction the metric has; ~ where
    the 95 % intervals of the medians overlap, ? where there are too few samples to tell.
    """
    from hpml_plugins.errors import UsageError
    from hpml_plugins.report.compare import as_table, compare, find_side
    from hpml_plugins.report.tables import as_csv, as_markdown, as_text
    from hpml_plugins.store import commit_order, read_records

    repository = settings.registry.resolve().parent
    records = [
        record
        for record in read_records(results, lambda damage: print(f"hpml: {damage}", file=sys.stderr))
        if benchmark in (None, record.benchmark) and machine in (None, record.machine)
    ]

    def named(name: str) -> str | None:
        command = ["git", "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"]
        try:
            done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
        except OSError:
            return None
        return done.stdout.strip() or None

    sides = [find_side(name, records, named) for name in (a, b)]
    found = compare(sides[0], sides[1], records, commit_order(repository))
    if not found:
        raise UsageError(f"{a!r} and {b!r} have no measured point in common")
    if form == "csv":
        print(as_csv(as_table(found, spelled=False)), end="")
        return 0
    print(f"A: {sides[0].kind} {sides[0].name}\nB: {sides[1].kind} {sides[1].name}\n")
    print((as_markdown if form == "markdown" else as_text)(as_table(found, spelled=True)), end="")
    return 0
