"""The page `gpus.html`: a table of benchmarks and hardware, with ratios to a base, prices and board powers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np

from hpml_plugins.errors import RegistryError
from hpml_plugins.model import formatting
from hpml_plugins.published import find_gpu
from hpml_plugins.registry import read_yaml
from hpml_plugins.report.reading import FAILED, SKIPPED, Hardware, History, Lines, TrackedMetric
from hpml_plugins.report.site.page import SiteError, day, history_link

#: Parameters that say in which precision a point computes.
PRECISION_NAMES = ("dtype", "precision", "bits")
#: Beside the registry. No file, no prices.
PRICES_FILE = "gpu-prices.yaml"
#: Largest price of one GPU for an hour, in any currency.
_DEAREST = 1e12


class _PricesFile(msgspec.Struct, forbid_unknown_fields=True):
    prices: dict[str, float]
    currency: str = ""


@dataclass(frozen=True)
class Costs:
    """prices: GPU type, as NVML names it → price of one GPU for one hour, in `currency`."""

    prices: dict[str, float] = field(default_factory=dict)
    currency: str = ""

    def price(self, hardware: Hardware) -> float | None:
        """Of all GPUs of this hardware for an hour; None where no price is given."""
        return _of_all(self.prices.get(hardware.gpu), hardware)

    def watts(self, hardware: Hardware) -> float | None:
        """The published power of all its GPUs, W; None for an unknown card."""
        card = find_gpu(hardware.gpu) if hardware.kind == 0 else None
        return _of_all(card.power, hardware) if card else None


def read_costs(folder: Path) -> Costs:
    """The prices in `gpu-prices.yaml` of a folder. Raises SiteError naming what is wrong with it."""
    path = folder / PRICES_FILE
    if not path.is_file():
        return Costs()
    try:
        read, _ = read_yaml(path, _PricesFile)
    except RegistryError as error:
        what = f"{error.what}; it should say `prices: {{NVIDIA H200: 3.5}}` and `currency: USD`"
        raise SiteError(what, error.where) from None
    for name, price in read.prices.items():
        if not 0 < price <= _DEAREST:
            raise SiteError(f"the price of {name!r} is {price}, not above 0 and at most {_DEAREST:.0e}", str(path))
    return Costs(read.prices, read.currency)


def _of_all(one: float | None, hardware: Hardware) -> float | None:
    count = hardware.num_gpu
    if one is None or not count.isdecimal() or len(count) > 6 or int(count) == 0:  # a damaged file may say any number
        return None
    return one * int(count)


@dataclass(frozen=True)
class Cell:
    """What one point gave on one hardware. The page's script adds the ratio to the base.

    status: "ok", "failed", "skipped" or "" for nothing at all.  text, interval: of `formatting.estimate`.  value: the
    number at seven digits, for the script.  title: the tooltip.  linked: to its row's history.
    """

    status: str = ""
    text: str = ""
    interval: str = ""
    value: str = ""
    title: str = ""
    linked: bool = False


@dataclass(frozen=True)
class Column:
    """Hardware. label: unique on the page, and what its address remembers.  gpus: how many, as text.

    rows: its machines' places in the history.  newest: its newest commit.  price, watts: of all its GPUs, an hour and
    at most; None where it is not known.
    """

    label: str
    machines: tuple[str, ...]
    rows: tuple[int, ...]
    is_gpu: bool
    gpus: str
    newest: str
    price: float | None
    watts: float | None


@dataclass(frozen=True)
class Row:
    """One point of a metric, with one cell per column.

    precision: its dtype, where it has such a parameter.  link: to its history.
    """

    point: str
    cells: tuple[Cell, ...]
    precision: str
    link: str


@dataclass(frozen=True)
class Group:
    """One metric. unit: as it is shown.  link: to its history.

    paid: dividing by a price or by watts makes sense, for it is a time or a rate.
    """

    metric: TrackedMetric
    rows: tuple[Row, ...]
    unit: str
    link: str
    paid: bool


@dataclass(frozen=True)
class Matrix:
    """The page's content. base: the column that ratios are against before a reader chooses, counted from 0."""

    columns: tuple[Column, ...]
    groups: tuple[Group, ...]
    commits: int
    machines: int
    base: int = 0
    currency: str = ""


def build(history: History, costs: Costs | None = None) -> Matrix:
    """The matrix of a history, sorted by benchmark, metric and point; what no GPU has a number of comes last.

    The base is the GPU type that has the most numbers, the first of several.
    """
    costs = costs or Costs()
    columns = tuple(column for each in history.hardware() if (column := _column(each, history, costs)).newest)
    metrics = sorted((history.metrics[name] for name in history.lines), key=lambda metric: metric.order)
    groups = [group for metric in metrics if (group := _group(metric, history, columns)).rows]
    counts = [sum(bool(row.cells[n].value) for group in groups for row in group.rows) for n in range(len(columns))]
    gpus = [number for number, column in enumerate(columns) if column.is_gpu]
    base = max(gpus or range(len(columns)), key=lambda number: counts[number], default=0)
    groups.sort(key=lambda group: not any(row.cells[number].value for row in group.rows for number in gpus))
    machines = sum(len(column.machines) for column in columns)
    return Matrix(columns, tuple(groups), len(history.commits), machines, base, costs.currency)


def _column(hardware: Hardware, history: History, costs: Costs) -> Column:
    rows = tuple(number for number, machine in enumerate(history.machines) if machine.hardware == hardware)
    seen = np.zeros(len(history.commits), bool)
    for lines in history.lines.values():
        seen |= (lines.status[rows, :] >= SKIPPED).any(axis=(0, 2))
    newest = history.commits[int(np.flatnonzero(seen)[-1])] if seen.any() else ""
    machines = tuple(sorted(history.machines[row].name for row in rows))
    is_gpu, price, watts = hardware.kind == 0, costs.price(hardware), costs.watts(hardware)
    return Column(hardware.label, machines, rows, is_gpu, hardware.num_gpu if is_gpu else "", newest, price, watts)


def _group(metric: TrackedMetric, history: History, columns: Sequence[Column]) -> Group:
    lines, points = history.lines[metric.name], metric.points
    found = [_cells(metric, history, lines, column) for column in columns]
    rows = []
    for number, (label, cells) in enumerate(zip(points.labels, zip(*found, strict=True), strict=True)):
        if any(cell.linked for cell in cells):  # else nobody has a number or a failure: the page of nodes says why
            texts = points.texts[number]
            precision = next((formatting.unquoted(texts[name]) for name in texts if name in PRECISION_NAMES), "")
            rows.append(Row(label or "one point", cells, precision, history_link(metric.name, label)))
    unit = formatting.shown_unit(metric.unit).label
    paid = metric.unit in ("s", "Hz") or metric.unit.endswith("/s")
    return Group(metric, tuple(rows), unit, history_link(metric.name, ""), paid)


def _cells(metric: TrackedMetric, history: History, lines: Lines, column: Column) -> Iterator[Cell]:
    """Of each point the newest result on these machines; of one commit, the one that was started last."""
    rows = list(column.rows)
    status = lines.status[rows]
    has_result = status >= FAILED
    last = np.where(has_result.any(axis=0), np.arange(status.shape[1])[:, None], -1).max(axis=0, initial=-1).tolist()
    skipped = (status == SKIPPED).any(axis=(0, 1))
    for point, commit in enumerate(last):
        if commit < 0:
            yield Cell("skipped", "–") if skipped[point] else Cell()
            continue
        started = np.where(has_result[:, commit, point], lines.started[rows, commit, point], -np.inf)
        row = rows[int(started.argmax())]
        name, when, machine = history.commits[commit], day(history.dates[commit]), history.machines[row].name
        told = name == column.newest and len(rows) == 1  # the column's head says so
        origin = "" if told else f"commit {name[:8]} of {when}, on {machine}"
        if lines.status[row, commit, point] == FAILED:
            yield Cell("failed", "failed", title=origin, linked=True)
            continue
        value, low, high = (float(each[row, commit, point]) for each in (lines.values, lines.low, lines.high))
        text, sign, interval = formatting.estimate(value, low, high, metric.unit).partition(" ± ")
        yield Cell("ok", text, (sign + interval).strip(), f"{value:.7g}", origin, linked=True)
