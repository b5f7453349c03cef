"""The rows of the first page: what a reader asks a GPU for, what each type answers, and how two
types compare.

registry.yaml names the rows (`tasks`). A project without any has one row for each benchmark, of its
headline metric.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hpml_plugins.analysis.measured import MeasuredValue
from hpml_plugins.analysis.sides import BOOST, PointSides, at_boost, newest_run
from hpml_plugins.analysis.verdicts import Difference, compare_values
from hpml_plugins.model import formatting
from hpml_plugins.model.formatting import format_point
from hpml_plugins.registry import TaskEntry
from hpml_plugins.report.reading import History, TrackedMetric
from hpml_plugins.report.shares import share_of_peak
from hpml_plugins.report.site.matrix import (
    HEADLINE_UNITS,
    Cell,
    Column,
    Group,
    Matrix,
    PublishedRun,
    Row,
)
from hpml_plugins.store.declarations import asv_name

Regime = Literal["settled", "boost"]

#: Rows of a page whose registry names no tasks.
MOST_ROWS = 12


@dataclass(frozen=True)
class TaskCell:
    """What one GPU type gives for a task.

    number: the mean over its cards.  share: of the published peak, 0 to 1; None where it is not
    known.  watts: of the board under this load; 0 where nobody measured it.  runs: the measured
    Records behind the number, all of one code.
    """

    number: MeasuredValue
    share: float | None
    watts: float
    runs: tuple[PublishedRun, ...]

    @property
    def cards(self) -> int:
        """How many cards it is the mean of."""
        return len(self.number.levels) or 1


@dataclass(frozen=True)
class TaskRow:
    """One task.  point: "" for a benchmark without parameters.  cells: number of a column of the
    matrix → its cell, where it has a number.  source: None where nobody has measured it."""

    section: str
    task: str
    metric: TrackedMetric
    point: str
    regime: Regime
    cells: dict[int, TaskCell]
    source: Row | None

    def readings(self, column: int) -> list[MeasuredValue]:
        """The runs behind the number of a column, in this row's regime."""
        name = self.metric.metric
        return [_at(run.values[name], self.regime) for run in self.cells[column].runs]


def find_rows(
    tasks: dict[str, list[TaskEntry]], history: History, matrix: Matrix
) -> tuple[list[TaskRow], list[str]]:
    """The rows of the page, and what is wrong with tasks that have none, one line each."""
    if not tasks:
        return _headline_rows(history, matrix), []
    groups = {group.metric.name: group for group in matrix.groups}
    rows, problems = [], []
    for section, members in tasks.items():
        for task in members:
            benchmark, _, metric = task.metric.partition(".")
            name = asv_name(benchmark, metric)
            if name not in history.metrics:
                problems.append(f"task {task.task!r}: no benchmark here has {task.metric}")
                continue
            found = _rows_of(task, groups.get(name))
            if len(found) > 1:
                points = "; ".join(row.point for row in found[:3])
                problems.append(
                    f"task {task.task!r} means {len(found)} points: {points}, …"
                )
                continue
            of_row = section, task.task, history.metrics[name]
            if found:
                rows.append(_task_row(*of_row, found[0], task.regime, history, matrix))
            else:
                rows.append(
                    TaskRow(*of_row, format_point(task.point), task.regime, {}, None)
                )
    return (rows if any(row.cells for row in rows) else []), problems


def _rows_of(task: TaskEntry, group: Group | None) -> list[Row]:
    """The measured points that a task may mean."""
    if group is None:
        return []
    wanted = {name: repr(value) for name, value in task.point.items()}
    points = group.metric.benchmark.points
    return [
        row
        for row in group.rows
        if not row.regime and wanted.items() <= points[row.point].items()
    ]


def _task_row(
    section: str,
    task: str,
    metric: TrackedMetric,
    row: Row,
    regime: Regime,
    history: History,
    matrix: Matrix,
) -> TaskRow:
    cells = {
        number: _task_cell(metric, row.point, cell, column, regime, history)
        for number, (cell, column) in enumerate(zip(row.cells, matrix.columns, strict=True))
        if cell.number and metric.metric in cell.values
    }
    return TaskRow(section, task, metric, row.point, regime, cells, row)


def _task_cell(
    metric: TrackedMetric,
    point: str,
    cell: Cell,
    column: Column,
    regime: Regime,
    history: History,
) -> TaskCell:
    settled = cell.values[metric.metric]
    number = _at(settled, regime)
    runs = tuple(
        run for run in cell.runs if run.code == settled.code and metric.metric in run.values
    )
    records = [
        metric.benchmark.current[point, machine][1]
        for machine in column.machines
        if (point, machine) in metric.benchmark.current
    ]
    shares = (share_of_peak(record, metric.metric, number.value) for record in records)
    share = next((each for each in shares if each is not None), None)
    # no sensor is as fast as a burst
    watts = 0.0 if number is settled.boosted else cell.watts
    return TaskCell(number, share, watts, runs)


def _at(value: MeasuredValue, regime: Regime) -> MeasuredValue:
    return at_boost(value) if regime == BOOST else value


def rows_of_metric(group: Group, history: History, matrix: Matrix) -> list[TaskRow]:
    """Every point of a metric that was measured or failed somewhere; one that a GPU throttles at
    has a row for each regime."""
    metric, found = group.metric, []
    for row in group.rows:
        regime: Regime = "boost" if row.regime else "settled"
        of_row = metric.benchmark.plugin, metric.title, metric
        found.append(_task_row(*of_row, row, regime, history, matrix))
    return found


def _headline_rows(history: History, matrix: Matrix) -> list[TaskRow]:
    """Of each benchmark its headline metric, at the point that most types measured, then the
    largest; MOST_ROWS of those benchmarks that most types measured.

    On the columns of GPUs, a benchmark that needs none says nothing: it is left out there.
    """
    found = []
    for _, groups in itertools.groupby(
        matrix.groups, key=lambda group: group.metric.benchmark.name
    ):
        group = next(groups)
        metric = group.metric
        if not metric.direction or metric.unit not in HEADLINE_UNITS:
            continue
        rows = [
            _task_row(
                metric.benchmark.plugin,
                metric.title,
                metric,
                row,
                "settled",
                history,
                matrix,
            )
            for row in group.rows
            if not row.regime
        ]
        if not metric.benchmark.needs_gpu:
            for row in rows:
                for number in list(row.cells):
                    if matrix.columns[number].hardware.kind == 0:
                        del row.cells[number]
        measured = [row for row in rows if row.cells]
        if measured:
            found.append(largest_row(measured))
    found.sort(key=_reach, reverse=True)
    return sorted(found[:MOST_ROWS], key=lambda row: row.section)


def largest_row(rows: Sequence[TaskRow]) -> TaskRow:
    """Of rows with values that which most types measured, then that with the largest value."""
    return max(rows, key=_reach)


def _reach(row: TaskRow) -> tuple[int, float]:
    """For sorting: how many types measured it, then its largest value."""
    return len(row.cells), max(cell.number.value for cell in row.cells.values())


@dataclass(frozen=True)
class RowDifference(Difference):
    """A verdict on a row.  compared: of which values, where the row shows those of newer code: `at
    1a2b3c4d: 1.32 POP/s against 1.29 POP/s`."""

    compared: str = ""


def judge_rows(rows: Sequence[TaskRow], base: int, other: int) -> dict[int, RowDifference]:
    """Number of a row → the verdict on a column against the base, corrected for all these rows.

    Both are compared at the newest code that both measured, in the regime of the row. A metric
    without a direction has no verdict.
    """
    pairs, numbers, compared = [], [], []
    for number, row in enumerate(rows):
        if (
            row.source is None
            or not row.metric.direction
            or not {base, other} <= row.cells.keys()
        ):
            continue
        one, another = row.source.cells[base], row.source.cells[other]
        sides = PointSides(one.runs, another.runs, common=True)
        name = row.metric.metric
        values = sides.compared(name, row.regime, (one.values, another.values))
        pairs.append((*values, name))
        numbers.append(number)
        of_base, of_other = (of_side[name] for of_side in values)
        shown = row.cells[base].number.code, row.cells[other].number.code
        is_older = (of_base.code, of_other.code) != shown
        commit = newest_run([*sides.a, *sides.b]).commit if is_older else ""
        compared.append(_tell_compared(of_base, of_other, commit, row) if is_older else "")
    return {
        number: RowDifference(**vars(found), compared=text)
        for number, found, text in zip(
            numbers, compare_values(pairs), compared, strict=True
        )
    }


def _tell_compared(
    of_base: MeasuredValue, of_other: MeasuredValue, commit: str, row: TaskRow
) -> str:
    values = [
        formatting.quantity(each.value, row.metric.unit) for each in (of_other, of_base)
    ]
    return f"at {commit[:8] or 'an earlier commit'}: {' against '.join(values)}"


def describe(row: TaskRow) -> str:
    """What is measured, in the words of the benchmark: `roof_copy.bandwidth, mebibytes=4096`."""
    of = row.metric.benchmark.name
    name = f"{of}.{row.metric.metric}" if of != row.metric.name else of
    return ", ".join(filter(None, [name, row.point]))


def texts(cell: TaskCell, unit: str) -> tuple[str, str]:
    """The number with its unit, and half the width of its interval, "" without one."""
    return formatting.split_estimate(formatting.estimate(cell.number.estimate, unit))
