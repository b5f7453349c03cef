"""The history of a point as a chart: a dot for each Record, never joined with that of another card;
and for each branch one line, the levels that its readings are fitted to."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from hpml_plugins.model.formatting import quantity
from hpml_plugins.report.site import svg

#: px.
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 920, 300, 80, 30, 20, 40
#: Of a chart: marks, of which all lines get equal parts, and labels below it.
MOST_MARKS, MOST_LABELS = 1500, 7


@dataclass(frozen=True)
class Dot:
    """One Record.  x: its place on the axis.  low, high: of the interval, or None.

    kind: classes in the style sheet: "apart" for a value that is not compared with the newest,
    "other" for one that does not count for its commit.
    """

    x: float
    value: float
    low: float | None
    high: float | None
    title: str
    kind: str = ""


@dataclass(frozen=True)
class Mark:
    """A change of level: better, worse, or "" where neither is better."""

    x: float
    value: float
    verdict: str
    title: str


@dataclass(frozen=True)
class ChartLine:
    """What one machine measured on one branch.  marker: of `svg.MARKERS`.  levels: corners of its
    line, (x, value).  missed: places without a number, with the reason."""

    name: str
    colour: str
    marker: str
    dash: str
    dots: Sequence[Dot]
    levels: Sequence[tuple[float, float]] = ()
    marks: Sequence[Mark] = ()
    missed: Sequence[tuple[float, str]] = field(default=())


def draw(
    lines: Sequence[ChartLine],
    labels: Sequence[tuple[float, str, str]],
    unit: str,
    about: str,
) -> Markup:
    """The chart as SVG.  labels: of the axis below, (x, text, second line), ascending."""
    dots = [dot for line in lines for dot in line.dots]
    values = [dot.value for dot in dots] or [1.0]
    logarithmic = svg.is_wide(values)
    ends = [end for dot in dots for end in (dot.low, dot.high) if end is not None]
    if logarithmic:
        ends = [end for end in ends if min(values) / 2 < end < 2 * max(values)]
    else:
        ends = svg.near(values, ends)
    axis = svg.extent([*values, *ends], logarithmic=logarithmic)
    y = svg.scale(axis, HEIGHT - BOTTOM, TOP, logarithmic=logarithmic)
    places = [x for x, *_ in labels] + [dot.x for dot in dots]
    low, high = min(places, default=0.0), max(places, default=1.0)
    x = svg.scale((low, high), LEFT + 14, WIDTH - RIGHT - 14, logarithmic=False)
    floor = HEIGHT - BOTTOM
    parts = svg.value_axis(axis, y, unit, LEFT, WIDTH - RIGHT, logarithmic=logarithmic)
    parts.append(svg.line(LEFT, floor, WIDTH - RIGHT, floor, "axis"))
    parts += _labels(labels, x, floor)
    step = math.ceil(len(dots) / MOST_MARKS) or 1
    for line in lines:
        parts.append(f'<g class="{line.colour}" data-line="{Markup.escape(line.name)}">')
        parts += _line(line, x, y, floor, step, axis)
        parts.append("</g>")
    return Markup(svg.picture(parts, WIDTH, HEIGHT, "history", about))


def _labels(
    labels: Sequence[tuple[float, str, str]], x: svg.Scale, floor: float
) -> Iterator[str]:
    step = math.ceil(len(labels) / MOST_LABELS) or 1
    for place, text, second in labels[::step]:
        yield svg.line(x(place), floor, x(place), floor + 5, "axis")
        yield svg.text(x(place), floor + 18, text, "tick", "middle")
        yield svg.text(x(place), floor + 32, second, "quiet", "middle")


def _line(
    line: ChartLine,
    x: svg.Scale,
    y: svg.Scale,
    floor: float,
    step: int,
    axis: tuple[float, float],
) -> Iterator[str]:
    if line.levels:
        corners = " ".join(f"{x(at):g},{y(value):g}" for at, value in line.levels)
        yield f'<polyline class="line" points="{corners}" stroke-dasharray="{line.dash}"/>'
    for dot in line.dots[::-1][::step]:  # the newest is drawn, whichever are left out
        if dot.low is not None and dot.high is not None and dot.high >= axis[0]:
            yield svg.line(
                x(dot.x), y(dot.low), x(dot.x), y(dot.high), f"whisker {dot.kind}"
            )
        yield svg.marker(
            line.marker, x(dot.x), y(dot.value), 3.6, f"value {dot.kind}", dot.title
        )
    for mark in line.marks:
        shape = {"better": "triangle-up", "worse": "triangle-down"}.get(
            mark.verdict, "diamond"
        )
        at = y(mark.value) - 14
        yield svg.marker(shape, x(mark.x), at, 5.5, f"change {mark.verdict}", mark.title)
    for place, why in line.missed:
        yield svg.marker("cross", x(place), floor - 5, 3, "missed", why)


def level_corners(
    levels: Sequence[tuple[float, float, float, float]],
) -> list[tuple[float, float]]:
    """The corners of a line of levels, each (first x, last x, value there, value here)."""
    corners: list[tuple[float, float]] = []
    for first, last, begin, end in levels:
        corners += (
            [(first, begin)]
            if (first, begin) == (last, end)
            else [(first, begin), (last, end)]
        )
    return corners


def dot_title(name: str, value: float, unit: str, *facts: str) -> str:
    """What a dot says."""
    return ", ".join([f"{name}: {quantity(value, unit)}", *filter(None, facts)])
