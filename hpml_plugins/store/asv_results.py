"""Results of a plain asv project as Records.

This is the only code that reads asv's result files as data. Benchmarks of ours are left out: their
result files are written from Records and are never read back.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from hpml_plugins.errors import HpmlError
from hpml_plugins.model.checking import LARGEST
from hpml_plugins.model.record import MetricSamples, Record, Status
from hpml_plugins.store.declarations import (
    DECLARATIONS,
    Declaration,
    read_declarations,
    value_of,
)
from hpml_plugins.store.files import machine_folders, read_object, read_object_or_empty

#: Parameter → its value, as Python's repr.
Texts = dict[str, str]
#: The metric of an imported benchmark; asv's benchmarks have one number each.
METRIC = "value"
_REASONS = {
    "ok": "",
    "failed": "no details recorded; check the asv run log",
    "skipped": "not selected in any run",
}
#: Larger integers are no measurement, and no array holds them.
_LARGEST = 2**63


class _ResultFile(msgspec.Struct):
    """What is read of one of asv's result files (format 2). results: asv's name of a benchmark →
    its columns."""

    commit_hash: str
    env_name: str
    params: dict[str, Any]
    result_columns: list[str]
    results: dict[str, list[Any]]

    def __post_init__(self) -> None:
        for row in self.results.values():
            values = self.row(row).get("result")
            numbers = isinstance(values, list) and {*map(type, values)} <= {
                float,
                int,
                bool,
                type(None),
            }
            # asv takes means of them: text would end `asv publish`
            if values is not None and not numbers:
                raise ValueError("a result is no number")

    def row(self, columns: Sequence[Any]) -> dict[str, Any]:
        """A row by the names of its columns."""
        return dict(zip(self.result_columns, columns, strict=False))


def is_result_file(found: Any) -> bool:
    """Whether it is the JSON of one of asv's result files."""
    try:
        msgspec.convert(found, _ResultFile)
    except msgspec.ValidationError:
        return False
    return True


def bounded_rows(found: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The rows of a result file, with NaN for numbers beyond LARGEST: over an infinity, or a sum
    that is one, asv's search for steps does not end."""
    columns = found["result_columns"]
    at = columns.index("result") if "result" in columns else len(columns)
    rows = dict(found["results"])
    for name, row in rows.items():
        values = (row[at] if len(row) > at else None) or []
        if any(map(_is_beyond, values)):
            kept = [math.nan if _is_beyond(value) else value for value in values]
            rows[name] = [*row[:at], kept, *row[at + 1 :]]
    return rows


def _is_beyond(value: float | None) -> bool:
    return value is not None and abs(value) > LARGEST


def rows_without(rows: Mapping[str, Any], ours: Container[str]) -> dict[str, Any]:
    """The rows but for those of these benchmarks of ours. rows: by asv's names of metrics."""
    return {
        name: row for name, row in rows.items() if name.partition(".track_")[0] not in ours
    }


def import_results(
    results: Path, benchmarks: Mapping[str, Declaration]
) -> Iterator[tuple[Record, Texts]]:
    """A Record for each point in asv's result files of the benchmarks that are not ours, with the
    point as asv writes it: only that tells None from the text "None".

    benchmarks: by asv's names. A file or a row that is not of asv's shape is passed over:
    asv names it when it reads the same folder. `MetricSamples.interval` is asv's own, of 99 %,
    where it gave one. The samples are asv's, where it recorded them; else its value is the one.
    """
    foreign = {name: each for name, each in benchmarks.items() if not each.is_ours}
    if not foreign:
        return
    for machine in (
        folder for folder in machine_folders(results) if (folder / "machine.json").is_file()
    ):
        for path in sorted({*machine.glob("*.json")} - {machine / "machine.json"}):
            with suppress(HpmlError, msgspec.ValidationError):
                file = msgspec.convert(read_object(path), _ResultFile)
                if file.params.get("machine") == machine.name:
                    yield from _records(file, foreign)


def read_foreign(results: Path) -> Iterator[Record]:
    """The same Records, of what benchmarks.json declares there."""
    for record, _ in import_results(results, foreign_declarations(results)):
        yield record


def foreign_declarations(results: Path) -> dict[str, Declaration]:
    """The benchmarks in benchmarks.json that are asv's own, by name."""
    known = read_declarations(read_object_or_empty(results / DECLARATIONS))
    return {name: each for name, each in known.items() if not each.is_ours}


def _records(
    file: _ResultFile, foreign: Mapping[str, Declaration]
) -> Iterator[tuple[Record, Texts]]:
    for name in [name for name in foreign if file.results.get(name)]:
        # not of the shape that asv writes
        with suppress(TypeError, ValueError, IndexError, OverflowError, KeyError):
            yield from list(
                _points(name, foreign[name], file.row(file.results[name]), file)
            )


def _points(
    name: str, declaration: Declaration, row: Mapping[str, Any], file: _ResultFile
) -> Iterator[tuple[Record, Texts]]:
    values = row["result"]
    grid = row.get("params") or []
    names = declaration.param_names
    if values is None:  # the whole benchmark failed
        grid = grid or declaration.params
        values = [None] * math.prod(map(len, grid))
    if len(values) != math.prod(map(len, grid)) or len(names) != len(grid):
        return
    version = row.get("version")
    lows, highs, recorded = (
        row.get(column) or [None] * len(values)
        for column in ("stats_ci_99_a", "stats_ci_99_b", "samples")
    )
    for point, value, low, high, kept in zip(
        itertools.product(*grid), values, lows, highs, recorded, strict=True
    ):
        status: Status = (
            "failed" if value is None else "ok" if _is_measurement(value) else "skipped"
        )
        bounded = _is_measurement(low) and _is_measurement(high)
        interval = (float(low), float(high)) if bounded else None
        samples = [float(value)] if status == "ok" else []
        if samples and kept and all(map(_is_measurement, kept)):
            samples = [*map(float, kept)]  # of `asv run --record-samples`
        if samples:
            measured = {
                METRIC: MetricSamples(
                    declaration.symbol, declaration.better, samples, interval=interval
                )
            }
        else:
            measured = {}
        texts = {key: str(text) for key, text in zip(names, point, strict=True)}
        record = Record(
            benchmark=name,
            plugin="",
            version=declaration.version if version is None else str(version),
            params={key: value_of(text) for key, text in texts.items()},
            status=status,
            reason=_REASONS[status],
            metrics=measured,
            started=float(row.get("started_at") or 0) / 1000,
            machine=str(file.params["machine"]),
            commit=file.commit_hash,
            environment=file.env_name,
        )
        yield record, texts


def _is_measurement(value: Any) -> bool:
    """Whether it is a number, finite, and of a size that an array holds."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and abs(value) < _LARGEST
