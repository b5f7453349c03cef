"""The page `gpus.html`: benchmarks by GPU type, with ratios and verdicts against a base, prices and
energy.

The page's script reads `gpus/rows.js` (what rows and columns there are), `gpus/column-N.js` (the
values of one column) and `gpus/verdicts-N.js` (verdicts against one base), the last two for the
chosen columns alone.
"""

from __future__ import annotations

import datetime
import itertools
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec

from hpml_plugins.analysis.measured import Values
from hpml_plugins.analysis.sides import BOOST, MeasuredRun, PointSides, boosted, side_values
from hpml_plugins.analysis.verdicts import DIFFERENT_PROBLEMS, compare_values
from hpml_plugins.model import formatting
from hpml_plugins.published import SPELLINGS, find_gpu
from hpml_plugins.registry import read_yaml
from hpml_plugins.report.reading import Hardware, History, TrackedMetric
from hpml_plugins.report.shares import describe_shares, measured_power
from hpml_plugins.report.site.page import day, write_data, write_page
from hpml_plugins.store import of_node

#: Parameters that say in which precision a point computes.
PRECISION_NAMES = ("dtype", "precision", "bits")
#: Units of headline metrics: a benchmark's first rate in this order or, where it has none, its
#: first time.
HEADLINE_UNITS = ("FLOP/s", "OP/s", "B/s", "1/s", "s")
#: Beside the registry. No file, no prices.
PRICES_FILE = "gpu-prices.yaml"
#: Verdict on B against A → the letter of that on A against B.
_OPPOSITE = {"BETTER": "w", "WORSE": "b"}
#: Verdict → its letter.
_LETTERS = {"BETTER": "b", "WORSE": "w", "SAME": "s", "BOUND": "r", "AMBIGUOUS": "a"}


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
class Cell:
    """What one point gave on one hardware: the mean over its cards of all Records of the newest
    code. The page's script adds the ratio to the base.

    status: "ok", "failed", "skipped" or "" for nothing at all.  text, interval: of
    `formatting.estimate`, and the regime.  value: the number at seven digits, for the script.
    title: the tooltip.  watts: measured under this load, by the newest Record.  values: of all its
    metrics.  runs: all measured Records of the point, of any code.  started: Unix time, s.
    """

    status: str = ""
    text: str = ""
    interval: str = ""
    value: str = ""
    title: str = ""
    watts: str = ""
    values: Values = field(default_factory=dict, repr=False)
    runs: tuple[MeasuredRun, ...] = field(default=(), repr=False)
    started: float = 0.0


@dataclass(frozen=True)
class Column:
    """A GPU type and number of GPUs. machines: those that have it.  newest: their newest commit, or
    "".

    price, watts: of all its GPUs, an hour and at most; None where it is not known.
    """

    hardware: Hardware
    machines: tuple[str, ...]
    newest: str
    price: float | None
    watts: float | None


@dataclass(frozen=True)
class Row:
    """One point of a metric, with one cell per column. precision: its dtype, where it has such a
    parameter.  regime: "boost" where the values are those before the cards throttled, else "": a
    point that any card throttled at has a row of each."""

    point: str
    cells: tuple[Cell, ...]
    precision: str
    regime: str = ""


@dataclass(frozen=True)
class Group:
    """One metric, with the points that have a number or a failure somewhere.

    paid: "time" or "rate" where a price or an energy of it means something, else "": a rate of
    which more is better; a time that a run takes, which is the first time that its benchmark
    declares or has declared work. A deviation of times is neither.
    """

    metric: TrackedMetric
    rows: tuple[Row, ...]
    paid: str = ""


@dataclass(frozen=True)
class Matrix:
    """The page's content.

    groups: those of one benchmark together, its headline first.  base: the column that ratios are
    against before a reader chooses, counted from 0.  partners: for each column the other one that
    it is shown beside, that with which it has most points in common; None where it has none.
    """

    columns: tuple[Column, ...]
    groups: tuple[Group, ...]
    commits: int
    base: int
    partners: tuple[int | None, ...]
    currency: str

    @property
    def chosen(self) -> list[int]:
        """The columns that are shown before a reader chooses."""
        both = (self.base, self.partners[self.base]) if self.columns else ()
        return sorted(number for number in both if number is not None)

    @property
    def headlines(self) -> Iterator[Group]:
        """Of each benchmark the first metric with rows of which all chosen columns have a number,
        with those rows."""
        for _, groups in itertools.groupby(
            self.groups, key=lambda group: group.metric.benchmark.name
        ):
            for group in groups:
                rows = tuple(
                    row
                    for row in group.rows
                    if not row.regime
                    and all(row.cells[number].value for number in self.chosen)
                )
                if rows:
                    yield Group(group.metric, rows, group.paid)
                    break


def judge(matrix: Matrix) -> list[list[str]]:
    """Verdicts, all rows of each two columns at once, at the newest code that both measured.

    Base → column → a letter for each row of all groups: b better than the base, w worse, s same, r
    undecided within bounds, a no verdict, d different problems; "-" where one has no number.
    """
    rows = [
        (row.cells, group.metric.metric, row.regime)
        for group in matrix.groups
        for row in group.rows
    ]
    count = len(matrix.columns)
    letters = [[bytearray(b"-" * len(rows)) for _ in range(count)] for _ in range(count)]
    for first, second in itertools.combinations(range(count), 2):
        asked, pairs = [], []
        # all metrics of a point have the same runs
        sides: dict[tuple[int, int], PointSides[MeasuredRun]] = {}
        for n, (cells, name, regime) in enumerate(rows):
            one, other = cells[first], cells[second]
            if not (one.value and other.value):
                continue
            place = id(one.runs), id(other.runs)
            if place not in sides:
                sides[place] = PointSides(one.runs, other.runs, common=True)
            values = sides[place].compared(name, regime, (one.values, other.values))
            asked.append(n)
            pairs.append((*values, name))
        for n, found in zip(asked, compare_values(pairs), strict=True):
            verdict = (
                "d"
                if found.reason.startswith(DIFFERENT_PROBLEMS)
                else _LETTERS[found.verdict]
            )
            letters[first][second][n] = ord(verdict)
            letters[second][first][n] = ord(_OPPOSITE.get(found.verdict, verdict))
    return [[each.decode() for each in line] for line in letters]


def build(history: History, costs: Costs) -> Matrix:
    """The matrix of a history, sorted by benchmark and point; a benchmark of which no GPU has a
    number comes last."""
    hardware = sorted({machine.hardware for machine in history.machines})
    columns = tuple(
        column for each in hardware if (column := _column(each, history, costs)).newest
    )
    declared = {name: place for place, name in enumerate(history.metrics)}
    groups: list[Group] = []
    runs: _Runs = {}
    for _, metrics in itertools.groupby(
        history.measured, key=lambda metric: metric.benchmark.name
    ):
        rows = {metric.name: _rows(metric, history, columns, runs) for metric in metrics}
        found = [history.metrics[name] for name in rows if rows[name]]
        worked = {
            name
            for each in found
            for _, record in each.benchmark.current.values()
            for name in record.work
        }
        found.sort(key=lambda each: (headline_rank(each), declared[each.name]))
        times = [
            metric for metric in found if (metric.unit, metric.direction) == ("s", "lower")
        ]
        of_a_run = {
            metric.name for metric in times if metric.metric in worked or metric is times[0]
        }
        groups += [
            Group(metric, rows[metric.name], _paid(metric, metric.name in of_a_run))
            for metric in found
        ]
    on_gpus = {
        group.metric.benchmark.name
        for group in groups
        for row in group.rows
        if any(
            cell.value and column.hardware.kind == 0
            for cell, column in zip(row.cells, columns, strict=True)
        )
    }
    groups.sort(key=lambda group: group.metric.benchmark.name not in on_gpus)
    base, partners = _choose(columns, groups)
    return Matrix(
        columns, tuple(groups), len(history.commits), base, partners, costs.currency
    )


def headline_rank(metric: TrackedMetric) -> int:
    """A benchmark's metrics of the lowest rank speak for it: see HEADLINE_UNITS; then any with a
    direction."""
    if metric.direction and metric.unit in HEADLINE_UNITS:
        return HEADLINE_UNITS.index(metric.unit)
    return len(HEADLINE_UNITS) + (not metric.direction)


def _paid(metric: TrackedMetric, of_a_run: bool) -> str:
    if metric.direction == "higher" and (metric.unit == "Hz" or metric.unit.endswith("/s")):
        return "rate"
    return "time" if of_a_run else ""


def _choose(
    columns: Sequence[Column], groups: Sequence[Group]
) -> tuple[int, tuple[int | None, ...]]:
    """Base and partners: first two different GPU types, with most points in common; of two GPUs the
    first is base."""
    rows = [row for group in groups for row in group.rows if not row.regime]
    numbers = [
        sum(bool(row.cells[n].value) << place for place, row in enumerate(rows))
        for n in range(len(columns))
    ]

    def rank(first: int, second: int) -> tuple[bool, int, bool, int]:
        common = (numbers[first] & numbers[second]).bit_count()
        a, b = columns[first].hardware, columns[second].hardware
        return common > 0, (a.kind == 0) + (b.kind == 0), a.gpu != b.gpu, common

    partners: list[int | None] = []
    for n in range(len(columns)):
        others = [each for each in range(len(columns)) if each != n]
        best = max(others, key=lambda other: rank(n, other), default=None)
        partners.append(best if best is not None and rank(n, best)[0] else None)

    def worth(n: int) -> tuple[Any, ...]:
        partner = partners[n]
        together = rank(n, partner) if partner is not None else (False, 0, False, 0)
        return together[0], columns[n].hardware.kind == 0, together, numbers[n].bit_count()

    base = max(range(len(columns)), key=worth, default=0)
    partner = partners[base] if columns else None
    if (
        partner is not None
        and columns[partner].hardware.kind == columns[base].hardware.kind
    ):
        base = min(base, partner)  # as on the first page
    return base, tuple(partners)


def _column(hardware: Hardware, history: History, costs: Costs) -> Column:
    machines = tuple(
        machine.name for machine in history.machines if machine.hardware == hardware
    )
    seen = set().union(*(history.seen.get(machine, ()) for machine in machines))
    newest = history.commits[max(seen)] if seen else ""
    price, card = (
        costs.prices.get(hardware.gpu),
        find_gpu(hardware.gpu) if hardware.kind == 0 else None,
    )
    of_all = (
        (one and hardware.count * one) or None
        for one in (price, card.power if card else None)
    )
    return Column(hardware, machines, newest, *of_all)


#: The runs of a point on a column.
_Runs = dict[tuple[str, str, int], tuple[MeasuredRun, ...]]


def _rows(
    metric: TrackedMetric, history: History, columns: Sequence[Column], runs: _Runs
) -> tuple[Row, ...]:
    rows = []
    for label, texts in metric.benchmark.points.items():
        cells = tuple(
            _cell(
                metric,
                label,
                history,
                column,
                _runs_of(metric, label, column, number, runs),
            )
            for number, column in enumerate(columns)
        )
        # else the page of nodes says why
        if any(cell.status in ("ok", "failed") for cell in cells):
            precision = next(
                (
                    formatting.unquoted(texts[name])
                    for name in texts
                    if name in PRECISION_NAMES
                ),
                "",
            )
            settled = Row(label, cells, SPELLINGS.get(precision, precision))
            at_boost = tuple(_at_boost(cell, metric) for cell in cells)
            rows.append(settled)
            if any(cell.value for cell in at_boost):
                rows.append(replace(settled, cells=at_boost, regime=BOOST))
    return tuple(rows)


def _at_boost(cell: Cell, metric: TrackedMetric) -> Cell:
    """The cell of the regime boost; empty where the card did not throttle.

    No power: the sensor is slower than a burst.
    """
    number = cell.values.get(metric.metric)
    if number is None or number.boosted is None:
        return Cell()
    text, interval = formatting.split_estimate(
        formatting.estimate(number.boosted.estimate, metric.unit)
    )
    return replace(
        cell,
        text=text,
        interval=f"{interval} {BOOST}".strip(),
        value=f"{number.boosted.value:.7g}",
        watts="",
        values=boosted(cell.values),
    )


def _runs_of(
    metric: TrackedMetric, label: str, column: Column, number: int, known: _Runs
) -> tuple[MeasuredRun, ...]:
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
            MeasuredRun(
                next(iter(each.readings.values())).code,
                index.rank(each),
                each.readings,
            )
            for each in of_node(found)
        )
    return known[key]


def _cell(
    metric: TrackedMetric,
    label: str,
    history: History,
    column: Column,
    runs: tuple[MeasuredRun, ...],
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
        return Cell("skipped", "–") if any(lines.values()) else Cell()
    rank = metric.benchmark.index.rank
    outcome, newest, machine = max(results, key=lambda each: rank(each[0]))
    at = history.columns[outcome.revision]
    # the column's head says so
    told = history.commits[at] == column.newest and len(column.machines) == 1
    origin = (
        ""
        if told
        else f"commit {history.commits[at][:8]} of {day(history.dates[at])}, on {machine}"
    )
    if newest is None:
        return Cell("failed", "failed", title=origin)
    alike = [run for run in runs if run.code == newest.code]
    values = side_values(alike) if alike else outcome.readings
    number = values.get(metric.metric, newest)
    text, interval = formatting.split_estimate(
        formatting.estimate(number.estimate, metric.unit)
    )
    small = f"{interval} {number.regime}".strip()
    cards = f"mean of {len(number.levels)} cards" if len(number.levels) > 1 else ""
    current = metric.benchmark.current.get((label, machine))
    of_limits = (
        describe_shares(current[1], history.roofs[machine], metric.metric)
        if current
        else ""
    )
    title = ", ".join(filter(None, [origin, cards, of_limits]))
    watts = measured_power(current[1]) if current else None
    power = f"{watts:.4g}" if watts else ""
    return Cell(
        "ok",
        text,
        small,
        f"{number.value:.7g}",
        title,
        power,
        values,
        runs,
        outcome.started,
    )


def write_gpu_types(
    matrix: Matrix, verdicts: Sequence[Sequence[str]], html_dir: Path, project: str
) -> None:
    """Write the page and its data."""
    now = datetime.datetime.now(datetime.UTC)
    write_page(html_dir, "gpus.html", matrix=matrix, project=project, published=now)
    # of an earlier publish, which may have had more columns
    shutil.rmtree(html_dir / "gpus", ignore_errors=True)
    write_data(html_dir, "gpus/rows.js", rows_data(matrix))
    for number in range(len(matrix.columns)):
        write_data(html_dir, f"gpus/column-{number}.js", column_data(matrix, number))
        write_data(html_dir, f"gpus/verdicts-{number}.js", verdicts[number])


def rows_data(matrix: Matrix) -> dict[str, Any]:
    """What rows and columns there are.

    groups: [asv's name, title, heading, plugin, unit in words, direction, paid, which of `points`,
    terms, the unit behind numbers].
    points: lists of [point, precision, regime]; metrics of one benchmark have the same ones, which
    are stored once.
    """
    points: dict[tuple[tuple[str, str, str], ...], int] = {}
    groups = []
    for group in matrix.groups:
        metric, benchmark = group.metric, group.metric.benchmark
        unit = formatting.shown_unit(metric.unit)
        words = str(unit) if metric.unit != "1" else ""
        place = points.setdefault(
            tuple((row.point, row.precision, row.regime) for row in group.rows), len(points)
        )
        plain = (metric.name, metric.title, benchmark.heading, benchmark.plugin)
        terms = {
            term: text
            for row in group.rows
            for term, text in benchmark.explain(row.point).items()
        }
        groups.append(
            (*plain, words, metric.direction, group.paid, place, terms, unit.label)
        )
    columns = [
        (each.hardware.label, each.machines, each.newest[:8], each.price, each.watts)
        for each in matrix.columns
    ]
    return {
        "columns": columns,
        "groups": groups,
        "points": list(points),
        "base": matrix.base,
        "partners": matrix.partners,
        "currency": matrix.currency,
        "precisions": SPELLINGS,
    }


def column_data(matrix: Matrix, number: int) -> dict[str, Any]:
    """The cells of one column that are not empty, as columns of equal length; empty where it has
    none at all.

    rows: place among the rows of all groups.  status: a letter each: o ok, f failed, s skipped.
    watts: measured, W.
    """
    of_all = (row.cells[number] for group in matrix.groups for row in group.rows)
    found = {place: cell for place, cell in enumerate(of_all) if cell.status}
    cells = list(found.values())
    listed = {
        name: [getattr(cell, name[:-1]) for cell in cells]
        for name in ("texts", "intervals", "titles")
    }
    return {
        "rows": list(found),
        "status": "".join(cell.status[0] for cell in cells),
        "values": [float(cell.value) if cell.value else None for cell in cells],
        "watts": [float(cell.watts or 0) for cell in cells]
        if any(cell.watts for cell in cells)
        else [],
        **{name: texts if any(texts) else [] for name, texts in listed.items()},
    }
