"""`hpml compare A B`: two machines, commits or environments."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

import click

from hpml_plugins.cli import Settings
from hpml_plugins.cli.results import (
    BRANCH,
    FORMAT,
    MACHINE,
    RESULTS,
    find_order,
    refuse_unknown_machine,
)
from hpml_plugins.errors import UsageError, nearest
from hpml_plugins.git import find_commit
from hpml_plugins.terminal import CountedWarnings, say, warn

if TYPE_CHECKING:
    from hpml_plugins.report.compare import Compared, RefusedComparison
    from hpml_plugins.report.reading import Outcome


@click.command()
@click.argument("a")
@click.argument("b")
@FORMAT
@click.option("--benchmark", help="Only this benchmark.")
@MACHINE
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Also show values that are the same or undecided.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Exit status 1 if anything is worse, else 3 if anything could not be judged, with counts.",
)
@BRANCH
@RESULTS
@click.pass_obj
def compare(
    settings: Settings,
    a: str,
    b: str,
    form: str,
    benchmark: str | None,
    machine: str | None,
    everything: bool,
    check: bool,
    branch: str | None,
    results: Path,
) -> int:
    """Compare the Records of B with those of A.

    A and B are machines, commits (or other names that git knows) or environments. A side is the
    mean over its cards of all Records of one code: the newest on the branch's line that both
    machines measured, else the newest of each side. Ratios are B over A. BETTER (▲) and WORSE (▼)
    are significant differences, corrected for the number of comparisons; SAME is within 2 %; other
    differences have bounds only, and of AMBIGUOUS ones nothing is known. Intervals
    (95 %) are for the next run on another card. Benchmarks whose version, and metrics whose unit or
    direction, differ between the sides are not compared. Shows significant differences only,
    without --all; CSV has every row.
    """
    refuse_unknown_machine(results, machine)
    for side in (a, b):
        _refuse_unknown_side(settings, results, side)
    from hpml_plugins.report import compare as comparing
    from hpml_plugins.report.compare import as_table, describe_one_sided, find_side
    from hpml_plugins.report.known import KnownRecords
    from hpml_plugins.report.tables import as_csv
    from hpml_plugins.store import describe_outside

    repository, order = find_order(settings, results, branch)
    named = partial(find_commit, repository)
    commits = {named(a), named(b)} - {""}
    measured: set[str] = set()

    def is_in_scope(each: Outcome) -> bool:
        measured.add(each.benchmark)
        return benchmark in (None, each.benchmark) and machine in (None, each.machine)

    damage = CountedWarnings(_folders_of(results, machine, (a, b)))
    known = KnownRecords.read(
        results,
        damage,
        is_in_scope,
        lambda names: names.commit in commits or any(map(names.may_be, (a, b))),
    )
    if benchmark and not known.names:
        where = f"on {machine}" if machine else f"under {results}"
        hint = "" if benchmark in measured else f"; {nearest(benchmark, sorted(measured))}"
        raise UsageError(f"no Record of benchmark {benchmark!r} {where}{hint}")
    sides = [find_side(name, known.names, named) for name in (a, b)]
    records = known.records
    found, refused = comparing.compare(sides[0], sides[1], known, order)
    by_line = [side for side in sides if side.kind != "commit"]
    asked = []
    for record in records:
        if record.status == "ok" and any(side.has(record) for side in by_line):
            asked.append(record.commit)
    if left_out := describe_outside(order.outside(asked), order.branch):
        left_out += "; compare a commit by its name, or name the branch: --branch"
    if not found:
        nothing = f"{a!r} and {b!r} have no measured point in common"
        reasons = [*map(str, refused)] or [nothing]
        raise UsageError("; ".join(filter(None, [*reasons, left_out])))
    one_sided = describe_one_sided(sides[0], sides[1], records)
    for line in filter(None, (left_out, one_sided)):
        warn(line)
    status = 0
    if check:
        status, counts = comparing.check(found, refused, one_sided, damage.count)
        say(counts, error=True)
    if form == "csv":
        say(*as_csv(as_table(found, formatted=False, refused=refused)).splitlines())
        return status
    say(f"A: {sides[0].kind} {sides[0].name}", f"B: {sides[1].kind} {sides[1].name}", "")
    _print_comparison(found, refused, everything=everything, markdown=form == "markdown")
    return status


def _folders_of(results: Path, machine: str | None, sides: Sequence[str]) -> list[str]:
    """The folders of the machines that are compared; none if all may be."""
    names = [machine] if machine else list(sides)
    folders = [results / name for name in names]
    return [f"{folder}/" for folder in folders] if all(map(Path.is_dir, folders)) else []


def _refuse_unknown_side(settings: Settings, results: Path, name: str) -> None:
    """Raise UsageError, with the nearest name, for a name that is not a machine, environment or
    commit, before all Records are read."""
    from hpml_plugins.store import is_in_records, machine_folders, record_files

    machines = {folder.name: folder for folder in machine_folders(results)}
    # asv's files are called COMMIT-ENVIRONMENT.json
    files = [path.stem for folder in machines.values() for path in folder.glob("*-*.json")]
    environments = sorted({stem.partition("-")[2] for stem in files})
    if name in machines or name in environments or is_in_records(results, name):
        return
    commits = [*files, *(path.stem for path in record_files(results))]
    if name and any(commit.startswith(name[:8]) for commit in commits):
        return
    from hpml_plugins.asv.configuration import find_history

    repository, _ = find_history(settings.registry.resolve().parent)
    if find_commit(repository, name):
        return
    hint = nearest(name, dict.fromkeys([*machines, *environments]))
    raise UsageError(
        f"no machine, environment or commit with Records is called {name!r}; {hint}"
    )


def _print_comparison(
    found: Sequence[Compared],
    refused: Sequence[RefusedComparison],
    *,
    everything: bool,
    markdown: bool,
) -> None:
    """Print for readers: the counts, the rows, then the reasons and confounders."""
    from hpml_plugins.report.compare import (
        as_lines,
        as_table,
        changed,
        list_confounders,
        notes,
        summarise,
    )
    from hpml_plugins.report.tables import as_markdown

    shown = found if everything else changed(found)
    width = shutil.get_terminal_size().columns
    summary = summarise(found, "" if everything else "--all")
    say(*(wrap(summary, width) if sys.stdout.isatty() else [summary]))
    if shown:
        if markdown:
            table = as_markdown(as_table(shown, formatted=True)).splitlines()
        else:
            table = list(as_lines(shown, width))
        say("", *table)

    def paragraphs(lines: Sequence[str], bullet: str) -> list[str]:
        if markdown:
            return [f"- {line}" for line in lines]
        return [
            text
            for line in lines
            for text in wrap(bullet + line, width, subsequent_indent=bullet + "  ")
        ]

    if reasons := notes(found, refused):
        say("", *paragraphs(reasons, ""))
    if confounders := list_confounders(found):
        say("", "What else differs, A → B:", "", *paragraphs(confounders, "  "))
