"""The page `gpus.html`: a table of benchmarks and hardware, with ratios to a base, prices and board powers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np

from hpml_plugins.errors import RegistryError
from hpml_plugins.model import formatting
from hpml_plugins.published import find_gpu
from hpml_plugins.registry import Lines as YamlLines
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
        read = msgspec.convert(YamlLines(path.read_text(encoding="utf-8"), str(path)).document, _PricesFile)
    except (OSError, RegistryError, msgspec.ValidationError, UnicodeDecodeError) as error:
        problem = error.what if isinstance(error, RegistryError) else error
        raise SiteError(
            f"{problem}; it should say `prices: {{NVIDIA H200: 3.5}}` and `currency: USD`", str(path)
        ) from None
    for name, price in read.prices.items():
        if not 0 < price <= _DEAREST:
            raise SiteError(f"the price of {name!r} is {price}, not above 0 and at most {_DEAREST:.0e}", str(path))
    return Costs(read.prices, read.currency)


def _of_all(one: float | None, hardware: Hardware) -> float | None:
    if one is None or not hardware.num_gpu.isdecimal() or hardware.num_gpu == "0":
        return None
    return one * int(hardware.num_gpu)


@dataclass(frozen=True)
class Newest:
    """The newest result of one point on one hardware. value: None when it failed, NaN when it was skipped.

    low, high: the interval of the value, NaN where there is none.  date: of the commit, ms since 1970.  usual: the
    commit is its column's newest, and the column has one machine, so that the cell need not name them.
    """

    value: float | None
    low: float
    high: float
    commit: str
    date: float
    machine: str
    usual: bool = False

    @property
    def measured(self) -> bool:
        """Whether there is a number."""
        return self.value is not None and math.isfinite(self.value)


@dataclass(frozen=True)
class Cell:
    """What one point gave on one hardware.

    status: "ok", "failed", "skipped" or "" for nothing at all.  text, interval: of `formatting.estimate`.  value: the
    number at seven digits, for the page's script.  ratio: against the base; empty where there is none.  title: the
    tooltip.  linked: to its row's history.
    """

    status: str = ""
    text: str = ""
    interval: str = ""
    value: str = ""
    ratio: str = ""
    judgement: str = ""
    title: str = ""
    linked: bool = False


def make_cell(metric: TrackedMetric, newest: Newest | None, base: Newest | None) -> Cell:
    """The cell of one result.  base: the result on the base hardware."""
    if newest is None:
        return Cell()
    origin = "" if newest.usual else f"commit {newest.commit[:8]} of {day(newest.date)}, on {newest.machine}"
    if newest.value is None:
        return Cell("failed", "failed", title=origin, linked=True)
    if not newest.measured:
        return Cell("skipped", "–")
    times = None
    if base is not None and base is not newest and base.value is not None:
        times = formatting.better_by(newest.value, base.value, metric.direction)
    text, sign, interval = formatting.estimate(newest.value, newest.low, newest.high, metric.unit).partition(" ± ")
    return Cell(
        status="ok",
        text=text,
        interval=(sign + interval).strip(),
        value=f"{newest.value:.7g}",
        ratio="base" if base is newest else formatting.ratio(times) if times is not None else "",
        judgement=formatting.judge(times) if times is not None else "",
        title=origin,
        linked=True,
    )


@dataclass(frozen=True)
class Column:
    """Hardware. label: unique on the page, and what its address remembers.  gpus: how many, as text.

    newest: its newest commit.  price, watts: of all its GPUs, an hour and at most; None where it is not known.
    """

    label: str
    machines: tuple[str, ...]
    gpus: str = ""
    newest: str = ""
    price: float | None = None
    watts: float | None = None


@dataclass(frozen=True)
class Row:
    """One point of a metric, with one cell per column.

    precision: its dtype, where it has such a parameter.  link: to its history.
    """

    point: str
    cells: tuple[Cell, ...]
    precision: str = ""
    link: str = ""


@dataclass(frozen=True)
class Group:
    """One metric. direction: "lower", "higher", or "" where it is not known.

    paid: dividing by a price or by watts makes sense, for it is a time or a rate.  means: one per column, the geometric
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


def build(history: History, costs: Costs | None = None) -> Matrix:
    """The matrix of a history, sorted by benchmark, metric and point; what no GPU has a number of comes last.

    The base is the GPU type that has the most numbers, the first of several.
    """
    costs = costs or Costs()
    newest = {hardware: _newest_commit(history, _rows_of(history, hardware)) for hardware in history.hardware()}
    shown = [hardware for hardware, commit in newest.items() if commit]
    columns = tuple(_column(hardware, history, newest[hardware], costs) for hardware in shown)
    metrics = sorted((history.metrics[name] for name in history.lines), key=lambda metric: metric.order)
    found = {
        metric.name: [
            _newest(history, history.lines[metric.name], _rows_of(history, hardware), newest[hardware])
            for hardware in shown
        ]
        for metric in metrics
    }
    gpus = [number for number, hardware in enumerate(shown) if hardware.kind == 0]
    base = _base(found.values(), gpus or range(len(shown)))
    groups = [group for metric in metrics if (group := _group(metric, found[metric.name], base)).rows]
    groups.sort(key=lambda group: not any(row.cells[number].value for row in group.rows for number in gpus))
    machines = sum(len(column.machines) for column in columns)
    return Matrix(columns, tuple(groups), len(history.commits), machines, base, costs.currency)


def _rows_of(history: History, hardware: Hardware) -> list[int]:
    return [number for number, machine in enumerate(history.machines) if machine.hardware == hardware]


def _newest_commit(history: History, rows: Sequence[int]) -> str:
    seen = np.zeros(len(history.commits), bool)
    for lines in history.lines.values():
        seen |= (lines.status[rows] >= SKIPPED).any(axis=(0, 2))
    return history.commits[int(np.flatnonzero(seen)[-1])] if seen.any() else ""


def _column(hardware: Hardware, history: History, newest: str, costs: Costs) -> Column:
    machines = tuple(sorted(history.machines[row].name for row in _rows_of(history, hardware)))
    gpus = hardware.num_gpu if hardware.kind == 0 else ""
    return Column(hardware.label, machines, gpus, newest, costs.price(hardware), costs.watts(hardware))


def _newest(history: History, lines: Lines, rows: Sequence[int], newest: str) -> list[Newest | None]:
    """Of each point the newest result on these machines; of one commit, the one that was started last."""
    status = lines.status[rows]
    has_result = status >= FAILED
    last = np.where(has_result.any(axis=0), np.arange(status.shape[1])[:, None], -1).max(axis=0, initial=-1)
    skipped = (status == SKIPPED).any(axis=(0, 1))
    found: list[Newest | None] = []
    for point in range(status.shape[2]):
        column = int(last[point])
        if column < 0:
            nothing = Newest(math.nan, math.nan, math.nan, "", 0, "") if skipped[point] else None
            found.append(nothing)
            continue
        started = np.where(has_result[:, column, point], lines.started[rows, column, point], -np.inf)
        row = rows[int(started.argmax())]
        at = row, column, point
        value = None if lines.status[at] == FAILED else float(lines.values[at])
        commit = history.commits[column]
        found.append(
            Newest(
                value,
                float(lines.low[at]),
                float(lines.high[at]),
                commit,
                history.dates[column],
                history.machines[row].name,
                commit == newest and len(rows) == 1,
            )
        )
    return found


def _base(found: Iterable[Sequence[Sequence[Newest | None]]], columns: Sequence[int]) -> int:
    """Of these columns the one with the most numbers, the first of several."""
    counts = dict.fromkeys(columns, 0)
    for of_metric in found:
        for column in columns:
            counts[column] += sum(newest is not None and newest.measured for newest in of_metric[column])
    return max(counts, key=lambda column: counts[column], default=0)


def _group(metric: TrackedMetric, columns: Sequence[Sequence[Newest | None]], base: int) -> Group:
    rows = []
    for number, label in enumerate(metric.points.labels):
        results = [column[number] for column in columns]
        if not any(result is not None and (result.value is None or result.measured) for result in results):
            continue  # nobody has a number or a failure; why is on the page of nodes
        cells = tuple(make_cell(metric, result, results[base]) for result in results)
        texts = metric.points.texts[number]
        precision = next((formatting.unquoted(texts[name]) for name in texts if name in PRECISION_NAMES), "")
        rows.append(Row(label or "one point", cells, precision, history_link(metric.name, label)))
    return Group(
        title=metric.heading,
        metric=metric.metric,
        plugin=metric.plugin,
        unit=formatting.shown_unit(metric.unit).label,
        direction=metric.direction,
        link=history_link(metric.name, ""),
        rows=tuple(rows),
        paid=metric.unit in ("s", "Hz") or metric.unit.endswith("/s"),
        means=tuple(_mean(rows, column, base, metric.direction) for column in range(len(columns))),
    )


def _mean(rows: Sequence[Row], column: int, base: int, direction: str) -> Cell:
    """The geometric mean of a column's ratios to the base. text: over how many points."""
    if column == base:
        return Cell()
    ratios = [
        times
        for row in rows
        if row.cells[column].value and row.cells[base].value
        and (times := formatting.better_by(float(row.cells[column].value), float(row.cells[base].value), direction))
    ]  # fmt: skip
    if not ratios:
        return Cell()
    mean = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
    return Cell(ratio=formatting.ratio(mean), judgement=formatting.judge(mean), text=f"{len(ratios)} of {len(rows)}")
