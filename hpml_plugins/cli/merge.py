"""`hpml merge DIR…`: the union of results folders."""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.command("merge")
@click.argument("folders", nargs=-1, required=True, metavar="DIR...", type=click.Path(path_type=Path))
@click.option(
    "--into",
    type=click.Path(path_type=Path),
    default=Path("results"),
    show_default=True,
    help="Where to merge them.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be written; write nothing.")
def command(folders: tuple[Path, ...], into: Path, dry_run: bool) -> int:
    """Add the results of each DIR, a results folder or a project with one: Records, and asv's JSON.

    The order of the folders does not matter, and merging twice changes nothing. Where two folders have a result for the
    same point, the newer one counts. Exit status 1 when files were skipped because they are damaged or not results.
    """
    from hpml_plugins.store import merge_results

    report = merge_results(folders, into, dry_run=dry_run)
    for conflict in report.conflicts:
        print(f"hpml: {conflict}", file=sys.stderr)
    for skipped in report.skipped:
        print(f"hpml: skipped: {skipped}", file=sys.stderr)
    for machine, count in sorted(report.records.items()):
        print(f"{machine}  {count} new record{'s' * (count != 1)}")
    files = dict.fromkeys(report.files)
    print(f"{len(files)} file{'s' * (len(files) != 1)} {'would be ' * dry_run}written in {into}")
    return 1 if report.skipped else 0
