"""`hpml import FILE…`: results of other benchmark tools as Records."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from hpml_plugins.cli import DRY_RUN, INTO, PATH, Settings
from hpml_plugins.errors import HpmlError, UsageError
from hpml_plugins.git import find_commit
from hpml_plugins.model import Record, counted
from hpml_plugins.store import merge_results
from hpml_plugins.temporary import temporary_folder
from hpml_plugins.terminal import say, warn
from hpml_plugins.tools.importing.formats import read_source
from hpml_plugins.tools.importing.reading import Source
from hpml_plugins.tools.importing.records import to_records, write_results

_COMMIT = re.compile(r"[0-9a-f]{40}")


@click.command("import")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=PATH)
@click.option(
    "--machine", metavar="NAME", help="The machine that measured it, if FILE does not say."
)
@click.option(
    "--commit",
    metavar="REV",
    help="The commit measured, if FILE does not say: any name git knows.",
)
@click.option("--gpu", metavar="NAME", help="The GPU it ran on, if FILE does not say.")
@INTO
@DRY_RUN
@click.pass_obj
def command(
    settings: Settings,
    files: tuple[Path, ...],
    machine: str | None,
    commit: str | None,
    gpu: str | None,
    into: Path,
    dry_run: bool,
) -> int:
    """Read result files of other benchmark tools into Records.

    FILE is a result file of nvbench, Google Benchmark, pytest-benchmark, hyperfine, nccl-tests,
    tritonbench or asv, recognised by its contents. Repetitions become samples. What a file does not
    state stays unknown. Records without a known commit appear in tables and comparisons, but in no
    history. Importing a file again changes nothing. Nothing is written if one FILE cannot be read.
    """
    revision = _resolve(settings, commit) if commit else ""
    records: list[Record] = []
    for file in files:
        source = _completed(read_source(file), file, machine, revision, gpu)
        try:
            found = to_records(source, file.read_bytes())
        except HpmlError as error:
            raise HpmlError(str(error), str(file)) from None
        say(f"{file}: {_describe(source, found)}")
        records += found
    with temporary_folder("hpml-import-") as scratch:
        write_results(records, scratch, into)
        report = merge_results([scratch], into, dry_run=dry_run)
    for line in [*report.conflicts, *report.skipped]:
        warn(line.replace(f"{scratch}/", ""))
    say(*report.describe())
    return 1 if report.skipped else 0


def _resolve(settings: Settings, commit: str) -> str:
    """The commit in full. Raises UsageError for a name that git does not know."""
    if _COMMIT.fullmatch(commit):
        return commit
    found = find_commit(settings.registry.resolve().parent, commit)
    if not found:
        raise UsageError(f"git knows no commit {commit!r} here; give all 40 digits")
    return found


def _completed(
    source: Source, file: Path, machine: str | None, commit: str, gpu: str | None
) -> Source:
    """The source with the user's additions. Raises UsageError if they contradict the file, and
    without a machine."""
    if not (machine or source.machine):
        raise UsageError("it does not name the machine: give --machine NAME", str(file))
    if commit and source.commit not in ("", commit):
        raise UsageError(
            f"it names commit {source.commit}, but --commit another", str(file)
        )
    named = {each.gpus for each in source.readings} - {None}
    if gpu and named:
        raise UsageError("it names its GPUs; leave out --gpu", str(file))
    readings = source.readings
    if gpu:
        readings = [
            replace(each, gpus=(gpu,) * max(1, each.gpu_count)) for each in readings
        ]
    return replace(
        source,
        machine=machine or source.machine,
        commit=commit or source.commit,
        readings=readings,
    )


def _describe(source: Source, records: Sequence[Record]) -> str:
    benchmarks = len({record.benchmark for record in records})
    failed = sum(record.status == "failed" for record in records)
    unknown = [] if source.commit else ["commit"]
    if all(reading.gpus is None for reading in source.readings):
        unknown.append("GPU")
    parts = [
        f"{source.tool}, {counted(len(records), 'point')} of {counted(benchmarks, 'benchmark')}"
        f" on {source.machine}"
    ]
    if failed:
        parts.append(f"{failed} failed")
    if unknown:
        parts.append(f"unknown: {', '.join(unknown)}")
    return "; ".join(parts)
