"""Merging results folders: the union of Records line by line, of declarations, of machines; then asv's files again.

The result does not depend on the order of merging, and merging twice changes nothing.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpml_plugins.errors import HpmlError, UsageError
from hpml_plugins.model.formatting import counted
from hpml_plugins.model.record import Record, decode
from hpml_plugins.store.asv_results import is_result_file
from hpml_plugins.store.declarations import DECLARATIONS, join_entries
from hpml_plugins.store.files import atomic_write, open_result, read_object
from hpml_plugins.store.locks import Lock, lock_declarations, lock_machine
from hpml_plugins.store.projection import COLUMNS, MACHINE, measured_here, project
from hpml_plugins.store.records import MAX_RECORDS, RECORDS, decode_file

#: The files of a results folder, and how deep they lie.
_RESULTS = ((DECLARATIONS, 1), ("*.json", 2), (f"{RECORDS}/*.jsonl", 3))


def find_results(folder: Path) -> Path:
    """The results folder that is meant: `results` in the folder, or the folder itself. Raises UsageError for neither.

    A project comes first: its published `html` has files of Records too.
    """
    for found in (folder / "results", folder):
        machines = any(found.glob(f"*/{MACHINE}")) or any(found.glob(f"*/{RECORDS}/*.jsonl"))
        if machines or (found / DECLARATIONS).is_file():
            return found
    raise UsageError("no results here: neither benchmarks.json nor a machine's folder", str(folder))


def merge_results(sources: Iterable[Path], into: Path, *, dry_run: bool = False, locked: Lock | None = None) -> Merge:
    """Put the union of all into one results folder; the others are only read.

    A machine that is being measured in `into` is not waited for: Locked says so. A file that is damaged or not
    a result is named and left alone, and the rest goes on.  locked: of a machine, which the caller holds.
    """
    merge = Merge(into, dry_run)
    for source in map(find_results, sources):
        if into.exists() and source.resolve() == into.resolve():
            continue
        for name, places in itertools.groupby(merge.find(source), lambda place: place.parts[0]):
            held = locked if locked and locked.path.parent == into / name else None
            with nullcontext(held) if dry_run or held else merge.lock(name) as lock:
                for place in places:
                    if lock:
                        lock.check()
                    merge.add(source / place, into / place)
    if not dry_run:
        merge.files += project(into, force=True)
    return merge


@dataclass
class Merge:
    """A merge. records: new ones, by machine.  files: written.  conflicts: what was decided.  skipped: left alone."""

    into: Path
    dry_run: bool
    records: dict[str, int] = field(default_factory=dict)
    files: list[Path] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def find(self, source: Path) -> list[Path]:
        """The files of a results folder by machine, Records first; everything else is named and left alone."""
        found = []
        places = [path.relative_to(source) for path in source.rglob("*")]
        for place in sorted(places, key=lambda place: (place.parts[0], place.suffix != ".jsonl", place)):
            if any(part.startswith(".") for part in place.parts) or place.suffix == ".damaged":
                continue
            if (source / place).is_symlink():  # it may point at anything of this machine
                self.skipped.append(f"{source / place}: a symbolic link; ignored")
            elif any(place.match(pattern) and len(place.parts) == depth for pattern, depth in _RESULTS):
                found.append(place)
            elif not (source / place).is_dir():
                self.skipped.append(f"{source / place}: not a result; ignored")
        return found

    def describe(self) -> Iterator[str]:
        """New Records of each machine, and how many files were written, a line each."""
        yield from (f"{machine}  {counted(count, 'new record')}" for machine, count in sorted(self.records.items()))
        files = counted(len(dict.fromkeys(self.files)), "file")
        yield f"{files} {'would be ' * self.dry_run}written in {self.into}"

    def lock(self, name: str) -> Lock:
        return lock_declarations(self.into) if name == DECLARATIONS else lock_machine(self.into, name)

    def add(self, source: Path, target: Path) -> None:
        """Unite two files."""
        (self._records if source.suffix == ".jsonl" else self._json)(source, target)

    def _json(self, source: Path, target: Path) -> None:
        try:
            theirs, ours = _read(source), self._read_target(target, _read)
            if target.name in (DECLARATIONS, MACHINE):
                joined, decided = join_entries(ours, theirs)
            else:
                joined, decided = join_results(measured_here(target.parent, target.name), ours, theirs), []
        except HpmlError as error:
            self.skipped.append(str(error) if error.where else f"{source}: {error}")
            return
        self.conflicts += [f"{target}: {each}" for each in decided]
        if joined != ours:
            self.files.append(target)
            if not self.dry_run:
                compact = target.name not in (DECLARATIONS, MACHINE)  # as asv writes them
                text = json.dumps(joined) if compact else json.dumps(joined, indent=4, sort_keys=True)
                atomic_write(target, text.encode())

    def _read_target(self, target: Path, read: Callable[[Path], dict[Any, Any]]) -> dict[Any, Any]:
        """The file to unite with. What cannot be read is put aside: a link is not written through."""
        try:
            return read(target) if os.path.lexists(target) else {}
        except HpmlError as error:
            aside = target.with_name(f"{target.name}.damaged")
            self.skipped.append(f"{str(error).removesuffix('; ignored')}; renamed to {aside.name}")
            if not self.dry_run:
                target.replace(aside)
            return {}

    def _records(self, source: Path, target: Path) -> None:
        machine = target.parent.parent.name
        theirs = self._lines(source)
        foreign = {line for line, record in theirs.items() if record.machine != machine}
        if foreign:
            self.skipped.append(f"{source}: {len(foreign)} Records of another machine; ignored")
        ours = self._read_target(target, self._lines_of_target)
        joined = ours | {line: record for line, record in theirs.items() if line not in foreign}
        new = len(joined) - len(ours)
        if not new:
            return
        self.records[machine] = self.records.get(machine, 0) + new
        self.conflicts += [f"{target}: {each}" for each in _contradictions(joined.values())]
        self.files.append(target)
        if not self.dry_run:
            ordered = sorted(joined, key=lambda line: (joined[line].started, line))
            atomic_write(target, b"".join(ordered))

    def _lines(self, path: Path) -> dict[bytes, Record]:
        """The complete lines of a file of Records; what is none is reported and left out."""
        return dict(found for _, found in decode_file(path, lambda line: (line, decode(line)), self.skipped.append))

    def _lines_of_target(self, path: Path) -> dict[bytes, Record]:
        open_result(path, MAX_RECORDS).close()  # raises where `_lines` would report and go on
        return self._lines(path)


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


def join_results(measured: set[str], ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
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
    return {**head, "results": dict(sorted(rows.items()))}


def _started(row: list[Any]) -> tuple[float, str]:
    at = COLUMNS.index("started_at")
    return row[at] if len(row) > at and isinstance(row[at], int | float) else 0, json.dumps(row)


def _contradictions(records: Iterable[Record]) -> list[str]:
    """Rounds with two different Records: one of the two was edited. A retraction contradicts nothing."""
    first: dict[tuple[str | float, ...], Record] = {}
    found = []
    for record in records:
        key = (record.run, record.commit, record.environment, record.machine, record.point, record.started)
        if record.run and record.status != "retracted" and first.setdefault(key, record) != record:
            found.append(
                f"run {record.run[:8]} has two Records of {record.benchmark} {dict(record.params)}; both are kept"
            )
    return found
