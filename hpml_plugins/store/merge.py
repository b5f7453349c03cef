"""Merge results folders: the union of Records line by line, of declarations and of machines; then
regenerate asv's files.

The result does not depend on the order of merging, and merging twice changes nothing.
"""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpml_plugins.errors import HpmlError, UsageError
from hpml_plugins.model.formatting import counted, name_point
from hpml_plugins.model.record import Record
from hpml_plugins.model.rounds import RunKey, are_disputed, join_rounds, run_key
from hpml_plugins.model.serialization import decode
from hpml_plugins.store.asv_results import is_result_file, rows_without
from hpml_plugins.store.declarations import DECLARATIONS, join_entries
from hpml_plugins.store.files import (
    atomic_write,
    format_json,
    open_result,
    path_in,
    read_object,
    results_folder,
    walk_results,
)
from hpml_plugins.store.locks import Lock, lock_declarations, lock_machine
from hpml_plugins.store.projection import COLUMNS, MACHINE, measured_here, project
from hpml_plugins.store.records import (
    MAX_LINE,
    MAX_RECORDS,
    RECORDS,
    decode_file,
    misplaced,
)

#: The files of a results folder, and their depth.
_RESULTS = ((DECLARATIONS, 1), ("*.json", 2), (f"{RECORDS}/*.jsonl", 3))

#: The most changed points of each kind that are listed.
MOST_LISTED = 20


def find_results(folder: Path) -> Path:
    """The results folder to use: that of the project in the folder, or the folder itself. Raises
    UsageError for neither.

    A project takes precedence, because its published `html` has files of Records too.
    """
    own = results_folder(folder)
    inside = own.resolve().is_relative_to(folder.resolve())  # its name may come from others
    for found in (own, folder) if inside else (folder,):
        machines = any(found.glob(f"*/{MACHINE}")) or any(
            found.glob(f"*/{RECORDS}/*.jsonl")
        )
        if machines or (found / DECLARATIONS).is_file():
            return found
    raise UsageError(
        "no results here: neither benchmarks.json nor a machine's folder", str(folder)
    )


def merge_results(
    sources: Iterable[Path],
    into: Path,
    *,
    dry_run: bool = False,
    locked: Lock | None = None,
) -> Merge:
    """Write the union of all into one results folder; the others are only read.

    If a machine is currently measured in `into`, Locked is raised without waiting. Raises
    HpmlError, before anything is written, if a file to merge into may not be read. Damaged files
    and files that are not results are reported and left alone, and the merge continues.  locked: a
    machine whose lock the caller holds.
    """
    merge = Merge(into, dry_run)
    found: dict[Path, list[Path]] = {}
    for source in map(find_results, sources):
        if into.exists() and source.resolve() == into.resolve():
            continue
        for place in merge.find(source):
            found.setdefault(place, []).append(source / place)
    for place in found:
        _refuse_unreadable(path_in(into, *place.parts))
    for name, places in itertools.groupby(
        sorted(found, key=_order), lambda place: place.parts[0]
    ):
        held = locked if locked and locked.path.parent == path_in(into, name) else None
        with nullcontext(held) if dry_run or held else merge.lock(name) as lock:
            for place in places:
                if lock:
                    lock.check()
                merge.add(found[place], path_in(into, *place.parts))
    if not dry_run:
        merge.files += project(into, force=True, on_damage=merge.skipped.append)
    return merge


def _refuse_unreadable(target: Path) -> None:
    """Raise HpmlError for a file to merge into that this user may not read: it is not damaged."""
    if target.is_file() and not target.is_symlink() and not os.access(target, os.R_OK):
        raise HpmlError(
            "you may not read it; nothing was merged; fix its permissions", str(target)
        )


def _is_result(place: Path) -> bool:
    """Whether a file at this position in a results folder is part of the results."""
    depth = len(place.parts)
    return any(place.match(pattern) for pattern, at in _RESULTS if at == depth)


def _order(place: Path) -> tuple[str, bool, Path]:
    """Files by machine, Records first."""
    return (place.parts[0], place.suffix != ".jsonl", place)


@dataclass
class Merge:
    """The result of a merge. records: new ones, by machine.  files: written.  conflicts: how they
    were resolved.  skipped: left alone.

    retracted, changed: stored points that a retraction removes, or that another round of their run
    changes.  disputed: points for which two different Records of one round are stored.  All in
    words.
    """

    into: Path
    dry_run: bool
    records: dict[str, int] = field(default_factory=dict)
    files: list[Path] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    retracted: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    disputed: list[str] = field(default_factory=list)

    def find(self, source: Path) -> list[Path]:
        """The files of a results folder by machine, Records first; all others are reported and left
        alone."""
        found = []
        for place in sorted(walk_results(source, self.skipped.append), key=_order):
            path = source / place
            if place.suffix == ".damaged":
                continue
            if path.is_symlink():  # it may point to any file of this machine
                self.skipped.append(f"{path}: a symbolic link; ignored")
            elif _is_result(place):
                try:
                    path_in(self.into, *place.parts)
                except HpmlError as error:
                    self.skipped.append(f"{error}; ignored")
                else:
                    found.append(place)
            else:
                self.skipped.append(f"{path}: not a result; ignored")
        return found

    @property
    def consequences(self) -> str:
        """The effects on stored points, in words: `1 retraction, 2 points changed, 0 conflicts`.

        Empty if it only adds.
        """
        if not (self.retracted or self.changed or self.disputed):
            return ""
        retractions = counted(len(self.retracted), "retraction")
        points = counted(len(self.changed), "point")
        conflicts = counted(len(self.disputed), "conflict")
        return f"{retractions}, {points} changed, {conflicts}"

    def list_changes(self) -> Iterator[str]:
        """The stored points that are changed, one line each; of many of a kind, the first."""
        kinds = (
            ("retracted", self.retracted),
            ("changed", self.changed),
            ("conflict", self.disputed),
        )
        for kind, points in kinds:
            for point in points[:MOST_LISTED]:
                yield f"{kind}: {point}"
            if len(points) > MOST_LISTED:
                yield f"{kind}: {len(points) - MOST_LISTED} more"

    def describe(self) -> Iterator[str]:
        """One line each: the new Records of each machine, their effects on others, and how many
        files were written."""
        for machine, count in sorted(self.records.items()):
            yield f"{machine}  {counted(count, 'new record')}"
        if self.consequences:
            yield self.consequences
        files = counted(len(set(self.files)), "file")
        written = "would be written" if self.dry_run else "written"
        yield f"{files} {written} in {self.into}"

    def lock(self, name: str) -> Lock:
        if name == DECLARATIONS:
            return lock_declarations(self.into)
        return lock_machine(self.into, name)

    def add(self, sources: Sequence[Path], target: Path) -> None:
        """Merge files into one."""
        (self._records if target.suffix == ".jsonl" else self._json)(sources, target)

    def _json(self, sources: Sequence[Path], target: Path) -> None:
        ours: dict[str, Any] | None = None
        joined: dict[str, Any] = {}
        for source in sources:
            try:
                theirs = _read(source)
                if ours is None:  # an unreadable file in the way is renamed
                    joined = ours = self._read_target(target, _read)
                if target.name in (DECLARATIONS, MACHINE):
                    joined, decided = join_entries(joined, theirs)
                else:
                    measured = measured_here(target.parent, target.name)
                    joined = join_results(measured, joined, theirs)
                    decided = []
            except HpmlError as error:
                self.skipped.append(str(error) if error.where else f"{source}: {error}")
            else:
                self.conflicts += [f"{target}: {each}" for each in decided]
        if joined != (ours or {}):
            self.files.append(target)
            if not self.dry_run:
                compact = target.name not in (DECLARATIONS, MACHINE)  # as asv writes them
                atomic_write(target, format_json(joined, compact=compact))

    def _read_target(
        self, target: Path, read: Callable[[Path], dict[Any, Any]]
    ) -> dict[Any, Any]:
        """The file to merge into. If it cannot be read it is renamed: links are never written
        through."""
        try:
            return read(target) if os.path.lexists(target) else {}
        except HpmlError as error:
            aside = target.with_name(f"{target.name}.damaged")
            self.skipped.append(
                f"{str(error).removesuffix('; ignored')}; renamed to {aside.name}"
            )
            if not self.dry_run:
                target.replace(aside)
            return {}

    def _records(self, sources: Sequence[Path], target: Path) -> None:
        theirs: dict[bytes, Record] = {}
        for source in sources:
            theirs |= self._lines(source)
        ours = self._read_target(target, self._lines_of_target)
        joined = ours | theirs
        new = [record for line, record in joined.items() if line not in ours]
        if not new:
            return
        machine = target.parent.parent.name
        self.records[machine] = self.records.get(machine, 0) + len(new)
        self._compare(ours.values(), joined.values(), {run_key(record) for record in new})
        self.files.append(target)
        if not self.dry_run:
            ordered = sorted(joined, key=lambda line: (joined[line].started, line))
            atomic_write(target, b"".join([*ordered, *_other_lines(target, ours)]))

    def _compare(
        self, ours: Iterable[Record], joined: Iterable[Record], touched: Collection[RunKey]
    ) -> None:
        """Record the effects of new Records on stored points. touched: the points of new
        Records."""
        before = _touched(ours, touched)
        after = _touched(joined, touched)
        known = {run_key(record): record for record in join_rounds(before)}
        new_disputes = _disputed(after) - _disputed(before)
        for record in join_rounds(after):
            point = name_point(record.benchmark, record.params)
            about = f"{point} of {record.machine}, run {record.run[:8]}"
            key = run_key(record)
            mine = known.get(key)
            if key in new_disputes:
                self.disputed.append(about)
                self.conflicts.append(
                    f"{about}: two different Records of one round; neither counts, both are kept"
                )
            elif mine and mine.status != record.status == "retracted":
                self.retracted.append(f"{about}: {record.reason}")
            elif mine and mine != record:
                self.changed.append(about)

    def _lines(self, path: Path) -> dict[bytes, Record]:
        """The lines of a file that are Records; others, and Records of another file, are reported
        and left out."""
        found: dict[bytes, Record] = {}
        faults: Counter[str] = Counter()
        decoded = decode_file(path, lambda line: (line, decode(line)), self.skipped.append)
        for _, (line, record) in decoded:
            if fault := misplaced(path, record):
                faults[fault] += 1
            else:
                found[line] = record
        for fault, count in faults.items():
            self.skipped.append(f"{path}: {counted(count, 'Record')} {fault}; ignored")
        return found

    def _lines_of_target(self, path: Path) -> dict[bytes, Record]:
        # raises an error that `_lines` would report and continue from
        open_result(path, MAX_RECORDS).close()
        return self._lines(path)


def _touched(records: Iterable[Record], runs: Collection[RunKey]) -> list[Record]:
    """The Records of these runs of points, in the order of a merged file, so that rounds that were
    only reordered count as unchanged."""
    found = [record for record in records if run_key(record) in runs]
    return sorted(found, key=lambda record: (record.started, record.status == "retracted"))


def _disputed(records: Iterable[Record]) -> set[RunKey]:
    """The runs of points that have two different Records of one round."""
    first: dict[tuple[RunKey, float], Record] = {}
    found = set()
    for record in records:
        if record.status != "retracted":
            key = run_key(record)
            if are_disputed(first.setdefault((key, record.started), record), record):
                found.add(key)
    return found


def _other_lines(path: Path, records: Mapping[bytes, Record]) -> list[bytes]:
    """The other lines of a file of Records, damaged or refused. They are kept where they are."""
    if not os.path.lexists(path):
        return []
    with open_result(path, MAX_RECORDS) as file:
        lines = iter(lambda: file.readline(MAX_LINE), b"")
        found = [line for line in lines if line not in records and line.strip()]
    if found and not found[-1].endswith(b"\n"):
        found[-1] += b"\n"
    return found


def _read(path: Path) -> dict[str, Any]:
    """Read one of asv's files. Raises HpmlError if it has another format, or belongs to another
    machine than its folder."""
    found = read_object(path)
    if path.name != DECLARATIONS:
        if path.name != MACHINE and not is_result_file(found):
            raise HpmlError("not an asv result file", str(path))
        facts = found if path.name == MACHINE else found["params"]
        machine = facts.get("machine")
        if machine != path.parent.name:
            raise HpmlError(f"it is of machine {machine!r}", str(path))
    return found


def join_results(
    measured: set[str], ours: Mapping[str, Any], theirs: Mapping[str, Any]
) -> dict[str, Any]:
    """Join two result files of one machine, commit and environment: of each benchmark, the row that
    was started last.

    measured: benchmarks with Records, whose rows `project` writes; their rows in `ours` are
    unchanged.  Raises HpmlError for files of different commits or environments.
    """
    for key in ("commit_hash", "env_name", "result_columns"):
        if ours and ours[key] != theirs[key]:
            raise HpmlError(
                f"{key} is {theirs[key]!r}, but {ours[key]!r} in the file to join it with"
            )
    rows = dict(ours.get("results", {}))
    for name, row in rows_without(theirs["results"], measured).items():
        rows[name] = max(rows.get(name, row), row, key=_started)
    files = [each for each in (ours, theirs) if each]
    head = max(files, key=lambda each: json.dumps({**each, "results": {}}))
    return {**head, "results": dict(sorted(rows.items()))}


def _started(row: list[Any]) -> tuple[float, str]:
    started = dict(zip(COLUMNS, row, strict=False)).get("started_at")
    known = started if isinstance(started, int | float) else 0
    return known, json.dumps(row)
