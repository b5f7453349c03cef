"""Merging results folders, file by file, into one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpml_plugins.errors import HpmlError, UsageError
from hpml_plugins.store import merge_declarations as declared
from hpml_plugins.store import merge_records as lines
from hpml_plugins.store import merge_results as results
from hpml_plugins.store.atomic_write import remove_partial, write_whole
from hpml_plugins.store.json_objects import read_object
from hpml_plugins.store.lock import Lock, take
from hpml_plugins.store.machine_lock import take_machine

DECLARED, MACHINE, RECORDS = "benchmarks.json", "machine.json", "records"
#: s to wait for another writer of benchmarks.json, who needs milliseconds.
PATIENCE = 30.0

Join = Callable[[dict[str, Any], dict[str, Any]], tuple[dict[str, Any], list[str]]]


@dataclass
class Report:
    """What a merge did. records: new ones, by machine.  files: written.  conflicts: decided.  skipped: left alone."""

    records: dict[str, int] = field(default_factory=dict)
    files: list[Path] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


def find_results(folder: Path) -> Path:
    """The results folder that is meant: the folder itself, or `results` in it. Raises UsageError for neither."""
    for found in (folder, folder / "results"):
        if (found / DECLARED).is_file() or any(found.glob(f"*/{MACHINE}")) or any(found.glob(f"*/{RECORDS}/*.jsonl")):
            return found
    raise UsageError("no results here: neither benchmarks.json nor a machine's folder", str(folder))


def lock_declarations(folder: Path) -> Lock:
    """The lock of benchmarks.json, which every node writes whole."""
    return take(folder / ".benchmarks.lock", wait=PATIENCE)


def merge_folders(sources: Iterable[Path], into: Path, *, dry_run: bool = False, locked: str = "") -> Report:
    """Put the union of all into one results folder; the others are only read.

    A machine that is being measured in `into` is not waited for: MachineTaken says so. A file that is damaged or not
    ours is named and left alone, and the rest goes on.  locked: a machine that the caller has taken in `into`.
    """
    report = Report()
    for source in map(find_results, sources):
        if into.exists() and source.resolve() == into.resolve():
            continue
        _merge_declared(source, into, report, dry_run)
        for folder in sorted(path for path in source.iterdir() if path.is_dir() and not path.name.startswith(".")):
            if not _is_link(folder, report):
                _merge_machine(folder, into, report, dry_run, locked=folder.name == locked)
        _name_foreign(source, report, lambda path: path.is_dir() or path.name == DECLARED)
    return report


def _merge_declared(source: Path, into: Path, report: Report, dry_run: bool) -> None:
    if not (source / DECLARED).exists() or _is_link(source / DECLARED, report):
        return
    if dry_run:
        _merge_json(source / DECLARED, into / DECLARED, declared.join_benchmarks, report, dry_run)
        return
    with lock_declarations(into):
        remove_partial(into, DECLARED)
        _merge_json(source / DECLARED, into / DECLARED, declared.join_benchmarks, report, dry_run)


def _merge_machine(folder: Path, into: Path, report: Report, dry_run: bool, *, locked: bool) -> None:
    target = into / folder.name
    found = [path for path in (*folder.glob("*.json"), *(folder / RECORDS).glob("*.jsonl")) if path.is_file()]
    if not found:
        report.skipped.append(f"{folder}: not a machine's folder")
        return
    records = sorted((folder / RECORDS).glob("*.jsonl"))
    if (folder / RECORDS).is_dir() and _is_link(folder / RECORDS, report):
        records = []
    lock = None if dry_run or locked else take_machine(into, folder.name)
    try:
        for path in sorted(folder.glob("*.json"), key=lambda path: (path.name != MACHINE, path.name)):
            if _is_link(path, report):
                continue
            if path.name == MACHINE:
                _merge_json(path, target / MACHINE, declared.join_machine, report, dry_run, folder.name)
            else:
                _merge_results(path, target / path.name, report, dry_run)
        for path in records:
            if not _is_link(path, report):
                _merge_records(path, target / RECORDS / path.name, report, dry_run)
    finally:
        if lock:
            lock.release()
    _name_foreign(folder, report, lambda path: path.suffix == ".json" or path.name == RECORDS)
    if (folder / RECORDS).is_dir():
        _name_foreign(folder / RECORDS, report, lambda path: path.suffix == ".jsonl")


def _merge_json(source: Path, target: Path, join: Join, report: Report, dry_run: bool, machine: str = "") -> None:
    if not source.exists():
        return
    try:
        theirs = read_object(source)
        if machine and theirs.get("machine") != machine:
            raise HpmlError(f"it is of machine {theirs.get('machine')!r}", str(source))
    except HpmlError as error:
        report.skipped.append(str(error))
        return
    ours: dict[str, Any] = {}
    if _is_there(target, report, dry_run):
        try:
            ours = read_object(target)
        except HpmlError as error:
            _put_aside(target, str(error), report, dry_run)
    joined, said = join(ours, theirs)
    report.conflicts += [f"{target}: {word}" for word in said]
    if joined != ours:
        report.files.append(target)
        if not dry_run:
            write_whole(target, json.dumps(joined, indent=4, sort_keys=True).encode())  # as asv writes it


def _merge_results(source: Path, target: Path, report: Report, dry_run: bool) -> None:
    try:
        theirs = results.load(source)
    except results.NotResults as error:
        report.skipped.append(str(error))
        return
    ours = None
    if _is_there(target, report, dry_run):
        try:
            ours = results.load(target)
        except results.NotResults as error:
            _put_aside(target, str(error), report, dry_run)
    if ours is None:
        joined, before = theirs, ""
    elif (ours.commit_hash, ours.env_name) != (theirs.commit_hash, theirs.env_name):
        report.skipped.append(
            f"{source}: of commit {theirs.commit_hash} in {theirs.env_name}, and {target} of {ours.commit_hash} in "
            f"{ours.env_name}"
        )
        return
    else:
        joined, before = ours, results.spelled(ours)
        report.conflicts += [f"{target}: {word}" for word in results.join(joined, theirs)]
    if results.spelled(joined) != before:
        report.files.append(target)
        if not dry_run:
            from hpml_plugins.asv.files import write_json_atomically

            write_json_atomically()
            joined.save(str(target.parent.parent))


def _merge_records(source: Path, target: Path, report: Report, dry_run: bool) -> None:
    def damaged(damage: Any) -> None:
        report.skipped.append(str(damage))

    theirs = lines.read_lines(source, damaged)
    foreign = {line for line, record in theirs.items() if record.machine != target.parent.parent.name}
    if foreign:
        report.skipped.append(f"{source}: {len(foreign)} records of another machine; stepped over")
    ours = lines.read_lines(target, damaged) if _is_there(target, report, dry_run) else {}
    joined = ours | {line: record for line, record in theirs.items() if line not in foreign}
    new = len(joined) - len(ours)
    if not new:
        return
    machine = target.parent.parent.name
    report.records[machine] = report.records.get(machine, 0) + new
    report.conflicts += [f"{target}: {word}" for word in lines.contradictions(joined.values())]
    report.files.append(target)
    if not dry_run:
        write_whole(target, lines.spell(joined))


def _is_link(path: Path, report: Report) -> bool:
    """Whether it is a symbolic link: it may point at anything of this machine, so it is named and left alone."""
    if path.is_symlink():
        report.skipped.append(f"{path}: a symbolic link; left alone")
    return path.is_symlink()


def _is_there(target: Path, report: Report, dry_run: bool) -> bool:
    """Whether there is a file to unite with; a link in its place is put aside, neither read nor written through."""
    if target.is_symlink():
        _put_aside(target, f"{target}: a symbolic link", report, dry_run)
        return False
    return target.exists()


def _put_aside(target: Path, problem: str, report: Report, dry_run: bool) -> None:
    aside = target.with_name(f"{target.name}.damaged")
    report.skipped.append(f"{problem}; put aside as {aside.name}")
    if not dry_run:
        target.replace(aside)


def _name_foreign(folder: Path, report: Report, ours: Callable[[Path], bool]) -> None:
    for path in sorted(folder.iterdir()):
        if not path.name.startswith(".") and not ours(path) and not path.name.endswith(".damaged"):
            report.skipped.append(f"{path}: not one of ours")
