"""Commands that write results, or export all of them to a file: export, merge, retract; and code
shared with the commands that show results."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
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
from hpml_plugins.terminal import CountedWarnings, say, warn

if TYPE_CHECKING:
    from hpml_plugins.model import Record
    from hpml_plugins.store import CommitOrder
    from hpml_plugins.store.merge import Merge

RESULTS = click.option(
    "--results",
    type=PATH,
    callback=read_results,
    metavar="DIR|FILE.jsonl",
    help="Results, or a file of hpml run --record.  [default: results_dir of asv.conf.json]",
)
FORMAT = click.option(
    "--format",
    "form",
    type=click.Choice(["text", "markdown", "csv"]),
    default="text",
    show_default=True,
    help="How to write the tables.",
)
MACHINE = click.option("--machine", help="Only Records of this machine.")
BRANCH = click.option(
    "--branch",
    help=(
        "Use the newest Records on the line of this branch; HEAD: of the current checkout. "
        " [default: the first branch of asv.conf.json]"
    ),
)


@click.command()
@click.argument("file", type=FILE)
@RESULTS
def export(file: Path, results: Path) -> int:
    """Write all Records to FILE as Parquet.

    The results of asv's own benchmarks are among them. DuckDB, pandas and similar tools read it. A
    row is one metric of one Record. Exit status 1 when something was left out because it is
    damaged.
    """
    if file.suffix not in (".parquet", ".pq"):
        raise UsageError(
            f"{file}: export writes Parquet; name the file {file.stem}.parquet"
        )
    from hpml_plugins.model.formatting import counted
    from hpml_plugins.report.export import write_parquet
    from hpml_plugins.store import read_foreign, read_records

    left_out = CountedWarnings()
    records = itertools.chain(
        read_records(results, left_out), read_foreign(results, left_out)
    )
    if (first := next(records, None)) is None:
        raise UsageError(
            f"no Record under {results}; name the folder of results: --results"
        )
    records = itertools.chain([first], records)
    say(f"{file}: {counted(write_parquet(records, file), 'row')}")
    return 1 if left_out.count else 0


@click.command()
@click.argument("folders", nargs=-1, required=True, metavar="DIR...", type=PATH)
@INTO
@DRY_RUN
@click.option("--yes", is_flag=True, help="Change stored points without asking.")
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
        say(*report.list_changes())
    for conflict in report.conflicts:
        warn(conflict)
    for skipped in report.skipped:
        warn(f"skipped: {skipped}")
    say(*report.describe())
    return 1 if report.skipped else 0


def _ask_before_changes(planned: Merge) -> None:
    """Ask the user to confirm what a merge changes in stored points. Raises UsageError without a
    terminal, or Abort."""
    if not planned.consequences:
        return
    say(*planned.list_changes())
    if not sys.stdin.isatty():
        raise UsageError(
            f"the merge would cause {planned.consequences}; nothing was merged; use --yes to"
            " merge anyway"
        )
    click.confirm(f"{planned.consequences}. Merge?", abort=True)


@click.command()
@click.argument("name")
@click.option(
    "--commit",
    default="",
    help="Only Records of this commit; its first characters are enough.",
)
@MACHINE
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
    measure the point again, for example with `asv run --skip-existing`, which treats it as not
    measured. Exit status 1 if some Records, which are listed, cannot be written to asv's own files.
    """
    from hpml_plugins.model.checking import MOST_TEXT
    from hpml_plugins.model.rounds import retract as retraction_of
    from hpml_plugins.store import append_record, lock_machine, project

    reason = " ".join(reason.split())
    if not reason:
        raise UsageError("--reason is empty; say what is wrong with the Record")
    if len(reason) > MOST_TEXT:
        raise UsageError(
            f"--reason has {len(reason):,} characters; the most are {MOST_TEXT:,}"
        )
    refuse_unknown_machine(results, machine)
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
    """The measured and the retracted Records selected by the user, each with its file.

    commit, run: prefixes. Raises UsageError if there is none.
    """
    from hpml_plugins.cli.run import choose, is_chosen, split_choices
    from hpml_plugins.model.formatting import format_choice
    from hpml_plugins.store import read_file, record_files

    stored = [
        (path, record) for path in record_files(results) for record in read_file(path, warn)
    ]
    found = [
        (path, record)
        for path, record in stored
        if record.benchmark == name and record.status in ("ok", "retracted")
    ]
    if not found:
        known = sorted({record.benchmark for _, record in stored})
        hint = f"; {nearest(name, known)}" if name not in known else ""
        raise UsageError(f"no measured Record of {name!r} under {results}{hint}")

    def narrow(option: str, fits: Callable[[Record], bool]) -> None:
        """Keep those that fit; name the option that none does."""
        found[:] = [each for each in found if fits(each[1])]
        if not found:
            raise UsageError(
                f"no measured Record of {name!r} under {results} matches {option}"
            )

    if machine is not None:
        narrow(f"--machine {machine}", lambda each: each.machine == machine)
    narrow(f"--commit {commit}", lambda each: each.commit.startswith(commit))
    narrow(f"--run {run}", lambda each: each.run.startswith(run))
    chosen: dict[str, list[str]] = {}
    for key, text in split_choices(choices).items():
        offered = {
            format_choice(each.params[key]) for _, each in found if key in each.params
        }
        chosen[key] = choose(text, offered)
        narrow(f"-p {key}={text}", lambda each: is_chosen(each.params, chosen))
    return found


def refuse_unknown_machine(results: Path, machine: str | None) -> None:
    """Raise UsageError, with the nearest name, for a machine without Records, before all are
    read."""
    from hpml_plugins.store import is_in_records, machine_folders

    known = [folder.name for folder in machine_folders(results)]
    if machine is not None and machine not in known and not is_in_records(results, machine):
        raise UsageError(f"no Records of machine {machine!r}; {nearest(machine, known)}")


def find_order(
    settings: Settings, results: Path, branch: str | None
) -> tuple[Path, CommitOrder]:
    """The repository, and the order of its commits with the line of this branch, or of those in
    asv.conf.json.

    Raises UsageError if the repository lacks the branch.
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
