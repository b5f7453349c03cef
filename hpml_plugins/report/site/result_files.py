"""asv's result files as pages need them: each point's number, its interval and when it was measured."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from hpml_plugins.report.site.gpu_type import GpuType, gpu_type
from hpml_plugins.store.files import parse_json

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
class Measured:
    """What one file says, all benchmarks' points after one another. numbers: values, low, high, started × point.

    low, high: asv's 99 % interval of the median.  started: when it was run, ms since 1970.  status: see OK.  date: of
    the commit, ms since 1970.
    """

    place: Place
    commit: str
    date: float
    numbers: np.ndarray
    status: np.ndarray

    def merged(self, other: Measured) -> Measured:
        """Both; where both have a point, what was run last. A point that was left out hides nothing."""
        import numpy as np

        newer = (other.status >= FAILED) & ((self.status < FAILED) | (other.numbers[3] >= self.numbers[3]))
        newer |= self.status == NOTHING
        numbers = np.where(newer, other.numbers, self.numbers)
        return Measured(self.place, self.commit, self.date, numbers, np.where(newer, other.status, self.status))


def measured(results: Path, layout: Layout) -> Iterator[Measured]:
    """Every result file below asv's folder that can be read; those beside a machine.json, as asv has it."""
    for path in result_paths(results):
        found = read(path, layout)
        if found and found.place.machine == path.parent.name:
            yield found


def result_paths(results: Path) -> Iterator[Path]:
    """What should be result files, machine by machine."""
    for machine in sorted(results.glob("*/machine.json")):
        for path in sorted(machine.parent.glob("*.json")):
            if path.name not in ("machine.json", "benchmarks.json"):
                yield path


def read(path: Path, layout: Layout) -> Measured | None:
    """A result file; None where it is none."""
    file = _read(path)
    if file is None:
        return None
    place = Place(gpu_type(file.params), str(file.params.get("machine") or ""))
    try:
        return Measured(place, file.commit_hash, float(file.date or 0), *layout.numbers(file))
    except (TypeError, ValueError, OverflowError, IndexError):  # a row that asv does not write, and names
        return None


def _read(path: Path) -> ResultFile | None:
    try:
        content = path.read_bytes()
        try:
            return _DECODER.decode(content)
        except msgspec.ValidationError:
            return None
        except msgspec.DecodeError:  # most often NaN, which asv writes and JSON does not have
            return msgspec.convert(parse_json(content), ResultFile)
    except (OSError, ValueError, RecursionError):  # msgspec's errors are ValueErrors
        return None


_DECODER = msgspec.json.Decoder(ResultFile)


class Layout:
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

    def numbers(self, file: ResultFile) -> tuple[np.ndarray, np.ndarray]:
        """The numbers and status of a file in this layout: see Measured."""
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
        return np.stack([numbers, np.array(lows, dtype=float), np.array(highs, dtype=float), started]), status

    def _moved(
        self, name: str, params: list[list[str]], status: np.ndarray, *columns: list[Any] | None
    ) -> Iterator[list[Any] | None]:
        """Columns of another grid in this one; points that it did not have are NOTHING in `status`."""
        wanted = list(_places(params, itertools.product(*self.params[name])))
        status[[place for place, old in enumerate(wanted) if old is None]] = NOTHING
        count = math.prod(map(len, params))
        for column in columns:
            whole = column is not None and len(column) == count
            yield [None if old is None else column[old] for old in wanted] if column and whole else None


def _places(params: list[list[str]], points: Iterable[tuple[str, ...]]) -> Iterator[int | None]:
    """Where each point stands in the grid of these parameters; None where it is none of its points.

    The grid is not written out: a file decides how large it is. Values are texts; what is none is no point's value.
    """
    place_in = [{str(value): place for place, value in enumerate(values)} for values in params]
    for point in points:
        found = [of_one.get(value) for of_one, value in zip(place_in, point, strict=False)]
        if len(point) != len(params) or None in found:
            yield None
            continue
        whole = 0
        for of_one, place in zip(params, found, strict=True):
            whole = whole * len(of_one) + (place or 0)
        yield whole


_COLUMNS = ("result", "params", "version", "started_at", "stats_ci_99_a", "stats_ci_99_b")
