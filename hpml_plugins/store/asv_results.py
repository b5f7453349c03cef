"""Import results of a plain asv project as Records.

This is the only code that reads asv's result files as data. Benchmarks of plugins are excluded:
their result files are written from Records and never read back.
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
from hpml_plugins.store.files import (
    OnDamage,
    machine_folders,
    read_object,
    read_object_or_empty,
)

#: Parameter → its value, as Python's repr.
Texts = dict[str, str]
#: The metric of an imported benchmark; a benchmark of asv has a single number.
METRIC = "value"
_REASONS = {
    "ok": "",
    "failed": "no details recorded; check the asv run log",
    "skipped": "not selected in any run",
}
#: Larger integers are not measurements, and do not fit into an array.
_LARGEST = 2**63


class _ResultFile(msgspec.Struct):
    """The part of an asv result file (format 2) that is read. results: asv's name of a benchmark →
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
            # asv averages them: text would abort `asv publish`
            if values is not None and not numbers:
                raise ValueError("a result is not a number")

    def row(self, columns: Sequence[Any]) -> dict[str, Any]:
        """A row as column name → value."""
        return dict(zip(self.result_columns, columns, strict=False))


def is_result_file(found: Any) -> bool:
    """Whether this is the JSON of an asv result file."""
    try:
        msgspec.convert(found, _ResultFile)
    except msgspec.ValidationError:
        return False
    return True


def bounded_rows(found: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The rows of a result file, with NaN for numbers beyond LARGEST: with an infinity, or an
    infinite sum, asv's step detection does not terminate."""
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
    """The rows without those of these benchmarks of plugins. rows: by asv's names of metrics."""
    return {
        name: row for name, row in rows.items() if name.partition(".track_")[0] not in ours
    }


def import_results(
    results: Path,
    benchmarks: Mapping[str, Declaration],
    on_damage: OnDamage | None = None,
) -> Iterator[tuple[Record, Texts]]:
    """A Record for each point in asv's result files of benchmarks that are not ours, with the point
    as asv writes it, which alone distinguishes None from the text "None".

    `MetricSamples.interval` is asv's own 99 % interval, if there is one. The samples are asv's if
    recorded, else its value is the only one. Invalid files and rows are skipped: asv reports them
    when it reads the same folder.  benchmarks: by asv's names.  on_damage: is told of invalid
    files, for commands that do not run asv.
    """
    foreign = {name: each for name, each in benchmarks.items() if not each.is_ours}
    if not foreign:
        return
    for machine in (
        folder for folder in machine_folders(results) if (folder / "machine.json").is_file()
    ):
        for path in sorted({*machine.glob("*.json")} - {machine / "machine.json"}):
            try:
                file = msgspec.convert(read_object(path), _ResultFile)
                if file.params.get("machine") == machine.name:
                    yield from _records(file, foreign)
            except (HpmlError, msgspec.ValidationError) as error:
                if on_damage:
                    on_damage(
                        str(error) if isinstance(error, HpmlError) else f"{path}: {error}"
                    )


def read_foreign(results: Path, on_damage: OnDamage | None = None) -> Iterator[Record]:
    """The same Records, for the benchmarks declared in benchmarks.json there."""
    for record, _ in import_results(results, foreign_declarations(results), on_damage):
        yield record


def foreign_declarations(results: Path) -> dict[str, Declaration]:
    """asv's own benchmarks in benchmarks.json, by name."""
    known = read_declarations(read_object_or_empty(results / DECLARATIONS))
    return {name: each for name, each in known.items() if not each.is_ours}


def _records(
    file: _ResultFile, foreign: Mapping[str, Declaration]
) -> Iterator[tuple[Record, Texts]]:
    for name in [name for name in foreign if file.results.get(name)]:
        # not in asv's format
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
            samples = [*map(float, kept)]  # from `asv run --record-samples`
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
    """Whether it is a finite number that fits into an array."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and abs(value) < _LARGEST
