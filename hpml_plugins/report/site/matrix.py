"""What each GPU type gives at each point: the numbers that all tables of types show, from one
reading of the Records."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import msgspec

from hpml_plugins.analysis.measured import MeasuredValue, Values
from hpml_plugins.analysis.sides import BOOST, MeasuredRun, at_boost, boosted, side_values
from hpml_plugins.registry import read_yaml
from hpml_plugins.report.reading import Hardware, History, TrackedMetric
from hpml_plugins.report.shares import measured_power
from hpml_plugins.store import of_node

#: Units of headline metrics: a benchmark's first rate in this order or, where it has none, its
#: first time.
HEADLINE_UNITS = ("FLOP/s", "OP/s", "B/s", "1/s", "s")
#: Beside the registry. No file, no prices.
PRICES_FILE = "gpu-prices.yaml"


class Costs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`gpu-prices.yaml`.  prices: GPU type, as NVML names it → price of one GPU for one hour, in
    `currency`."""

    prices: dict[str, Annotated[float, msgspec.Meta(gt=0, le=1e12)]]
    currency: str = ""


def read_costs(folder: Path) -> Costs:
    """The prices in `gpu-prices.yaml` of a folder. Raises RegistryError with file and line."""
    path = folder / PRICES_FILE
    return read_yaml(path, Costs)[0] if path.is_file() else Costs({})


@dataclass(frozen=True)
class PublishedRun(MeasuredRun):
    """A measured Record of a published commit; the commit in full, "" for none."""

    commit: str


@dataclass(frozen=True)
class Cell:
    """What one point gave on one hardware: the mean over its cards of all Records of the newest
    code.

    status: "ok", "failed", "skipped" or "" for nothing at all.  number: where the status is "ok".
    watts: measured under this load, by the newest Record; 0 where it was not.  values: of all its
    metrics.  runs: all measured Records of the point, of any code.
    """

    status: str = ""
    number: MeasuredValue | None = None
    watts: float = 0.0
    values: Values = field(default_factory=dict, repr=False)
    runs: tuple[PublishedRun, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Column:
    """A GPU type and number of GPUs. machines: those that have it.  price: of all its GPUs, an
    hour; None where it is not known."""

    hardware: Hardware
    machines: tuple[str, ...]
    price: float | None


@dataclass(frozen=True)
class Row:
    """One point of a metric, with one cell per column. regime: "boost" where the values are those
    before the cards throttled, else "": a point that any card throttled at has a row of each."""

    point: str
    cells: tuple[Cell, ...]
    regime: str = ""


@dataclass(frozen=True)
class Group:
    """One metric, with the points that have a number or a failure somewhere."""

    metric: TrackedMetric
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Matrix:
    """All of them.  groups: those of one benchmark together, its headline first."""

    columns: tuple[Column, ...]
    groups: tuple[Group, ...]
    currency: str


def build(history: History, costs: Costs) -> Matrix:
    """The matrix of a history, sorted by benchmark and point; a benchmark of which no GPU has a
    number comes last."""
    hardware = sorted({machine.hardware for machine in history.machines})
    every = [_column(each, history, costs) for each in hardware]
    columns = [
        column
        for column in every
        if any(history.seen.get(machine) for machine in column.machines)
    ]
    declared = {name: place for place, name in enumerate(history.metrics)}
    groups: list[Group] = []
    runs: _Runs = {}
    for _, metrics in itertools.groupby(
        history.measured, key=lambda metric: metric.benchmark.name
    ):
        found = [Group(metric, _rows(metric, columns, runs)) for metric in metrics]
        found.sort(
            key=lambda each: (headline_rank(each.metric), declared[each.metric.name])
        )
        groups += [group for group in found if group.rows]
    on_gpus = {
        group.metric.benchmark.name
        for group in groups
        for row in group.rows
        if any(
            cell.number and column.hardware.kind == 0
            for cell, column in zip(row.cells, columns, strict=True)
        )
    }
    groups.sort(key=lambda group: group.metric.benchmark.name not in on_gpus)
    return Matrix(tuple(columns), tuple(groups), costs.currency)


def headline_rank(metric: TrackedMetric) -> int:
    """A benchmark's metrics of the lowest rank speak for it: see HEADLINE_UNITS; then any with a
    direction."""
    if metric.direction and metric.unit in HEADLINE_UNITS:
        return HEADLINE_UNITS.index(metric.unit)
    return len(HEADLINE_UNITS) + (not metric.direction)


def _column(hardware: Hardware, history: History, costs: Costs) -> Column:
    machines = tuple(
        machine.name for machine in history.machines if machine.hardware == hardware
    )
    price = costs.prices.get(hardware.gpu)
    return Column(hardware, machines, (price and hardware.count * price) or None)


#: The runs of a point on a column.
_Runs = dict[tuple[str, str, int], tuple[PublishedRun, ...]]


def _rows(metric: TrackedMetric, columns: Sequence[Column], runs: _Runs) -> tuple[Row, ...]:
    rows = []
    for label in metric.benchmark.points:
        cells = tuple(
            _cell(metric, label, column, _runs_of(metric, label, column, number, runs))
            for number, column in enumerate(columns)
        )
        # else the page of nodes says why
        if any(cell.status in ("ok", "failed") for cell in cells):
            settled = Row(label, cells)
            bursts = tuple(_at_boost(cell) for cell in cells)
            rows.append(settled)
            if any(cell.number for cell in bursts):
                rows.append(replace(settled, cells=bursts, regime=BOOST))
    return tuple(rows)


def _at_boost(cell: Cell) -> Cell:
    """The cell of the regime boost; empty where the card did not throttle.

    No power: the sensor is slower than a burst.
    """
    if cell.number is None or cell.number.boosted is None:
        return Cell()
    number = at_boost(cell.number)
    return replace(cell, number=number, watts=0.0, values=boosted(cell.values))


def _runs_of(
    metric: TrackedMetric, label: str, column: Column, number: int, known: _Runs
) -> tuple[PublishedRun, ...]:
    """All measured Records of the line of a point on a column; those of other software stacks than
    the node's own only where there are no others."""
    key, index = (metric.benchmark.name, label, number), metric.benchmark.index
    if key not in known:
        found = [
            outcome
            for name in column.machines
            for outcome in index.on_line((label, name))
            if outcome.readings and outcome.revision >= 0
        ]
        known[key] = tuple(
            PublishedRun(
                next(iter(each.readings.values())).code,
                index.rank(each),
                each.readings,
                each.commit,
            )
            for each in of_node(found)
        )
    return known[key]


def _cell(
    metric: TrackedMetric, label: str, column: Column, runs: tuple[PublishedRun, ...]
) -> Cell:
    """The newest result on these machines, and the mean over the cards that measured its code."""
    lines = {name: metric.judged(label, name) for name in column.machines}
    results = []
    for name, line in lines.items():
        results += [
            (*each, name)
            for each in reversed(line)
            if each[1] or each[0].status == "failed"
        ][:1]
    if not results:
        return Cell("skipped") if any(lines.values()) else Cell()
    rank = metric.benchmark.index.rank
    outcome, newest, machine = max(results, key=lambda each: rank(each[0]))
    if newest is None:
        return Cell("failed")
    alike = [run for run in runs if run.code == newest.code]
    values = side_values(alike) if alike else outcome.readings
    number = values.get(metric.metric, newest)
    current = metric.benchmark.current.get((label, machine))
    watts = measured_power(current[1]) if current else None
    return Cell("ok", number, watts or 0.0, values, runs)
