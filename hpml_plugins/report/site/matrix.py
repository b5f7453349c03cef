"""The matrix of benchmarks and GPU types: what the page `gpus.html` says, as values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hpml_plugins.model import formatting as display
from hpml_plugins.report.site.cells import Cell, Reading, direction_of, history_link, make_cell, unit_of
from hpml_plugins.report.site.gpu_type import GpuType
from hpml_plugins.report.site.history import FAILED, LEFT_OUT, Benchmarks, History, Lines
from hpml_plugins.report.site.prices import Costs

if TYPE_CHECKING:
    pass

#: Parameters that say in which precision a point computes.
PRECISION_NAMES = ("dtype", "precision", "bits")


@dataclass(frozen=True)
class Column:
    """A GPU type. label: unique on the page, and what its address remembers.  gpus: how many, as text.

    newest: its newest commit.  price, watts: of all its GPUs together, an hour and at most; None where nobody said.
    """

    label: str
    machines: tuple[str, ...]
    gpus: str = ""
    newest: str = ""
    price: float | None = None
    watts: float | None = None


@dataclass(frozen=True)
class Row:
    """One point of a benchmark metric, with one cell a column.

    precision: its dtype, where it has such a parameter.  link: to its history.
    """

    point: str
    cells: tuple[Cell, ...]
    precision: str = ""
    link: str = ""


@dataclass(frozen=True)
class Group:
    """One benchmark metric. direction: "lower", "higher", or "" where it is not known.

    paid: dividing by a price or by watts makes sense, for it is a time or a rate.  means: a column each, the geometric
    mean of its ratios to the base over the points that both have; empty where there is none.
    """

    title: str
    metric: str
    plugin: str
    unit: str
    direction: str
    link: str
    rows: tuple[Row, ...]
    paid: bool = False
    means: tuple[Cell, ...] = ()


@dataclass(frozen=True)
class Matrix:
    """The page's content. base: the column that ratios are against before a reader chooses, counted from 0."""

    columns: tuple[Column, ...]
    groups: tuple[Group, ...]
    commits: int
    machines: int
    base: int = 0
    currency: str = ""

    @property
    def plugins(self) -> list[str]:
        """What the filter by plugin offers."""
        return sorted({group.plugin for group in self.groups if group.plugin})

    @property
    def benchmarks(self) -> list[str]:
        """What the filter by group offers."""
        return list(dict.fromkeys(group.title for group in self.groups))

    @property
    def gpu_counts(self) -> list[str]:
        """What the filter by GPU count offers."""
        counts = {column.gpus for column in self.columns if column.gpus}
        return sorted(counts, key=lambda text: (not text.isdecimal(), len(text), text))

    @property
    def precisions(self) -> list[str]:
        """What the filter by precision offers."""
        return sorted({row.precision for group in self.groups for row in group.rows if row.precision})


def build(history: History, benchmarks: Benchmarks, costs: Costs | None = None) -> Matrix:
    """The matrix of a history, sorted by benchmark, metric and point; what no GPU has a number of comes last.

    The base is the GPU type that has the most numbers, the first of several.
    """
    types = history.gpu_types()
    rows_of = {kind: [n for n, place in enumerate(history.places) if place.gpu_type == kind] for kind in types}
    columns = tuple(_column(kind, rows_of[kind], history, costs or Costs()) for kind in types)
    names = sorted(history.lines, key=lambda name: _order(name, benchmarks[name]))
    newest = {kind: column.newest for kind, column in zip(types, columns, strict=True)}
    found = {
        name: [_newest(history, history.lines[name], rows_of[kind], newest[kind]) for kind in types] for name in names
    }
    gpus = [number for number, kind in enumerate(types) if kind.kind == 0]
    base = _base(found.values(), gpus or range(len(types)))
    groups = [group for name in names if (group := _group(name, benchmarks[name], found[name], base)).rows]
    groups.sort(key=lambda group: not any(row.cells[number].value for row in group.rows for number in gpus))
    machines = {place.machine for place in history.places}
    currency = (costs or Costs()).currency
    return Matrix(columns, tuple(groups), len(history.commits), len(machines), base, currency)


def point_names(benchmark: Mapping[str, Any]) -> list[str]:
    """The points of one of asv's benchmarks in words, in asv's order; [""] for a benchmark without parameters."""
    names = [str(each) for each in benchmark.get("param_names") or []]
    return [
        display.point(names, [str(value) for value in point])
        for point in itertools.product(*(benchmark.get("params") or []))
    ]


def _column(kind: GpuType, rows: Sequence[int], history: History, costs: Costs) -> Column:
    import numpy as np

    status = [lines.status[rows] >= FAILED for lines in history.lines.values()]
    seen = np.any([each.any(axis=(0, 2)) for each in status], axis=0) if status else np.zeros(0, bool)
    newest = history.commits[int(np.flatnonzero(seen)[-1])] if seen.any() else ""
    machines = tuple(sorted({history.places[row].machine for row in rows}))
    gpus = kind.num_gpu if kind.kind == 0 else ""
    return Column(kind.label, machines, gpus, newest, costs.price(kind), costs.watts(kind))


def _newest(history: History, lines: Lines, rows: Sequence[int], newest: str) -> list[Reading | None]:
    """Of each point the newest result on these places; of one commit, that which was run last."""
    import numpy as np

    status = lines.status[rows]
    points = status.shape[2]
    said = status >= FAILED
    last = np.where(said.any(axis=0), np.arange(status.shape[1])[:, None], -1).max(axis=0, initial=-1)
    left_out = (status == LEFT_OUT).any(axis=(0, 1))
    found: list[Reading | None] = []
    for point in range(points):
        commit = int(last[point])
        if commit < 0:
            nothing = Reading(math.nan, math.nan, math.nan, "", 0, "") if left_out[point] else None
            found.append(nothing)
            continue
        started = np.where(said[:, commit, point], lines.started[rows, commit, point], -1)
        row = rows[int(started.argmax())]
        at = row, commit, point
        value = None if lines.status[at] == FAILED else float(lines.values[at])
        usual = history.commits[commit] == newest and len(rows) == 1
        low, high = float(lines.low[at]), float(lines.high[at])
        machine = history.places[row].machine
        found.append(Reading(value, low, high, history.commits[commit], history.dates[commit], machine, usual))
    return found


def _base(found: Iterable[Sequence[Sequence[Reading | None]]], columns: Sequence[int]) -> int:
    """Of these columns the one with the most numbers, the first of several."""
    counts = dict.fromkeys(columns, 0)
    for of_benchmark in found:
        for column in columns:
            counts[column] += sum(reading is not None and reading.measured for reading in of_benchmark[column])
    return max(counts, key=lambda column: counts[column], default=0)


def _group(
    name: str, benchmark: Mapping[str, Any], columns: Sequence[Sequence[Reading | None]], base: int
) -> Group:  # fmt: skip
    names = [str(each) for each in benchmark.get("param_names") or []]
    precise = next((number for number, each in enumerate(names) if each in PRECISION_NAMES), None)
    points = list(itertools.product(*(benchmark.get("params") or [])))
    rows = []
    for number, label in enumerate(point_names(benchmark)):
        readings = [column[number] for column in columns]
        if not any(reading is not None and (reading.value is None or reading.measured) for reading in readings):
            continue  # nobody has a number or a failure; why is on the page of nodes
        cells = tuple(make_cell(benchmark, reading, readings[base]) for reading in readings)
        precision = "" if precise is None else str(points[number][precise]).strip("'\"")
        rows.append(Row(label or "one point", cells, precision, history_link(name, label)))
    unit = unit_of(benchmark)
    direction = direction_of(benchmark)
    return Group(
        title=str(benchmark.get("benchmark") or benchmark.get("pretty_name") or name),
        metric=str(benchmark.get("metric") or ""),
        plugin=str(benchmark.get("plugin") or ""),
        unit=display.shown_unit(unit).label,
        direction=direction,
        link=history_link(name, ""),
        rows=tuple(rows),
        paid=unit in ("s", "seconds", "Hz") or unit.endswith("/s"),
        means=tuple(_mean(rows, column, base, direction) for column in range(len(columns))),
    )


def _mean(rows: Sequence[Row], column: int, base: int, direction: str) -> Cell:
    """The geometric mean of a column's ratios to the base. text: over how many points."""
    if column == base:
        return Cell()
    ratios = [
        times
        for row in rows
        if row.cells[column].value and row.cells[base].value
        and (times := display.better_by(float(row.cells[column].value), float(row.cells[base].value), direction))
    ]  # fmt: skip
    if not ratios:
        return Cell()
    mean = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
    return Cell(ratio=display.ratio(mean), judgement=display.judge(mean), text=f"{len(ratios)} of {len(rows)}")


def _order(name: str, benchmark: Mapping[str, Any]) -> tuple[str, str, str]:
    return str(benchmark.get("benchmark") or name), str(benchmark.get("metric") or ""), name
