"""The sweep of a workload: its headline metric over a parameter, with a line for each GPU type and
choice of the other parameters."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise

from markupsafe import Markup

from hpml_plugins.model import formatting
from hpml_plugins.report.site import line_chart, svg
from hpml_plugins.report.site.line_chart import ChartLine, Dot, dot_title
from hpml_plugins.report.site.matrix import TaskRow, TypeColumn
from hpml_plugins.store.declarations import value_of

#: The fewest values of a parameter for a sweep.
ENOUGH = 3
#: The most choices of the other parameters that are drawn.
MOST_CHOICES = 3
_SHAPES = ("circle", "square", "triangle-up")
_BINARY = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
#: The other parameters of a point: names and texts.
Choice = tuple[tuple[str, str], ...]


def draw_sweep(
    rows: Sequence[TaskRow], lead: int | None, columns: Sequence[TypeColumn]
) -> tuple[str, Markup] | None:
    """The swept parameter, and the chart; None if no parameter has several numbers.

    CPUs are left out beside GPUs: an axis that includes them would hide differences between GPUs.
    """
    if lead is None:
        return None
    first = rows[lead]
    alike = [
        row for row in rows if row.metric is first.metric and row.regime == first.regime
    ]
    swept = _parameter(alike)
    if swept is None:
        return None
    gpus = [column for column in columns if column.count]
    shown = gpus or list(columns)
    choices = _choices(alike, swept, first)
    lines = {
        (column, choice): points
        for choice in choices
        for column in shown
        if len(points := _points(alike, swept, choice, column.number)) > 1
    }
    if not lines:
        return None
    texts = {
        number: _text(row, swept)
        for row in alike
        if (number := _number(row, swept)) is not None
    }
    return swept, _draw(lines, choices, swept, texts, first)


def _number(row: TaskRow, name: str) -> float | None:
    """A parameter of a row as a number: for `16MiB` the bytes."""
    value = value_of(row.metric.benchmark.points[row.point].get(name, "None"))
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        digits = value[:-3]
        ending = value[-3:]
        if ending in _BINARY and digits.isdigit():
            return float(digits) * _BINARY[ending]
        return None
    found = float(value) if isinstance(value, int | float) else math.nan
    return found if math.isfinite(found) else None


def _text(row: TaskRow, name: str) -> str:
    """A parameter of a row for readers: `16MiB`, `16,384`."""
    value = value_of(row.metric.benchmark.points[row.point][name])
    return value if isinstance(value, str) else f"{value:,.6g}"


def _parameter(rows: Sequence[TaskRow]) -> str | None:
    """The parameter with the most numbers among the points."""
    counts = {}
    for name in rows[0].metric.benchmark.points[rows[0].point]:
        counts[name] = len({_number(row, name) for row in rows} - {None})
    best = max(counts, key=lambda name: counts[name], default=None)
    return best if best is not None and counts[best] >= ENOUGH else None


def _choice(row: TaskRow, swept: str) -> Choice:
    texts: Mapping[str, str] = row.metric.benchmark.points[row.point]
    return tuple((name, text) for name, text in texts.items() if name != swept)


def _in_short(choice: Choice, choices: Sequence[Choice]) -> str:
    """What distinguishes a choice from the others: `bfloat16`, if they differ in one parameter."""
    own = {
        name: text for name, text in choice if any((name, text) not in c for c in choices)
    }
    if len(own) == 1:
        return str(value_of(*own.values()))
    return formatting.format_point_texts(own)


def _choices(rows: Sequence[TaskRow], swept: str, lead: TaskRow) -> list[Choice]:
    """The choice of the leading point, then those with most points."""
    counted = Counter(_choice(row, swept) for row in rows if row.cells)
    others = [
        choice for choice, _ in counted.most_common() if choice != _choice(lead, swept)
    ]
    return [_choice(lead, swept), *others][:MOST_CHOICES]


def _points(
    rows: Sequence[TaskRow], swept: str, choice: Choice, column: int
) -> list[tuple[float, float]]:
    found = [
        (number, row.cells[column].number.value)
        for row in rows
        if column in row.cells
        and _choice(row, swept) == choice
        and (number := _number(row, swept)) is not None
    ]
    return sorted(found)


def _interrupted(
    points: Sequence[tuple[float, float]], measured: Iterable[float]
) -> Iterator[tuple[float, float]]:
    """The corners of a line, with NaN where others were measured: a straight line there would be
    read as their value.  measured: numbers of all lines of this choice."""
    values = dict(points)
    for x in sorted(measured):
        if points[0][0] <= x <= points[-1][0]:
            yield x, values.get(x, math.nan)


def _draw(
    lines: Mapping[tuple[TypeColumn, Choice], Sequence[tuple[float, float]]],
    choices: Sequence[Choice],
    swept: str,
    texts: Mapping[float, str],
    lead: TaskRow,
) -> Markup:
    """texts: labels of the numbers."""
    measured: dict[Choice, set[float]] = {}
    for (_, choice), points in lines.items():
        measured.setdefault(choice, set()).update(x for x, _ in points)
    drawn = []
    for (column, choice), points in lines.items():
        place = choices.index(choice)
        label = column.label.removeprefix("NVIDIA ")
        name = ", ".join(filter(None, [label, _in_short(choice, choices)]))
        dots = [
            Dot(
                x,
                value,
                None,
                None,
                partial(dot_title, f"{name}, {swept} {texts[x]}", value, lead.metric.unit),
            )
            for x, value in points
        ]
        ascending = all(a[0] < b[0] for a, b in pairwise(points))
        line = list(_interrupted(points, measured[choice])) if ascending else ()
        drawn.append(
            ChartLine(name, column.colour, _SHAPES[place], svg.DASHES[place], dots, line)
        )
    numbers = sorted({x for points in lines.values() for x, _ in points})
    labels = [(number, texts[number], "") for number in numbers]
    about = f"{lead.metric.title} over {swept}"
    return line_chart.draw(drawn, labels, lead.metric.unit, about, swept)
