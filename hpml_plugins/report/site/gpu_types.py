"""The page `gpus.html`: a table of benchmarks and hardware, with ratios to a base, prices and board powers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec

from hpml_plugins.model import formatting
from hpml_plugins.model.variability import Values, compare_values
from hpml_plugins.published import find_gpu
from hpml_plugins.registry import read_yaml
from hpml_plugins.report.reading import Hardware, History, TrackedMetric
from hpml_plugins.report.shares import describe_shares, measured_power
from hpml_plugins.report.site.page import day

#: Parameters that say in which precision a point computes.
PRECISION_NAMES = ("dtype", "precision", "bits")
#: Beside the registry. No file, no prices.
PRICES_FILE = "gpu-prices.yaml"
#: Verdict on B against A → the letter of that on A against B.
_OPPOSITE = {"BETTER": "w", "WORSE": "b"}


class Costs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`gpu-prices.yaml`.  prices: GPU type, as NVML names it → price of one GPU for one hour, in `currency`."""

    prices: dict[str, Annotated[float, msgspec.Meta(gt=0, le=1e12)]]
    currency: str = ""


def read_costs(folder: Path) -> Costs:
    """The prices in `gpu-prices.yaml` of a folder. Raises RegistryError with file and line."""
    path = folder / PRICES_FILE
    return read_yaml(path, Costs)[0] if path.is_file() else Costs({})


@dataclass(frozen=True)
class Cell:
    """What one point gave on one hardware. The page's script adds the ratio to the base.

    status: "ok", "failed", "skipped" or "" for nothing at all.  text, interval: of `formatting.estimate`, and the
    regime.  value: the number at seven digits, for the script.  title: the tooltip.  verdicts: number of a column →
    letter of the verdict against it: b better, w worse, s same, a ambiguous; none where one has no number.
    watts: measured under this load, by the same Record.
    """

    status: str = ""
    text: str = ""
    interval: str = ""
    value: str = ""
    title: str = ""
    watts: str = ""
    values: Values = field(default_factory=dict, repr=False)
    verdicts: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Column:
    """A GPU type and number of GPUs. machines: those that have it.  newest: their newest commit, or "".

    price, watts: of all its GPUs, an hour and at most; None where it is not known.
    """

    hardware: Hardware
    machines: tuple[str, ...]
    newest: str
    price: float | None
    watts: float | None


@dataclass(frozen=True)
class Row:
    """One point of a metric, with one cell per column. precision: its dtype, where it has such a parameter."""

    point: str
    cells: tuple[Cell, ...]
    precision: str


@dataclass(frozen=True)
class Group:
    """One metric, with the points that have a number or a failure somewhere."""

    metric: TrackedMetric
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Matrix:
    """The page's content. base: the column that ratios are against before a reader chooses, counted from 0."""

    columns: tuple[Column, ...]
    groups: tuple[Group, ...]
    commits: int
    base: int
    currency: str


def build(history: History, costs: Costs) -> Matrix:
    """The matrix of a history, sorted by benchmark, metric and point; what no GPU has a number of comes last.

    The base is the GPU type that has the most numbers, the first of several.
    """
    hardware = sorted({machine.hardware for machine in history.machines})
    columns = tuple(column for each in hardware if (column := _column(each, history, costs)).newest)
    groups = [group for metric in history.measured if (group := _group(metric, history, columns)).rows]
    counts = [sum(bool(row.cells[n].value) for group in groups for row in group.rows) for n in range(len(columns))]
    gpus = [number for number, column in enumerate(columns) if column.hardware.kind == 0]
    base = max(gpus or range(len(columns)), key=lambda number: counts[number], default=0)
    groups.sort(key=lambda group: not any(row.cells[number].value for row in group.rows for number in gpus))
    _judge(groups, len(columns))
    return Matrix(columns, tuple(groups), len(history.commits), base, costs.currency)


def _judge(groups: Sequence[Group], count: int) -> None:
    """Give the cells their verdicts. count: of columns; of each two, all rows are asked at once."""
    for first, second in itertools.combinations(range(count), 2):
        asked = [
            (row.cells[first], row.cells[second], group.metric.metric)
            for group in groups
            for row in group.rows
            if row.cells[first].values and row.cells[second].values
        ]
        judged = compare_values([(a.values, b.values, name) for a, b, name in asked])
        for (a, b, _), found in zip(asked, judged, strict=True):
            b.verdicts[first] = found.verdict[0].lower()
            a.verdicts[second] = _OPPOSITE.get(found.verdict, found.verdict[0]).lower()


def _column(hardware: Hardware, history: History, costs: Costs) -> Column:
    machines = tuple(machine.name for machine in history.machines if machine.hardware == hardware)
    seen = set().union(*(history.columns_of(machine) for machine in machines))
    newest = history.commits[max(seen)] if seen else ""
    gpus = hardware.num_gpu
    count = int(gpus) if gpus.isdecimal() and len(gpus) <= 6 else 0  # a damaged file may say any number
    price, card = costs.prices.get(hardware.gpu), find_gpu(hardware.gpu) if hardware.kind == 0 else None
    each = (price, card.power if card else None)
    return Column(hardware, machines, newest, *(count * one if count and one is not None else None for one in each))


def _group(metric: TrackedMetric, history: History, columns: Sequence[Column]) -> Group:
    rows = []
    for label, texts in metric.benchmark.points.items():
        cells = tuple(_cell(metric, label, history, column) for column in columns)
        if any(cell.status in ("ok", "failed") for cell in cells):  # else the page of nodes says why
            precision = next((formatting.unquoted(texts[name]) for name in texts if name in PRECISION_NAMES), "")
            rows.append(Row(label, cells, precision))
    return Group(metric, tuple(rows))


def _cell(metric: TrackedMetric, label: str, history: History, column: Column) -> Cell:
    """The newest result on these machines; of one commit, the one that was started last."""
    lines = {name: metric.line(label, name) for name in column.machines}
    results = []
    for name, line in lines.items():
        results += [(*each, name) for each in reversed(line) if each[1] or each[0].status == "failed"][:1]
    if not results:
        return Cell("skipped", "–") if any(lines.values()) else Cell()
    outcome, number, machine = max(results, key=lambda each: (each[0].revision, each[0].started))
    at = history.columns[outcome.revision]
    told = history.commits[at] == column.newest and len(column.machines) == 1  # the column's head says so
    origin = "" if told else f"commit {history.commits[at][:8]} of {day(history.dates[at])}, on {machine}"
    if number is None:
        return Cell("failed", "failed", title=origin)
    text, sign, interval = formatting.estimate(number.estimate, metric.unit).partition(" ± ")
    small = f"{sign + interval} {number.regime}".strip()
    boost = f"boost {formatting.quantity(number.boost, metric.unit)}" if number.boost else ""
    current = metric.benchmark.current.get((label, machine))
    of_limits = describe_shares(current[1], history.roofs[machine], metric.metric) if current else ""
    title = ", ".join(filter(None, [origin, boost, of_limits]))
    watts = measured_power(current[1]) if current else None
    return Cell("ok", text, small, f"{number.value:.7g}", title, f"{watts:.4g}" if watts else "", outcome.readings)
