"""Commands that read or write results: table, plot, compare, export, merge."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hpml_plugins.cli import Settings
from hpml_plugins.errors import UsageError, nearest

if TYPE_CHECKING:
    from hpml_plugins.model import Record
    from hpml_plugins.report.figures import Drawable

_RESULTS = click.option("--results", type=click.Path(path_type=Path), default=Path("results"), show_default=True)
_FORMAT = click.option(
    "--format", "form", type=click.Choice(["text", "markdown", "csv"]), default="text", show_default=True
)


@click.command()
@click.argument("name")
@_FORMAT
@_RESULTS
@click.pass_obj
def table(settings: Settings, name: str, form: str, results: Path) -> int:
    """Print the tables of plugin NAME, or of one figure (NAME or PLUGIN.NAME), from the newest Records."""
    from hpml_plugins.report.tables import as_csv, as_markdown, as_text

    formatter = {"text": as_text, "markdown": as_markdown, "csv": as_csv}[form]
    for number, drawable in enumerate(_find_drawables(settings, name, results)):
        if form != "csv":
            print("\n" * (number > 0) + f"{'### ' if form == 'markdown' else ''}{drawable.figure.title}\n")
        elif number:
            print()
        print(formatter(drawable.table), end="")
    return 0


@click.command()
@click.argument("name")
@click.option("--format", "form", type=click.Choice(["svg", "png", "pdf"]), default="png", show_default=True)
@click.option("--to", "folder", type=click.Path(path_type=Path), default=Path(), help="Folder to write to.")
@_RESULTS
@click.pass_obj
def plot(settings: Settings, name: str, form: str, folder: Path, results: Path) -> int:
    """Draw the charts of plugin NAME, or one of them (NAME or PLUGIN.NAME), from the newest Records."""
    from hpml_plugins.report.figures import render

    found = _find_drawables(settings, name, results)
    drawables = [drawable for drawable in found if drawable.figure.chart or drawable.figure.draw]
    if not drawables:
        raise UsageError(f"{name!r} has tables but no chart; print them: hpml table {name}")
    for drawable in drawables:
        drawn = render(drawable, form)
        if drawn is None:
            print(f"{drawable.plugin}.{drawable.figure.name}: nothing to draw; see hpml table")
            continue
        path = folder / f"{drawable.plugin}-{drawable.figure.name}.{form}"
        folder.mkdir(parents=True, exist_ok=True)
        path.write_bytes(drawn)
        print(path)
    return 0


@click.command()
@click.argument("a")
@click.argument("b")
@_FORMAT
@click.option("--benchmark", help="Only this benchmark.")
@click.option("--machine", help="Only Records of this machine.")
@_RESULTS
@click.pass_obj
def compare(
    settings: Settings, a: str, b: str, form: str, benchmark: str | None, machine: str | None, results: Path
) -> int:
    """Compare B with A, each a machine, a commit (or what git calls it) or an environment, from their Records.

    Uses each side's current Record of a point. BETTER (▲) and WORSE (▼) are significant differences, corrected for the
    number of comparisons; SAME is within 2 %; AMBIGUOUS is undecided. Intervals (95 %) are for the next run on another
    card. Benchmarks whose version, and metrics whose unit or direction, differ between the sides are not compared.
    """
    from hpml_plugins.model.variability import Variability
    from hpml_plugins.report.compare import as_table, compare, find_refused, find_side, notes
    from hpml_plugins.report.tables import as_csv, as_markdown, as_text
    from hpml_plugins.store import commit_order

    repository = settings.registry.resolve().parent
    everything = list(_read(results))
    records = [each for each in everything if benchmark in (None, each.benchmark) and machine in (None, each.machine)]

    def named(name: str) -> str | None:
        command = ["git", "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"]
        try:
            done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
        except OSError:
            return None
        return done.stdout.strip() or None

    sides = [find_side(name, records, named) for name in (a, b)]
    order = commit_order(repository)
    refused = find_refused(sides[0], sides[1], records, order)
    found = compare(sides[0], sides[1], records, order, Variability(everything))
    if not found and refused:
        raise UsageError("; ".join(map(str, refused)))
    if not found:
        raise UsageError(f"{a!r} and {b!r} have no measured point in common")
    if form == "csv":
        print(as_csv(as_table(found, formatted=False, refused=refused)), end="")
        return 0
    print(f"A: {sides[0].kind} {sides[0].name}\nB: {sides[1].kind} {sides[1].name}\n")
    print((as_markdown if form == "markdown" else as_text)(as_table(found, formatted=True)), end="")
    if told := notes(found, refused):
        print("", *(f"- {note}" if form == "markdown" else note for note in told), sep="\n")
    return 0


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@_RESULTS
def export(file: Path, results: Path) -> int:
    """Write every Record to FILE as Parquet, for DuckDB, pandas and their like. A row is one metric of one Record."""
    from hpml_plugins.report.export import write_parquet

    print(f"{file}: {write_parquet(_read(results), file)} rows")
    return 0


@click.command()
@click.argument("folders", nargs=-1, required=True, metavar="DIR...", type=click.Path(path_type=Path))
@click.option(
    "--into",
    type=click.Path(path_type=Path),
    default=Path("results"),
    show_default=True,
    help="Where to merge them.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be written; write nothing.")
def merge(folders: tuple[Path, ...], into: Path, dry_run: bool) -> int:
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


def _read(results: Path) -> Iterator[Record]:
    from hpml_plugins.store import read_records

    return iter(read_records(results, lambda damage: print(f"hpml: {damage}", file=sys.stderr)))


def _find_drawables(settings: Settings, name: str, results: Path) -> Iterator[Drawable]:
    """The figures of plugin NAME, or the one figure of this name (NAME or PLUGIN.NAME), that have anything to show.

    Raises UsageError with the nearest names where there is none, or nothing has been measured for them yet.
    """
    from hpml_plugins.host import make_host
    from hpml_plugins.registry import read_registry
    from hpml_plugins.report.figures import collect, tabulate, versions
    from hpml_plugins.store import commit_order, current_records

    host = make_host(read_registry(settings.registry))
    for broken in host.broken:
        if broken.error and name.partition(".")[0] == broken.entry.name:
            raise broken.error
    chosen = []
    known: list[str] = []
    plugins = host.load_all()
    for plugin in plugins:
        figures = collect(plugin)
        own = plugin.entry.name
        known += [own, *(f"{own}.{figure.name}" for figure in figures)] if figures else []
        wanted = [figure for figure in figures if name in (own, figure.name, f"{own}.{figure.name}")]
        if wanted:
            chosen.append((plugin, wanted))
    if not chosen:
        raise UsageError(f"no figure or plugin with figures {name!r}; {nearest(name, known)}")
    records = current_records(_read(results), versions(plugins), commit_order(settings.registry.resolve().parent))
    with host.offers.in_force():
        found = [drawable for plugin, figures in chosen for drawable in tabulate(plugin, figures, records)]
    for drawable in found:
        if drawable.error:
            raise drawable.error
    if not any(len(drawable.table) for drawable in found):
        raise UsageError(f"nothing measured for {name!r} under {results}; run `asv run`, or name the folder: --results")
    yield from (drawable for drawable in found if len(drawable.table))
