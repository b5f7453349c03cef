"""Commands that read or write results: table, plot, compare, export, merge, retract."""

from __future__ import annotations

import fnmatch
import itertools
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

import click

from hpml_plugins.cli import (
    DRY_RUN,
    FILE,
    INTO,
    PATH,
    Settings,
    choose_results,
    read_results,
)
from hpml_plugins.errors import UsageError, nearest
from hpml_plugins.git import find_commit
from hpml_plugins.terminal import say, warn

if TYPE_CHECKING:
    from hpml_plugins.host import Host, LoadedPlugin
    from hpml_plugins.model import Record
    from hpml_plugins.report.compare import Compared, RefusedComparison
    from hpml_plugins.report.figures import Drawable
    from hpml_plugins.store import CommitOrder
    from hpml_plugins.store.merge import Merge

#: Points of each kind that `hpml merge` names before it asks.
MOST_SHOWN = 20
#: Types of the files that `hpml plot` writes.
_PICTURES = ("svg", "png", "pdf")
_RESULTS = click.option(
    "--results",
    type=PATH,
    callback=read_results,
    metavar="DIR|FILE.jsonl",
    help="Results, or a file of hpml run --record.  [default: results_dir of asv.conf.json]",
)
_NAME = click.argument("name", metavar="NAME|FILE.py")
_FORMAT = click.option(
    "--format",
    "form",
    type=click.Choice(["text", "markdown", "csv"]),
    default="text",
    show_default=True,
    help="How to write the tables.",
)
_BRANCH = click.option(
    "--branch",
    help=(
        "Use the newest Records on the line of this branch; HEAD: of what is checked out. "
        " [default: the first branch of asv.conf.json]"
    ),
)


@click.command()
@_NAME
@_FORMAT
@_BRANCH
@_RESULTS
@click.pass_obj
def table(
    settings: Settings, name: str, form: str, branch: str | None, results: Path
) -> int:
    """Print the tables of plugin NAME.

    NAME can also be a figure, as FIGURE or PLUGIN.FIGURE. FILE.py is a plugin that need not be in
    the registry; its values are those of FILE.jsonl, which `hpml run FILE.py --record` writes, if
    that is there. Otherwise the values are those of the newest Records. A benchmark of asv's own is
    named as asv does, or by a pattern such as 'suite.*'.
    """
    from hpml_plugins.report.tables import as_csv, as_markdown, as_text

    # what is piped into a file or a program has no width
    width = shutil.get_terminal_size((0, 0)).columns
    formatters = {"markdown": as_markdown, "csv": as_csv}
    formatter = formatters.get(form, partial(as_text, width=width))
    for number, drawable in enumerate(_find_drawables(settings, name, results, branch)):
        if form != "csv":
            say(
                *[""] * (number > 0),
                f"{'### ' if form == 'markdown' else ''}{drawable.figure.title}",
                "",
            )
        elif number:
            say()
        say(*formatter(drawable.table).splitlines())
        if drawable.note and form != "csv":
            say("", drawable.note)
    return 0


@click.command()
@_NAME
@click.option(
    "--format",
    "form",
    type=click.Choice(_PICTURES),
    help="Type of the files; default: that of --to FILE, else png.",
)
@click.option(
    "--to",
    "target",
    type=PATH,
    default=Path(),
    help="Folder to write to; for one chart also a file, such as chart.svg.",
)
@_BRANCH
@_RESULTS
@click.pass_obj
def plot(
    settings: Settings,
    name: str,
    form: str | None,
    target: Path,
    branch: str | None,
    results: Path,
) -> int:
    """Write the charts of plugin NAME as files.

    NAME can also be a figure, as FIGURE or PLUGIN.FIGURE. FILE.py is a plugin that need not be in
    the registry; its values are those of FILE.jsonl, which `hpml run FILE.py --record` writes, if
    that is there. Otherwise the values are those of the newest Records.
    """
    from hpml_plugins.report.figures import render

    suffix = target.suffix.removeprefix(".")
    is_file = suffix in _PICTURES and not target.is_dir()
    if is_file and form not in (None, suffix):
        raise UsageError(f"--to {target} is not of --format {form}; leave one of them out")
    form = form or (suffix if is_file else "png")
    found = _find_drawables(settings, name, results, branch, form)
    drawables = [drawable for drawable in found if drawable.is_drawn]
    if not drawables:
        raise UsageError(f"{name!r} has tables but no chart; print them: hpml table {name}")
    if is_file and len(drawables) > 1:
        figures = ", ".join(f"{each.plugin}.{each.figure.name}" for each in drawables)
        raise UsageError(
            f"--to {target} is one file, and {name!r} has {len(drawables)} charts ({figures});"
            " name one of them, or a folder"
        )
    for drawable in drawables:
        drawn = render(drawable, form)
        if drawn is None:
            say(
                f"{drawable.plugin}.{drawable.figure.name}: nothing to draw; see hpml table"
            )
            continue
        in_folder = target / f"{drawable.plugin}-{drawable.figure.name}.{form}"
        path = target if is_file else in_folder
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(drawn)
        say(path)
    return 0


@click.command()
@click.argument("a")
@click.argument("b")
@_FORMAT
@click.option("--benchmark", help="Only this benchmark.")
@click.option("--machine", help="Only Records of this machine.")
@click.option(
    "--all", "everything", is_flag=True, help="Show also what is the same or undecided."
)
@click.option(
    "--check",
    is_flag=True,
    help="Exit status 1 if anything is worse, else 3 if anything could not be judged, with counts.",
)
@_BRANCH
@_RESULTS
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
    differences have bounds alone, and AMBIGUOUS are those of which nothing is known. Intervals
    (95 %) are for the next run on another card. Benchmarks whose version, and metrics whose unit or
    direction, differ between the sides are not compared. Shows significant differences only,
    without --all; CSV has every row.
    """
    _refuse_unknown_machine(results, machine)
    for side in (a, b):
        _refuse_unknown_side(settings, results, side)
    from hpml_plugins.report import compare as comparing
    from hpml_plugins.report.compare import as_table, describe_one_sided, find_side
    from hpml_plugins.report.known import KnownRecords
    from hpml_plugins.report.tables import as_csv
    from hpml_plugins.store import describe_outside

    repository, order = _find_order(settings, results, branch)
    named = partial(find_commit, repository)
    commits = {named(a), named(b)} - {""}
    known = KnownRecords(
        results,
        warn,
        lambda each: (
            benchmark in (None, each.benchmark) and machine in (None, each.machine)
        ),
        lambda names: names.commit in commits or any(map(names.may_be, (a, b))),
    )
    sides = [find_side(name, known.names, named) for name in (a, b)]
    records = known.records
    found, refused = comparing.compare(sides[0], sides[1], records, order, known)
    by_line = [side for side in sides if side.kind != "commit"]
    asked = (
        each.commit
        for each in records
        if each.status == "ok" and any(side.has(each) for side in by_line)
    )
    if left_out := describe_outside(order.outside(asked), order.branch):
        left_out += "; compare a commit by its name, or name the branch: --branch"
    if not found and refused:
        raise UsageError("; ".join((*map(str, refused), *filter(None, [left_out]))))
    if not found:
        nothing = f"{a!r} and {b!r} have no measured point in common"
        raise UsageError("; ".join(filter(None, [nothing, left_out])))
    one_sided = describe_one_sided(sides[0], sides[1], records)
    for line in filter(None, (left_out, one_sided)):
        warn(line)
    status = 0
    if check:
        status, counts = comparing.check(found, refused, one_sided)
        say(counts, error=True)
    if form == "csv":
        say(*as_csv(as_table(found, formatted=False, refused=refused)).splitlines())
        return status
    say(f"A: {sides[0].kind} {sides[0].name}", f"B: {sides[1].kind} {sides[1].name}", "")
    _print_comparison(found, refused, everything=everything, markdown=form == "markdown")
    return status


def _refuse_unknown_machine(results: Path, machine: str | None) -> None:
    """Raise UsageError, with the nearest name, for a machine without Records, before all are
    read."""
    from hpml_plugins.store import is_in_records, machine_folders

    known = [folder.name for folder in machine_folders(results)]
    if machine is not None and machine not in known and not is_in_records(results, machine):
        raise UsageError(f"no Records of machine {machine!r}; {nearest(machine, known)}")


def _refuse_unknown_side(settings: Settings, results: Path, name: str) -> None:
    """Raise UsageError, with the nearest name, for what is no machine, environment or commit,
    before all Records are read."""
    from hpml_plugins.store import is_in_records, machine_folders, record_files

    machines = machine_folders(results)
    # asv's files are called COMMIT-ENVIRONMENT.json
    files = sorted(path.stem for folder in machines for path in folder.glob("*-*.json"))
    environments = {stem.partition("-")[2] for stem in files}
    if name in environments or name in {folder.name for folder in machines}:
        return
    if is_in_records(results, name):
        return
    commits = [*files, *(path.stem for path in record_files(results))]
    if name and any(commit.startswith(name[:8]) for commit in commits):
        return
    from hpml_plugins.asv.configuration import find_history

    repository, _ = find_history(settings.registry.resolve().parent)
    if find_commit(repository, name):
        return
    known = dict.fromkeys((*(folder.name for folder in machines), *sorted(environments)))
    raise UsageError(
        f"no machine, environment or commit with Records is called {name!r}; {nearest(name, known)}"
    )


def _print_comparison(
    found: Sequence[Compared],
    refused: Sequence[RefusedComparison],
    *,
    everything: bool,
    markdown: bool,
) -> None:
    """For readers: the counts, the rows, then the reasons and confounders."""
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


@click.command()
@click.argument("file", type=FILE)
@_RESULTS
def export(file: Path, results: Path) -> int:
    """Write all Records to FILE as Parquet.

    The results of asv's own benchmarks are among them. DuckDB, pandas and similar tools read it. A
    row is one metric of one Record.
    """
    if file.suffix not in (".parquet", ".pq"):
        raise UsageError(
            f"{file}: export writes Parquet; name the file {file.stem}.parquet"
        )
    from hpml_plugins.model.formatting import counted
    from hpml_plugins.report.export import write_parquet
    from hpml_plugins.store import read_foreign, read_records

    records = itertools.chain(read_records(results, warn), read_foreign(results))
    if (first := next(records, None)) is None:
        raise UsageError(
            f"no Record under {results}; name the folder of results: --results"
        )
    records = itertools.chain([first], records)
    say(f"{file}: {counted(write_parquet(records, file), 'row')}")
    return 0


@click.command()
@click.argument("folders", nargs=-1, required=True, metavar="DIR...", type=PATH)
@INTO
@DRY_RUN
@click.option(
    "--yes", is_flag=True, help="Do not ask before points that are stored here change."
)
def merge(folders: tuple[Path, ...], into: Path, dry_run: bool, yes: bool) -> int:
    """Add the results of each DIR to those of this project.

    DIR is a results folder or a project that has one. Records and asv's JSON files are merged.

    The order of the folders does not matter, and merging twice changes nothing. Where two folders
    have a result for the same point, the newer one counts. Exit status 1 when files were skipped
    because they are damaged or not results.

    New Records are added without a question. Where DIR retracts points that are stored here, has
    further rounds of their runs, or another Record of the same round (then neither counts), you are
    asked first; without a terminal the command ends with exit status 2 and merges nothing, unless
    --yes is given.
    """
    from hpml_plugins.store import merge_results

    if not (dry_run or yes):
        _ask_before_changes(merge_results(folders, into, dry_run=True))
    report = merge_results(folders, into, dry_run=dry_run)
    if dry_run or yes:
        _show_changes(report)
    for conflict in report.conflicts:
        warn(conflict)
    for skipped in report.skipped:
        warn(f"skipped: {skipped}")
    say(*report.describe())
    return 1 if report.skipped else 0


def _ask_before_changes(planned: Merge) -> None:
    """Have the user agree to what a merge does to stored points. Raises UsageError, or Abort, where
    nobody does."""
    if not planned.consequences:
        return
    _show_changes(planned)
    if not sys.stdin.isatty():
        raise UsageError(
            f"the merge would mean {planned.consequences}; nothing was merged; --yes merges without"
            " asking"
        )
    click.confirm(f"{planned.consequences}. Merge?", abort=True)


def _show_changes(planned: Merge) -> None:
    kinds = (
        ("retracted", planned.retracted),
        ("changed", planned.changed),
        ("conflict", planned.disputed),
    )
    for kind, points in kinds:
        for point in points[:MOST_SHOWN]:
            say(f"{kind}: {point}")
        if len(points) > MOST_SHOWN:
            say(f"{kind}: {len(points) - MOST_SHOWN} more")


@click.command()
@click.argument("name")
@click.option(
    "--commit",
    default="",
    help="Only Records of this commit; its first characters are enough.",
)
@click.option("--machine", help="Only Records of this machine.")
@click.option(
    "-p",
    "--param",
    "choices",
    multiple=True,
    metavar="KEY=VALUE[,VALUE]",
    help="Only these points.",
)
@click.option(
    "--run",
    default="",
    help="Only Records of this run; the first characters of its name are enough.",
)
@click.option(
    "--reason",
    required=True,
    help="What is wrong with them; shown in the history of the point.",
)
@click.option("--all", "several", is_flag=True, help="Retract several Records at once.")
@click.option(
    "--dry-run", is_flag=True, help="List what would be retracted; write nothing."
)
@click.option(
    "--results",
    type=PATH,
    callback=choose_results,
    help="Folder of results.  [default: results_dir of asv.conf.json]",
)
def retract(
    name: str,
    commit: str,
    machine: str | None,
    choices: tuple[str, ...],
    run: str,
    reason: str,
    several: bool,
    dry_run: bool,
    results: Path,
) -> int:
    """Retract a Record of benchmark NAME that is known to be wrong.

    Its numbers are no longer shown or compared; the history of the point gives the reason. The
    Record is kept, and a line with the reason is appended. A retraction cannot be taken back:
    measure the point again, for example with `asv run --skip-existing`, which takes it for not
    measured. Exit status 1 when asv's own files have to do without some Records, which are named.
    """
    from hpml_plugins.model.rounds import retract as retraction_of
    from hpml_plugins.store import append_record, lock_machine, project

    reason = " ".join(reason.split())
    if not reason:
        raise UsageError("--reason is empty; say what is wrong with the Record")
    _refuse_unknown_machine(results, machine)
    found = _find_records(results, name, choices, commit=commit, machine=machine, run=run)
    measured = [(path, record) for path, record in found if record.status == "ok"]
    if len(measured) > 1 and not (several or dry_run):
        raise UsageError(
            f"{len(measured)} Records match; choose one with --commit, --machine, --run and -p"
            " (--dry-run lists them), or retract them all with --all"
        )
    if dry_run or not measured:
        for _, record in measured or found:
            say(f"{'would be' if measured else 'already'} retracted: {_describe(record)}")
        return 0
    left_out: list[str] = []
    for folder, records in itertools.groupby(
        measured, lambda each: each[0].parent.parent.name
    ):
        with lock_machine(results, folder):
            for path, record in records:
                append_record(path, retraction_of(record, reason))
                say(f"retracted: {_describe(record)}")
            project(results, machine=folder, on_damage=left_out.append)
    for line in left_out:
        warn(line)
    return 1 if left_out else 0


def _describe(record: Record) -> str:
    from hpml_plugins.model.formatting import name_point

    origin = (
        f"{record.machine}, commit {record.commit[:8] or 'unknown'}, run"
        f" {record.run[:8] or 'unknown'}"
    )
    return f"{name_point(record.benchmark, record.params)} ({origin})"


def _find_records(
    results: Path,
    name: str,
    choices: Sequence[str],
    *,
    commit: str,
    machine: str | None,
    run: str,
) -> list[tuple[Path, Record]]:
    """The measured and the retracted Records that a user names, each with its file.

    commit, run: their first characters. Raises UsageError where there is none.
    """
    from hpml_plugins.cli.run import choose, is_chosen, split_choice
    from hpml_plugins.model.formatting import spell_choice
    from hpml_plugins.store import read_file, record_files

    stored = [
        (path, record) for path in record_files(results) for record in read_file(path, warn)
    ]
    wanted: dict[str, list[str]] = {}
    for key, text in map(split_choice, choices):
        offered = {
            spell_choice(each.params[key])
            for _, each in stored
            if each.benchmark == name and key in each.params
        }
        wanted[key] = choose(text, offered)
    found = [
        (path, record)
        for path, record in stored
        if record.benchmark == name
        and record.status in ("ok", "retracted")
        and machine in (None, record.machine)
        and record.commit.startswith(commit)
        and record.run.startswith(run)
        and is_chosen(record.params, wanted)
    ]
    if not found:
        known = sorted({record.benchmark for _, record in stored})
        hint = f"; {nearest(name, known)}" if name not in known else ""
        raise UsageError(f"no measured Record of {name!r} matches under {results}{hint}")
    return found


def _find_order(
    settings: Settings, results: Path, branch: str | None
) -> tuple[Path, CommitOrder]:
    """The repository, and the order of its commits with the line of a branch: this one, or those of
    asv.conf.json.

    Raises UsageError where the repository has no such branch.
    """
    from hpml_plugins.asv.configuration import find_history
    from hpml_plugins.store import commit_order

    repository, branches = find_history(settings.registry.resolve().parent)
    order = commit_order(repository, results, [branch] if branch else branches)
    if branch and order.problems:
        raise UsageError(f"the repository has no branch {branch!r}")
    for problem in order.problems:
        warn(problem)
    return repository, order


def _find_plugins(host: Host, name: str) -> list[LoadedPlugin]:
    """Those that have figures of this name: PLUGIN, FIGURE or PLUGIN.FIGURE. A plugin of that name
    comes before other plugins' figures of it.

    Raises UsageError with the nearest names where there is none, and the error of a broken plugin
    that is named.
    """
    from hpml_plugins.report.drawing import draw_all, figure_names

    head = name.partition(".")[0]
    for broken in host.broken:
        if broken.error and head == broken.entry.name:
            raise broken.error
    chosen: list[LoadedPlugin] = []
    known: dict[str, None] = {}
    for drawn in draw_all(host, [], wanted=lambda plugin, figure: False):
        own = drawn.plugin.entry.name
        if drawn.error and head == own:
            raise drawn.error
        if drawn.error:
            warn(drawn.error)
        for figure in drawn.names:
            names = figure_names(own, figure)
            known |= {own: None, names[-1]: None}
            if name in names and drawn.plugin not in chosen:
                chosen.append(drawn.plugin)
    if named := [plugin for plugin in chosen if plugin.entry.name == name]:
        return named
    if not chosen:
        raise UsageError(
            f"no figure or plugin with figures {name!r}; {nearest(name, list(known))}"
        )
    return chosen


def _tables_of_asv(
    settings: Settings, results: Path, branch: str | None, names: Sequence[str]
) -> Iterator[Drawable]:
    """A table of each of these benchmarks of asv's own, of the newest values of what is declared
    now. Raises UsageError where none has any."""
    from hpml_plugins.model import Figure, Table
    from hpml_plugins.report.figures import Drawable
    from hpml_plugins.store import current_records, foreign_declarations, read_foreign

    _, order = _find_order(settings, results, branch)
    declared = foreign_declarations(results)
    newest = [
        each
        for each in current_records(read_foreign(results), order)
        if each.benchmark in names and each.version == declared[each.benchmark].version
    ]
    if not newest:
        raise UsageError(
            f"nothing measured for {', '.join(names)} under {results}; run `asv run`"
        )
    for name, records in itertools.groupby(
        sorted(newest, key=lambda each: each.benchmark), lambda each: each.benchmark
    ):
        table = Table.of_records(records, "value")
        yield Drawable("asv", Figure("value", name, (name,), lambda _: Table({})), table)


def _find_drawables(
    settings: Settings, name: str, results: Path, branch: str | None, form: str = "svg"
) -> Iterator[Drawable]:
    """The figures of plugin NAME, or the one figure of this name (NAME or PLUGIN.NAME), that have
    anything to show.

    form: of free pictures. Raises UsageError with the nearest names where there is none, or nothing
    has been measured for them yet.
    """
    from hpml_plugins.host import make_host
    from hpml_plugins.registry import read_registry, registry_with
    from hpml_plugins.report.drawing import draw_all, figure_names
    from hpml_plugins.report.reading import read_history
    from hpml_plugins.store import describe_outside, foreign_declarations

    asked = name
    if name.endswith(".py"):
        registry, entry = registry_with(Path(name), settings.registry)
        name = entry.name
    else:
        registry = read_registry(settings.registry)
    host = make_host(registry)
    if asvs := fnmatch.filter(foreign_declarations(results), name):
        yield from _tables_of_asv(settings, results, branch, asvs)
        return
    chosen = _find_plugins(host, name)
    _, order = _find_order(settings, results, branch)
    history = read_history(results, host, {}, order, {}, warn)
    drawing = draw_all(
        replace(host, plugins=tuple(chosen)),
        history.current(),
        wanted=lambda plugin, figure: name in figure_names(plugin, figure.name),
        form=form,
    )
    found: list[Drawable] = []
    for drawn in drawing:
        if drawn.error:
            raise drawn.error
        found += drawn.drawables
    shown = {benchmark for drawable in found for benchmark in drawable.figure.benchmarks}
    left_out = describe_outside(history.outside_of(shown), order.branch)
    if left_out:
        left_out += "; name the branch: --branch"
        warn(left_out)
    for drawable in found:
        if drawable.error:
            raise drawable.error
    if not any(len(drawable.table) for drawable in found):
        measure = f"hpml run {asked} --record" if asked.endswith(".py") else "asv run"
        raise UsageError(
            f"nothing measured for {name!r} under {results}; run `{measure}`, or name the folder:"
            " --results"
        )
    yield from (drawable for drawable in found if len(drawable.table))
