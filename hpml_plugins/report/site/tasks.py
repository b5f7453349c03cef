"""The rows of the first page: the questions to a GPU, the answer of each type, and how two types
compare.

registry.yaml names the rows (`tasks`). Without any, each benchmark has one row for its headline
metric.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hpml_plugins.analysis.measured import MeasuredValue
from hpml_plugins.analysis.sides import BOOST, PointSides, newest_run
from hpml_plugins.analysis.verdicts import Difference, ValuePair, compare_values
from hpml_plugins.model import formatting
from hpml_plugins.model.formatting import counted, format_point
from hpml_plugins.registry import TaskEntry
from hpml_plugins.report.reading import History
from hpml_plugins.report.site.matrix import HEADLINE_UNITS, Matrix, TaskCell, TaskRow
from hpml_plugins.store.declarations import asv_name

#: Said of two values of a row whose types never measured the same code with the same software.
OTHER_CODE = "different code or software"
#: Said of a value that nothing shows how far it varies; see `MeasuredValue.lacks_spread`.
SPREAD_UNKNOWN = "spread unknown"
#: The most rows of a page whose registry has no tasks.
MOST_ROWS = 12


def find_rows(
    tasks: dict[str, list[TaskEntry]], history: History, matrix: Matrix
) -> tuple[list[TaskRow], list[str]]:
    """The rows of the page, and the problems of tasks without a row, one line each."""
    if not tasks:
        return _headline_rows(matrix), []
    rows, problems = [], []
    for section, members in tasks.items():
        for task in members:
            benchmark, _, metric = task.metric.partition(".")
            name = asv_name(benchmark, metric)
            if name not in history.metrics:
                problems.append(f"task {task.task!r}: no benchmark here has {task.metric}")
                continue
            wanted = {name: repr(value) for name, value in task.point.items()}
            found = [
                row
                for row in matrix.rows
                if (row.metric.name, row.regime) == (name, "settled")
                and wanted.items() <= row.metric.benchmark.points[row.point].items()
            ]
            if len(found) > 1:
                points = "; ".join(row.point for row in found[:3])
                problems.append(
                    f"task {task.task!r} matches {len(found)} points: {points}, …"
                )
                continue
            point = format_point(task.point)
            tracked = history.metrics[name]
            nothing = TaskRow(tracked, point, task.regime, {}, frozenset(), "", "")
            row = replace(found[0] if found else nothing, task=task.task, section=section)
            rows.append(matrix.at_boost(row) if task.regime == BOOST else row)
    return (rows if any(row.cells for row in rows) else []), problems


def _headline_rows(matrix: Matrix) -> list[TaskRow]:
    """For each benchmark its headline metric, at the point that most types measured, then the
    largest; the MOST_ROWS benchmarks that most types measured.

    In columns of GPUs, a benchmark that needs no GPU is not informative and is left out.
    """
    gpus = {column.number for column in matrix.columns if column.hardware.is_gpu}
    found = []
    for benchmark, of_one in itertools.groupby(
        matrix.rows, key=lambda row: row.metric.benchmark
    ):
        rows = list(of_one)
        headline = rows[0].metric
        if not headline.direction or headline.unit not in HEADLINE_UNITS:
            continue
        left_out = set() if benchmark.needs_gpu else gpus
        measured = []
        for row in rows:
            cells = {
                number: cell for number, cell in row.cells.items() if number not in left_out
            }
            if cells and row.metric is headline and row.regime == "settled":
                measured.append(replace(row, cells=cells))
        if measured:
            found.append(largest_row(measured))
    found.sort(key=_reach, reverse=True)
    return sorted(found[:MOST_ROWS], key=lambda row: row.section)


def largest_row(rows: Sequence[TaskRow]) -> TaskRow:
    """The row that most types measured, among these the one with the largest value."""
    return max(rows, key=_reach)


def _reach(row: TaskRow) -> tuple[int, float]:
    """Sort key: how many types measured it, then its largest value."""
    return len(row.cells), max(cell.number.value for cell in row.cells.values())


@dataclass(frozen=True)
class RowDifference(Difference):
    """A verdict on a row.  compared: the values compared, if the row shows those of newer code:
    `with the code of 1a2b3c4d: 1.32 POP/s (3 runs) against 1.29 POP/s (1 run)`; OTHER_CODE if they
    have no code in common; else ""."""

    compared: str = ""


def judge_rows(rows: Sequence[TaskRow], base: int, other: int) -> dict[int, RowDifference]:
    """Index of a row → the verdict on a column against the base, corrected for all these rows.

    Both are compared at the newest code that both measured, or at the newest of each if there is
    none, in the regime of the row. A metric without a direction has no verdict.
    """
    pairs, numbers, compared = [], [], []
    for number, row in enumerate(rows):
        if not row.metric.direction or not {base, other} <= row.cells.keys():
            continue
        one = row.cells[base]
        another = row.cells[other]
        sides = PointSides(one.runs, another.runs, common=True)
        name = row.metric.metric
        values = sides.compared(name, row.regime, (one.values, another.values))
        pairs.append(ValuePair(number, *values, name))
        numbers.append(number)
        of_base, of_other = (of_side[name] for of_side in values)
        is_older = (of_base.code, of_other.code) != (one.number.code, another.number.code)
        text = ""
        if is_older:
            commit = newest_run([*sides.a, *sides.b]).origin.commit
            text = _tell_compared(of_base, of_other, commit, row)
        elif of_base.code != of_other.code:
            text = OTHER_CODE
        compared.append(text)
    return {
        number: RowDifference(**vars(found), compared=text)
        for number, found, text in zip(
            numbers, compare_values(pairs), compared, strict=True
        )
    }


def _tell_compared(
    of_base: MeasuredValue, of_other: MeasuredValue, commit: str, row: TaskRow
) -> str:
    values = [_tell_value(each, row.metric.unit) for each in (of_other, of_base)]
    code = f"with the code of {commit[:8]}" if commit else "with earlier code"
    return f"{code}: {' against '.join(values)}"


def _tell_value(value: MeasuredValue, unit: str) -> str:
    """The value, and of how many runs it is the mean: `1.32 POP/s (3 runs)`."""
    runs = sum(level.runs for level in value.levels) or 1
    return f"{formatting.quantity(value.value, unit)} ({counted(runs, 'run')})"


def describe(row: TaskRow) -> str:
    """What is measured, in the benchmark's terms: `roof_copy.bandwidth, mebibytes=4096`."""
    of = row.metric.benchmark.name
    name = f"{of}.{row.metric.metric}" if of != row.metric.name else of
    return ", ".join(filter(None, [name, row.point]))


def texts(cell: TaskCell, unit: str) -> tuple[str, str]:
    """The number with its unit, and half the width of its interval, or that its spread is unknown;
    "" for a count."""
    if cell.number.lacks_spread:
        return formatting.quantity(cell.number.value, unit), SPREAD_UNKNOWN
    return formatting.split_estimate(formatting.estimate(cell.number.estimate, unit))
