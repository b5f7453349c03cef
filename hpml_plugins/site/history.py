"""All numbers of asv's results, as arrays: one reading of the folder serves every page of ours.

asv's own `Results` makes a dictionary of statistics for each number. A million of them take half a minute; pages need
the number, its interval and when it was measured.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from hpml_plugins.site.gpu_type import GpuType, gpu_type

if TYPE_CHECKING:
    import numpy as np

Benchmarks = Mapping[str, Mapping[str, Any]]

#: What one point of one commit came to. NOTHING: no result at all. LEFT_OUT: asv's NaN, the point was not chosen or
#: was skipped.
NOTHING, LEFT_OUT, FAILED, OK = range(4)


class ResultFile(msgspec.Struct):
    """What pages read of one of asv's result files (format 2). date: of the commit, ms since 1970."""

    commit_hash: str
    params: dict[str, Any]
    result_columns: list[str]
    results: dict[str, list[Any]]
    date: float | None = None


@dataclass(frozen=True, order=True)
class Place:
    """Where lines of the history were measured: one machine as one GPU type."""

    gpu_type: GpuType
    machine: str


@dataclass
class Lines:
    """One benchmark's numbers. values, low, high, status, started: place × commit × point.

    low, high: asv's 99 % interval of the median, NaN or infinite where it has none.  status: see OK.  started: when it
    was run, ms since 1970.
    """

    values: np.ndarray
    low: np.ndarray
    high: np.ndarray
    status: np.ndarray
    started: np.ndarray


@dataclass
class History:
    """Everything that was measured. commits: oldest first.  dates: of the commits, ms since 1970."""

    places: list[Place] = field(default_factory=list)
    commits: list[str] = field(default_factory=list)
    dates: list[float] = field(default_factory=list)
    revisions: list[int] = field(default_factory=list)
    lines: dict[str, Lines] = field(default_factory=dict)

    def gpu_types(self) -> list[GpuType]:
        """The GPU types, in the order of columns."""
        return sorted({place.gpu_type for place in self.places})


def read_history(results: Path, benchmarks: Benchmarks, revisions: Mapping[str, int]) -> History:
    """The history of the commits in `revisions` (commit → its place in history).

    A file that is no result of asv's is passed over: asv names it when it reads the same folder. A result of another
    version of a benchmark, or of one that no longer exists, does not count.
    """
    import gc

    # Millions of numbers that are all alive: the collector would look at them again and again and find nothing.
    was_on = gc.isenabled()
    gc.disable()
    try:
        return gather((each for each in read_files(results) if each.commit_hash in revisions), benchmarks, revisions)
    finally:
        if was_on:
            gc.enable()


def gather(files: Iterable[ResultFile], benchmarks: Benchmarks, revisions: Mapping[str, int]) -> History:
    """The history in these files, whose commits are all in `revisions`."""
    import numpy as np

    layout = _Layout(benchmarks)
    found: dict[tuple[Place, str], _Numbers] = {}
    dates = {}
    for each in files:
        key = place_of(each), each.commit_hash
        numbers = layout.numbers(each)
        found[key] = found[key].merged(numbers) if key in found else numbers
        dates[each.commit_hash] = float(each.date or 0)
    places = sorted({place for place, _ in found})
    commits = sorted(dates, key=lambda commit: revisions[commit])
    row_of = {place: number for number, place in enumerate(places)}
    column_of = {commit: number for number, commit in enumerate(commits)}
    shape = len(places), len(commits), layout.size
    values, low, high, started = (np.full(shape, np.nan) for _ in range(4))
    status = np.zeros(shape, np.uint8)
    for (place, commit), numbers in found.items():
        at = row_of[place], column_of[commit]
        values[at], low[at], high[at] = numbers.values, numbers.low, numbers.high
        status[at], started[at] = numbers.status, numbers.started
    lines = {
        name: Lines(values[..., part], low[..., part], high[..., part], status[..., part], started[..., part])
        for name, part in layout.parts.items()
        if status[..., part].any()
    }
    return History(places, commits, [dates[each] for each in commits], [revisions[each] for each in commits], lines)


def place_of(file: ResultFile) -> Place:
    """The machine and GPU type that a file says it is from."""
    return Place(gpu_type(file.params), str(file.params.get("machine") or ""))


def read_files(results: Path) -> Iterator[ResultFile]:
    """Every result file below asv's folder that can be read; those beside a machine.json, as asv has it."""
    for machine in sorted(results.glob("*/machine.json")):
        for path in sorted(machine.parent.glob("*.json")):
            found = None if path.name in ("machine.json", "benchmarks.json") else _read(path)
            if found and found.params.get("machine") == machine.parent.name:
                yield found


def _read(path: Path) -> ResultFile | None:
    try:
        content = path.read_bytes()
        try:
            return _DECODER.decode(content)
        except msgspec.ValidationError:
            return None
        except msgspec.DecodeError:  # most often NaN, which asv writes and JSON does not have
            return msgspec.convert(json.loads(content), ResultFile)
    except (OSError, ValueError, RecursionError):  # msgspec's errors are ValueErrors
        return None


_DECODER = msgspec.json.Decoder(ResultFile)


@dataclass
class _Numbers:
    """What one file says, all benchmarks' points after one another."""

    values: np.ndarray
    low: np.ndarray
    high: np.ndarray
    status: np.ndarray
    started: np.ndarray

    def merged(self, other: _Numbers) -> _Numbers:
        """Both; where both have a point, what was run last. A point that was left out hides nothing."""
        import numpy as np

        newer = (other.status >= FAILED) & ((self.status < FAILED) | (other.started >= self.started))
        newer |= self.status == NOTHING
        names = ("values", "low", "high", "status", "started")
        return _Numbers(*(np.where(newer, getattr(other, name), getattr(self, name)) for name in names))


class _Layout:
    """Where each benchmark's points stand in one long row of all points."""

    def __init__(self, benchmarks: Benchmarks) -> None:
        self.params = {name: each.get("params") or [] for name, each in benchmarks.items()}
        self.versions = {name: each.get("version") for name, each in benchmarks.items()}
        self.parts: dict[str, slice] = {}
        self.size = 0
        for name, params in self.params.items():
            count = math.prod(len(each) for each in params)
            self.parts[name] = slice(self.size, self.size + count)
            self.size += count

    def numbers(self, file: ResultFile) -> _Numbers:
        """The numbers of a file in this layout."""
        import numpy as np

        values: list[Any] = []
        lows: list[Any] = []
        highs: list[Any] = []
        columns = {name: place for place, name in enumerate(file.result_columns)}
        at = [columns.get(name, sys.maxsize) for name in _COLUMNS]
        started = np.zeros(self.size)
        status = np.full(self.size, OK, np.uint8)
        for name, part in self.parts.items():
            row = file.results.get(name)
            count = part.stop - part.start
            value, params, version, start, low, high = (
                (row[place] if place < len(row) else None for place in at) if row else (None,) * len(at)
            )
            if row is None or (version is not None and version != self.versions[name]):
                status[part] = NOTHING
                value = low = high = None
            elif value is None:
                status[part] = FAILED
            elif (params or []) != self.params[name]:
                value, low, high = self._moved(name, params or [], status[part], value, low, high)
            if value is not None and len(value) == count and None in value:
                gone = status[part]
                gone[[place for place, each in enumerate(value) if each is None and gone[place] == OK]] = FAILED
            started[part] = start or 0
            for target, found in ((values, value), (lows, low), (highs, high)):
                target += found if found is not None and len(found) == count else [None] * count
        numbers = np.array(values, dtype=float)  # None becomes NaN
        numbers[~np.isfinite(numbers)] = np.nan  # an infinite number is no measurement
        status[np.isnan(numbers) & (status == OK)] = LEFT_OUT
        return _Numbers(numbers, np.array(lows, dtype=float), np.array(highs, dtype=float), status, started)

    def _moved(
        self, name: str, params: list[list[str]], status: np.ndarray, *columns: list[Any] | None
    ) -> Iterator[list[Any] | None]:
        """Columns of another grid in this one; points that it did not have are NOTHING in `status`."""
        place_of_point = {point: place for place, point in enumerate(itertools.product(*params))}
        wanted = [place_of_point.get(point) for point in itertools.product(*self.params[name])]
        status[[place for place, old in enumerate(wanted) if old is None]] = NOTHING
        for column in columns:
            whole = column is not None and len(column) == len(place_of_point)
            yield [None if old is None else column[old] for old in wanted] if column and whole else None


_COLUMNS = ("result", "params", "version", "started_at", "stats_ci_99_a", "stats_ci_99_b")
