"""Results of a plain asv project as Records.

This is the only code that reads asv's result files as data. Benchmarks of ours are left out: their result files are
written from Records and are never read back.
"""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from hpml_plugins.model.benchmark import Direction, Value
from hpml_plugins.model.record import MetricSamples, Record
from hpml_plugins.store.files import parse_json

#: The metric of an imported benchmark; asv's benchmarks have one number each.
METRIC = "value"
#: asv's names of units → ours. Others are kept.
_UNITS = {"seconds": "s", "bytes": "B", "unit": "1", "": "1"}
_REASONS = {
    "ok": "",
    "failed": "no details recorded; check the asv run log",
    "skipped": "not selected in any run",
}
#: Larger integers are no measurement, and no array holds them.
_LARGEST = 2**63


class _ResultFile(msgspec.Struct):
    """What is read of one of asv's result files (format 2)."""

    commit_hash: str
    params: dict[str, Any]
    result_columns: list[str]
    results: dict[str, list[Any]]
    env_name: str = ""


_DECODER = msgspec.json.Decoder(_ResultFile)


def is_ours(declaration: Mapping[str, Any]) -> bool:
    """Whether an entry of benchmarks.json is a metric of one of our benchmarks, whose values are in Records."""
    return "benchmark" in declaration and "metric" in declaration


def unit_of(declaration: Mapping[str, Any]) -> str:
    """The unit of an entry of benchmarks.json: ours, or asv's in our symbols."""
    return str(declaration.get("si_unit") or symbol_of(str(declaration.get("unit") or "")))


def symbol_of(asv_unit: str) -> str:
    """Our symbol of one of asv's units; the unit itself where we have none."""
    return _UNITS.get(asv_unit, asv_unit.partition(" (")[0])


def direction_of(declaration: Mapping[str, Any]) -> Direction | None:
    """Which direction is better; None where a benchmark that is not ours does not tell."""
    if "direction" in declaration:
        direction = declaration["direction"]
        return direction if direction in ("lower", "higher") else None
    is_cost = declaration.get("type") == "time" or declaration.get("unit") in ("seconds", "bytes")
    return "lower" if is_cost else None


def import_results(results: Path, benchmarks: Mapping[str, Mapping[str, Any]]) -> Iterator[Record]:
    """A Record for each point in asv's result files of the benchmarks that are not ours.

    benchmarks: asv's benchmarks.json. A file or a row that is not of asv's shape is passed over: asv names it when it
    reads the same folder. `MetricSamples.info` has asv's own 99 % interval, where it gave one.
    """
    foreign = {name: each for name, each in benchmarks.items() if not is_ours(each)}
    if not foreign:
        return
    for machine in sorted(results.glob("*/machine.json")):
        for path in sorted(machine.parent.glob("*.json")):
            file = None if path.name in ("machine.json", "benchmarks.json") else _read(path)
            if file and file.params.get("machine") == machine.parent.name:
                yield from _records(file, foreign)


def _read(path: Path) -> _ResultFile | None:
    try:
        content = path.read_bytes()
        try:
            return _DECODER.decode(content)
        except msgspec.ValidationError:
            return None
        except msgspec.DecodeError:  # most often NaN, which asv writes and JSON does not have
            return msgspec.convert(parse_json(content), _ResultFile)
    except (OSError, ValueError, RecursionError):  # msgspec's errors are ValueErrors
        return None


def _records(file: _ResultFile, foreign: Mapping[str, Mapping[str, Any]]) -> Iterator[Record]:
    for name, declaration in foreign.items():
        row = dict(zip(file.result_columns, file.results.get(name) or (), strict=False))
        if not row:
            continue
        try:
            found = list(_points(name, declaration, row, file))
        except (TypeError, ValueError, IndexError, OverflowError, KeyError):
            continue  # not of the shape that asv writes
        yield from found


def _points(name: str, declaration: Mapping[str, Any], row: Mapping[str, Any], file: _ResultFile) -> Iterator[Record]:
    values = row["result"]
    grid = row.get("params") or []
    names = [str(each) for each in declaration.get("param_names") or []]
    if values is None:  # the whole benchmark failed
        grid = grid or declaration.get("params") or []
        values = [None] * math.prod(map(len, grid))
    if len(values) != math.prod(map(len, grid)) or len(names) != len(grid):
        return
    version = row.get("version")
    unit, direction = unit_of(declaration), direction_of(declaration)
    lows, highs = (row.get(f"stats_ci_99_{end}") or [None] * len(values) for end in "ab")
    for point, value, low, high in zip(itertools.product(*grid), values, lows, highs, strict=True):
        status = "failed" if value is None else "ok" if is_measurement(value) else "skipped"
        bounded = is_measurement(low) and is_measurement(high)
        info = {"asv_low": float(low), "asv_high": float(high)} if bounded else {}
        measured = {METRIC: MetricSamples(unit, direction, [float(value)], info)} if status == "ok" else {}  # type: ignore[arg-type]
        yield Record(
            benchmark=name,
            plugin="",
            version=str(declaration.get("version") if version is None else version),
            params={key: value_of(str(text)) for key, text in zip(names, point, strict=True)},
            status=status,  # type: ignore[arg-type]
            reason=_REASONS[status],
            metrics=measured,
            started=float(row.get("started_at") or 0) / 1000,
            machine=str(file.params["machine"]),
            commit=file.commit_hash,
            environment=file.env_name,
        )


def is_measurement(value: Any) -> bool:
    """Whether asv's number is one: finite, and of a size that an array holds."""
    if not isinstance(value, int | float):
        if value is None:
            return False
        raise TypeError("not a number")
    return math.isfinite(value) and abs(value) < _LARGEST if isinstance(value, int) else math.isfinite(value)


def value_of(text: str) -> Value:
    """The value of a parameter that asv spells as Python's repr; what is no plain value stays text."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text
    return value if isinstance(value, str | int | float | bool) and repr(value) == text else text
