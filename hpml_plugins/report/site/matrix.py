"""The value of each GPU type at each point: the rows of all tables of types, from one reading of
the Records."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from hpml_plugins.analysis.measured import MeasuredValue, Values, averaged
from hpml_plugins.analysis.sides import BOOST, SideRuns, at_boost
from hpml_plugins.model.formatting import exact
from hpml_plugins.published import find_gpu
from hpml_plugins.registry import read_yaml
from hpml_plugins.report.charts import COLOURS, look
from hpml_plugins.report.reading import Hardware, History, TrackedMetric
from hpml_plugins.report.shares import share_of_peak
from hpml_plugins.report.type_values import KnownRuns, PointRuns, read_point

Regime = Literal["settled", "boost"]

#: Units of headline metrics: a benchmark's first rate in this order or, without a rate, its
#: first time.
HEADLINE_UNITS = ("FLOP/s", "OP/s", "B/s", "1/s", "s")
#: Beside the registry. Without this file there are no prices.
PRICES_FILE = "gpu-prices.yaml"
#: Published figures in the header of a column: field of GpuType, unit.
PEAKS = (("memory", "B"), ("bandwidth", "B/s"), ("power", "W"))


class Costs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of `gpu-prices.yaml`.  prices: GPU type, as NVML names it → price of one GPU for
    one hour, in `currency`."""

    prices: dict[str, Annotated[float, msgspec.Meta(gt=0, le=1e12)]]
    currency: str = ""


def read_costs(folder: Path) -> Costs:
    """The prices in `gpu-prices.yaml` of a folder. Raises RegistryError with file and line."""
    path = folder / PRICES_FILE
    return read_yaml(path, Costs)[0] if path.is_file() else Costs({})


@dataclass(frozen=True)
class TypeColumn:
    """A GPU type and number of GPUs.  number: its index in the matrix.  machines: those that have
    it.  cards: distinct cards that measured; 0 if unknown.  price: of all its GPUs, per hour; None
    if unknown."""

    number: int
    hardware: Hardware
    machines: tuple[str, ...]
    cards: int = 0
    price: float | None = None

    @property
    def label(self) -> str:
        """The label for readers."""
        return self.hardware.label

    @property
    def count(self) -> int:
        """The number of GPUs of a machine."""
        return self.hardware.count

    @property
    def colour(self) -> str:
        """Its class in the style sheet."""
        return colour_class(self.hardware)

    @property
    def noun(self) -> str:
        """The noun for counting its values: what has a value of its own."""
        return "card" if self.hardware.is_gpu and self.count == 1 else "node"

    @property
    def facts(self) -> str:
        """Published figures."""
        known = find_gpu(self.hardware.gpu) if self.hardware.is_gpu else None
        figures = [(getattr(known, name), unit) for name, unit in PEAKS] if known else []
        return " · ".join(exact(value, unit) for value, unit in figures if value)


def colour_class(hardware: Hardware) -> str:
    """The class of a type's colour in the style sheet, the same on every page."""
    return f"look{COLOURS.index(look(hardware.name, hardware.count).colour)}"


@dataclass(frozen=True)
class TaskCell:
    """The value of one GPU type at a point: the mean over its cards of all Records with the newest
    code.

    number: in the regime of the row.  share: of the published peak, 0 to 1; None if unknown.
    values: of all metrics of the point, settled.  runs: all its measured Records, with any code;
    the cells of all metrics of a point share them.
    """

    number: MeasuredValue
    share: float | None = None
    values: Values = field(default_factory=dict, repr=False)
    runs: PointRuns = field(default_factory=lambda: SideRuns.of(()), repr=False)

    @property
    def cards(self) -> int:
        """The number of cards averaged."""
        return len(self.number.levels) or 1

    @property
    def spread(self) -> str:
        """The difference between them, `2.1 %`; "" for one card."""
        levels = [level.level for level in self.number.levels]
        if len(levels) < 2:
            return ""
        return f"{100 * (math.exp(max(levels) - min(levels)) - 1):.2g} %"


@dataclass(frozen=True)
class TaskRow:
    """One point of a metric in a regime.

    point: "" for a benchmark without parameters.  cells: index of a column → its cell, if it has a
    number.  failed: the columns whose newest result is a failure.  task: in words of the registry,
    else the metric's title.  section: of the page, else the plugin.
    """

    metric: TrackedMetric
    point: str
    regime: Regime
    cells: dict[int, TaskCell]
    failed: frozenset[int]
    task: str
    section: str

    def measured(self, columns: Sequence[TypeColumn]) -> list[TypeColumn]:
        """The columns that have a number."""
        return [column for column in columns if column.number in self.cells]

    def readings(self, column: int) -> list[MeasuredValue]:
        """The runs behind the number of a column, in this row's regime; at least the number."""
        name = self.metric.metric
        cell = self.cells[column]
        found = cell.runs.of_code(cell.values[name].code)
        values = [run.values[name] for run in found if name in run.values]
        shown = list(map(at_boost, values)) if self.regime == BOOST else values
        return shown or [cell.number]

    def left_out(self, column: int) -> int:
        """The number of cards that measured the number of a column in another way or regime than
        most, or only beside other processes, so that its mean is without them."""
        number = self.cells[column].number
        if number.repeats:
            return 0
        readings = self.readings(column)
        # values that are not above 0 have no level for each card
        averages = number.cards if number.value > 0 else averaged(readings)
        used = {each.card for each in averages}
        return len({each.card for each in readings} - used)


@dataclass(frozen=True)
class Matrix:
    """All rows and columns.  rows: those of a benchmark together, its headline first."""

    columns: tuple[TypeColumn, ...]
    rows: tuple[TaskRow, ...]
    currency: str = ""

    def of_benchmark(self, name: str) -> list[TaskRow]:
        """The rows of a benchmark."""
        return [row for row in self.rows if row.metric.benchmark.name == name]

    def at_boost(self, row: TaskRow) -> TaskRow:
        """A row in the regime boost. A step that the GPU never throttled has the same rate in both
        regimes."""
        cells = {
            number: _at_boost(row, self.columns[number], cell)
            for number, cell in row.cells.items()
        }
        return replace(row, regime="boost", cells=cells)


def build(history: History, costs: Costs) -> Matrix:
    """The matrix of a history, sorted by benchmark and point; benchmarks without a number from any
    GPU come last.

    Every point that was measured or failed somewhere has a row; points at which any card throttled
    have a row for each regime.
    """
    columns = tuple(_columns(history, costs))
    declared = {name: place for place, name in enumerate(history.metrics)}
    gpus = {column.number for column in columns if column.hardware.is_gpu}
    on_gpus: list[TaskRow] = []
    others: list[TaskRow] = []
    for _, of_one in itertools.groupby(
        history.measured, key=lambda each: each.benchmark.name
    ):
        metrics = sorted(
            of_one, key=lambda each: (headline_rank(each), declared[each.name])
        )
        runs: KnownRuns = {}
        rows = [row for metric in metrics for row in _rows(metric, columns, runs)]
        has_gpus = any(gpus & row.cells.keys() for row in rows)
        (on_gpus if has_gpus else others).extend(rows)
    return Matrix(columns, (*on_gpus, *others), costs.currency)


def headline_rank(metric: TrackedMetric) -> int:
    """The metrics of a benchmark with the lowest rank represent it: see HEADLINE_UNITS; then any
    with a direction."""
    if metric.direction and metric.unit in HEADLINE_UNITS:
        return HEADLINE_UNITS.index(metric.unit)
    return len(HEADLINE_UNITS) + (not metric.direction)


def _columns(history: History, costs: Costs) -> Iterator[TypeColumn]:
    """The types that have measured anything."""
    cards = _cards_of_machines(history)
    number = 0
    for hardware, names in history.types.items():
        if any(history.seen.get(name) for name in names):
            measured = set[str]().union(*(cards.get(name, ()) for name in names))
            price = costs.prices.get(hardware.gpu)
            price = (price and hardware.count * price) or None
            yield TypeColumn(number, hardware, names, len(measured), price)
            number += 1


def _cards_of_machines(history: History) -> dict[str, set[str]]:
    """Machine → the UUIDs of the GPUs that measured anything there."""
    found: dict[str, set[str]] = {}
    for benchmark in history.benchmarks:
        for point, machine in benchmark.index:
            cards = found.setdefault(machine, set())
            for outcome in benchmark.index.on_line((point, machine)):
                for card in outcome.card.split(","):
                    if card.startswith(("GPU-", "MIG-")):
                        cards.add(card)
    return found


def _rows(
    metric: TrackedMetric, columns: Sequence[TypeColumn], runs: KnownRuns
) -> Iterator[TaskRow]:
    for point in metric.benchmark.points:
        cells = {}
        failed = set()
        missing = True
        for column in columns:
            found = read_point(metric, point, column.machines, runs)
            if found is None:
                continue
            missing = False
            number = found.number
            if found.failed:
                failed.add(column.number)
            elif number is not None:
                share = _share(metric, point, column, number)
                cells[column.number] = TaskCell(number, share, found.values, found.runs)
        if missing:  # the page of nodes gives the reason
            continue
        title = metric.title
        plugin = metric.benchmark.plugin
        row = TaskRow(metric, point, "settled", cells, frozenset(failed), title, plugin)
        yield row
        bursts = {
            column.number: _at_boost(row, column, cells[column.number])
            for column in columns
            if column.number in cells and cells[column.number].number.boosted
        }
        if bursts:
            yield replace(row, regime="boost", cells=bursts, failed=frozenset())


def _at_boost(row: TaskRow, column: TypeColumn, cell: TaskCell) -> TaskCell:
    """The cell in the regime boost."""
    number = at_boost(cell.number)
    share = _share(row.metric, row.point, column, number)
    return replace(cell, number=number, share=share)


def _share(
    metric: TrackedMetric, point: str, column: TypeColumn, number: MeasuredValue
) -> float | None:
    """The share of the published peak, from the first machine whose Record gives it."""
    current = metric.benchmark.current
    places = [(point, machine) for machine in column.machines]
    records = [current[place][1] for place in places if place in current]
    shares = (share_of_peak(each, metric.metric, number.value) for each in records)
    return next((share for share in shares if share is not None), None)
