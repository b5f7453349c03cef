"""Merging results folders: the union of Records line by line, of declarations, of machines; then asv's files again.

The result does not depend on the order of merging, and merging twice changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from hpml_plugins.errors import HpmlError, UsageError
from hpml_plugins.model.record import Record, decode
from hpml_plugins.store.asv_results import is_result_file
from hpml_plugins.store.declarations import DECLARATIONS, join_entries
from hpml_plugins.store.files import atomic_write, read_object, remove_partial_files
from hpml_plugins.store.locks import lock_declarations, lock_machine
from hpml_plugins.store.projection import COLUMNS, MACHINE, measured_here, project
from hpml_plugins.store.records import RECORDS, decode_file

Join = Callable[[dict[str, Any], dict[str, Any]], tuple[dict[str, Any], list[str]]]


@dataclass
class MergeReport:
    """What a merge did. records: new ones, by machine.  files: written.  conflicts: decided.  skipped: left alone."""

    records: dict[str, int] = field(default_factory=dict)
    files: list[Path] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


def find_results(folder: Path) -> Path:
    """The results folder that is meant: the folder itself, or `results` in it. Raises UsageError for neither."""
    for found in (folder, folder / "results"):
        machines = any(found.glob(f"*/{MACHINE}")) or any(found.glob(f"*/{RECORDS}/*.jsonl"))
        if machines or (found / DECLARATIONS).is_file():
            return found
    raise UsageError("no results here: neither benchmarks.json nor a machine's folder", str(folder))


def merge_results(sources: Iterable[Path], into: Path, *, dry_run: bool = False, locked: str = "") -> MergeReport:
    """Put the union of all into one results folder; the others are only read.

    A machine that is being measured in `into` is not waited for: MachineLocked says so. A file that is damaged or not
    a result is named and left alone, and the rest goes on.  locked: a machine whose lock the caller holds.
    """
    merge = _Merge(into, dry_run, MergeReport())
    for source in map(find_results, sources):
        if into.exists() and source.resolve() == into.resolve():
            continue
        merge.declarations(source)
        for folder in sorted(path for path in source.iterdir() if path.is_dir() and not path.name.startswith(".")):
            if not merge.is_link(folder):
                merge.machine(folder, locked=folder.name == locked)
        merge.name_others(source, lambda path: path.is_dir() or path.name == DECLARATIONS)
    if not dry_run:
        merge.report.files += project(into, force=True)
    return merge.report


@dataclass
class _Merge:
    """One merge under way."""

    into: Path
    dry_run: bool
    report: MergeReport

    def declarations(self, source: Path) -> None:
        if not (source / DECLARATIONS).exists() or self.is_link(source / DECLARATIONS):
            return
        with nullcontext() if self.dry_run else lock_declarations(self.into):
            if not self.dry_run:
                remove_partial_files(self.into, DECLARATIONS)
            self._json(source / DECLARATIONS, self.into / DECLARATIONS, join_entries)

    def machine(self, folder: Path, *, locked: bool) -> None:
        found = [path for path in (*folder.glob("*.json"), *(folder / RECORDS).glob("*.jsonl")) if path.is_file()]
        if not found:
            self.report.skipped.append(f"{folder}: not a machine's folder")
            return
        with nullcontext() if self.dry_run or locked else lock_machine(self.into, folder.name):
            self._files_of_machine(folder)
        self.name_others(folder, lambda path: path.suffix == ".json" or path.name == RECORDS)
        if (folder / RECORDS).is_dir():
            self.name_others(folder / RECORDS, lambda path: path.suffix == ".jsonl")

    def _files_of_machine(self, folder: Path) -> None:
        target = self.into / folder.name
        if (folder / RECORDS).is_dir() and not self.is_link(folder / RECORDS):
            for path in sorted((folder / RECORDS).glob("*.jsonl")):
                if not self.is_link(path):
                    self._records(path, target / RECORDS / path.name)
        for path in sorted(folder.glob("*.json"), key=lambda path: (path.name != MACHINE, path.name)):
            if not self.is_link(path):
                join = join_entries if path.name == MACHINE else partial(join_results, measured_here(target, path.name))
                self._json(path, target / path.name, join)

    def _json(self, source: Path, target: Path, join: Join) -> None:
        try:
            theirs = _read(source)
            ours = self._read_target(target) if self._exists(target) else {}
            joined, decided = join(ours, theirs)
        except HpmlError as error:
            self.report.skipped.append(str(error) if error.where else f"{source}: {error}")
            return
        self.report.conflicts += [f"{target}: {each}" for each in decided]
        if joined != ours:
            self.report.files.append(target)
            if not self.dry_run:
                compact = target.name not in (DECLARATIONS, MACHINE)  # as asv writes them
                text = json.dumps(joined) if compact else json.dumps(joined, indent=4, sort_keys=True)
                atomic_write(target, text.encode())

    def _read_target(self, target: Path) -> dict[str, Any]:
        try:
            return _read(target)
        except HpmlError as error:
            self._put_aside(target, str(error))
            return {}

    def _records(self, source: Path, target: Path) -> None:
        machine = target.parent.parent.name
        theirs = self._lines(source)
        foreign = {line for line, record in theirs.items() if record.machine != machine}
        if foreign:
            self.report.skipped.append(f"{source}: {len(foreign)} Records of another machine; ignored")
        ours = self._lines(target) if self._exists(target) else {}
        joined = ours | {line: record for line, record in theirs.items() if line not in foreign}
        new = len(joined) - len(ours)
        if not new:
            return
        self.report.records[machine] = self.report.records.get(machine, 0) + new
        self.report.conflicts += [f"{target}: {each}" for each in _contradictions(joined.values())]
        self.report.files.append(target)
        if not self.dry_run:
            ordered = sorted(joined, key=lambda line: (joined[line].started, line))
            atomic_write(target, b"".join(ordered))

    def _lines(self, path: Path) -> dict[bytes, Record]:
        """The complete lines of a file of Records; what is none is reported and left out."""

        def damaged(damage: object) -> None:
            self.report.skipped.append(str(damage))

        return dict(decode_file(path, lambda line: (line, decode(line)), damaged))

    def is_link(self, path: Path) -> bool:
        """Whether it is a symbolic link: it may point at anything of this machine, so it is named and left alone."""
        if path.is_symlink():
            self.report.skipped.append(f"{path}: a symbolic link; ignored")
        return path.is_symlink()

    def _exists(self, target: Path) -> bool:
        """Whether there is a file to unite with; a link in its place is put aside, neither read nor written through."""
        if target.is_symlink():
            self._put_aside(target, f"{target}: a symbolic link")
            return False
        return target.exists()

    def _put_aside(self, target: Path, problem: str) -> None:
        aside = target.with_name(f"{target.name}.damaged")
        self.report.skipped.append(f"{problem}; renamed to {aside.name}")
        if not self.dry_run:
            target.replace(aside)

    def name_others(self, folder: Path, expected: Callable[[Path], bool]) -> None:
        """Report files that no results folder has."""
        for path in sorted(folder.iterdir()):
            if not path.name.startswith(".") and not expected(path) and not path.name.endswith(".damaged"):
                self.report.skipped.append(f"{path}: not a result; ignored")


def _read(path: Path) -> dict[str, Any]:
    """One of asv's files. Raises HpmlError for what is not of its shape, or of another machine than its folder."""
    found = read_object(path)
    if path.name != DECLARATIONS:
        if path.name != MACHINE and not is_result_file(found):
            raise HpmlError("not an asv result file", str(path))
        machine = (found if path.name == MACHINE else found["params"]).get("machine")
        if machine != path.parent.name:
            raise HpmlError(f"it is of machine {machine!r}", str(path))
    return found


def join_results(
    measured: set[str], ours: Mapping[str, Any], theirs: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Two result files of one machine, commit and environment: of each benchmark the row that was started last.

    measured: benchmarks with Records, whose rows `project` writes; ours stay as they are.  Raises HpmlError for files
    of different commits or environments.
    """
    for key in ("commit_hash", "env_name", "result_columns"):
        if ours and ours[key] != theirs[key]:
            raise HpmlError(f"{key} is {theirs[key]!r}, but {ours[key]!r} in the file to join it with")
    rows = dict(ours.get("results", {}))
    for name, row in theirs["results"].items():
        if name.partition(".track_")[0] not in measured:
            rows[name] = max(rows.get(name, row), row, key=_started)
    head = max((each for each in (ours, theirs) if each), key=lambda each: json.dumps({**each, "results": {}}))
    return {**head, "results": dict(sorted(rows.items()))}, []


def _started(row: list[Any]) -> tuple[float, str]:
    at = COLUMNS.index("started_at")
    return row[at] if len(row) > at and isinstance(row[at], int | float) else 0, json.dumps(row)


def _contradictions(records: Iterable[Record]) -> list[str]:
    """Points with two different Records of one run. A run measures a point once, so one of the two was edited."""
    first: dict[tuple[str, ...], Record] = {}
    found = []
    for record in records:
        key = (record.run, record.commit, record.environment, record.machine, record.point)
        if record.run and first.setdefault(key, record) != record:
            found.append(
                f"run {record.run[:8]} has two Records of {record.benchmark} {dict(record.params)}; both are kept"
            )
    return found
