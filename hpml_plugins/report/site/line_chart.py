"""A chart of dots and lines: the history of a point, with a dot for each Record, a line for each
branch, and the fitted levels; or a sweep over a parameter."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from markupsafe import Markup, escape

from hpml_plugins.model.formatting import quantity
from hpml_plugins.report.site import svg

#: px: the left end of the axes.
LEFT = 80
RIGHT = 890
TOP = 20
FLOOR = 260
#: px beside the axes.
MARGIN = 30
#: px between labels below the axis.
GAP = 110
#: px: the right end of a sweep's axis, with a legend beside it.
SWEEP_RIGHT = 710
#: px: the width of that legend.
LEGEND = 270
#: px between labels below a sweep's axis.
SWEEP_GAP = 50
#: The most marks of a chart, divided equally among its lines.
MOST_MARKS = 1500
#: Radius of a mark, px.
SIZE = 3.6
#: Characters of a name in the legend.
LONGEST_NAME = 36
#: Verdict of a change → its marker.
CHANGES = {"better": "triangle-up", "worse": "triangle-down"}


class Dot(NamedTuple):
    """One Record.  x: its position on the axis.  low, high: of the interval, or None.

    title: returns its text, and is only called for dots that are drawn.  kind: classes in the style
    sheet: "apart" for a value that is not compared with the newest, "other" for one that does not
    count for its commit.
    """

    x: float
    value: float
    low: float | None
    high: float | None
    title: Callable[[], str]
    kind: str = ""


@dataclass(frozen=True)
class Mark:
    """A change of level: better, worse, or "" if neither is better."""

    x: float
    value: float
    verdict: str
    title: str


@dataclass(frozen=True)
class ChartLine:
    """The measurements of one machine on one branch.  marker: as `svg.marker` draws it.  levels:
    corners of its line, (x, value); the line is interrupted where the value is NaN.  missed:
    positions without a number, with the reason."""

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
    across: str = "",
) -> Markup:
    """The chart as SVG.

    labels: of the axis below, (x, text, second line), ascending.  across: the title of that axis;
    with it, the axis may be logarithmic, and a legend is placed beside the chart.
    """
    right, gap = (SWEEP_RIGHT, SWEEP_GAP) if across else (RIGHT, GAP)
    dots = [dot for line in lines for dot in line.dots]
    values = [dot.value for dot in dots] or [1.0]
    is_wide = svg.is_wide(values)
    ends = [end for dot in dots for end in (dot.low, dot.high) if end is not None]
    if is_wide:
        least = min(values) / 2
        most = 2 * max(values)
        ends = [end for end in ends if least < end < most]
    else:
        ends = svg.near(values, ends)
    y = svg.PixelAxis.around([*values, *ends], FLOOR, TOP, logarithmic=is_wide)
    places = [x for x, *_ in labels] + [dot.x for dot in dots] or [0.0, 1.0]
    stretched = bool(across) and svg.is_wide(places)
    x = svg.PixelAxis(min(places), max(places), LEFT + 14, right - 14, stretched)
    parts = [*_draw_axes(x, y, list(_apart(labels, x, gap)), unit, right)]
    if across:
        parts.append(svg.text((LEFT + right) / 2, FLOOR + 36, across, "tick", "middle"))
    step = math.ceil(len(dots) / MOST_MARKS) or 1
    for number, line in enumerate(lines):
        parts.append(f'<g class="{escape(line.colour)}" data-line="{escape(line.name)}">\n')
        parts += _draw_line(line, x, y, step)
        legend = TOP + 16 * number + 4
        if across and legend < FLOOR:
            name = _shortened(line.name)
            parts.append(svg.marker(line.marker, right + 14, legend - 4, SIZE))
            parts.append(svg.text(right + 24, legend, name, "legend"))
        parts.append("</g>\n")
    width = right + (LEGEND if across else MARGIN)
    return svg.picture("history", width, FLOOR + 42, about, parts)


def _draw_axes(
    x: svg.PixelAxis,
    y: svg.PixelAxis,
    labels: Sequence[tuple[float, str, str]],
    unit: str,
    right: float,
) -> Iterator[str]:
    ticks = [(y(value), words) for value, words in y.ticks(unit)]
    yield svg.path("grid", "".join(f"M{LEFT} {at:g}H{right:g}" for at, _ in ticks))
    yield svg.texts("tick", "end", [(LEFT - 8, at + 4, words) for at, words in ticks])
    places = [x(place) for place, *_ in labels]
    below = "".join(f"M{at:g} {FLOOR}v5" for at in places)
    yield svg.path("axis", f"M{LEFT} {FLOOR}H{right:g}{below}")
    lines = list(zip(places, labels, strict=True))
    yield svg.texts("tick", "middle", [(at, FLOOR + 18, label[1]) for at, label in lines])
    if any(second for *_, second in labels):
        seconds = [(at, FLOOR + 32, label[2]) for at, label in lines if label[2]]
        yield svg.texts("quiet", "middle", seconds)


def _draw_line(
    line: ChartLine, x: svg.PixelAxis, y: svg.PixelAxis, step: int
) -> Iterator[str]:
    """step: draw every step-th dot, counted back from the newest, which is always drawn."""
    dash = f' stroke-dasharray="{line.dash}"' if line.dash else ""
    for interrupted, part in groupby(line.levels, lambda corner: math.isnan(corner[1])):
        corners = [f"{x(at):g},{y(value):g}" for at, value in part if not interrupted]
        if len(corners) > 1:
            yield f'<polyline class="line" points="{" ".join(corners)}"{dash}/>\n'
    whiskers: dict[str, str] = {}
    drawn: list[str] = []
    for dot in line.dots[::-1][::step]:
        at = x(dot.x)
        if dot.low is not None and dot.high is not None and dot.high >= y.low:
            interval = f"M{at:g} {y(dot.low):g}V{y(dot.high):g}"
            whiskers[dot.kind] = whiskers.get(dot.kind, "") + interval
        shown = svg.marker(line.marker, at, y(dot.value), SIZE, dot.kind, dot.title())
        drawn.append(shown + "\n")
    for kind, course in whiskers.items():
        yield svg.path(f"whisker {kind}".rstrip(), course)
    yield from drawn
    for mark in line.marks:
        shape = CHANGES.get(mark.verdict, "diamond")
        kind = f"change {mark.verdict}".rstrip()
        place = x(mark.x), y(mark.value) - 14
        yield svg.marker(shape, *place, 5.5, kind, mark.title) + "\n"
    for at, why in line.missed:
        yield svg.marker("cross", x(at), FLOOR - 5, 3, "missed", why)


def _shortened(name: str) -> str:
    """A name for the legend, cut between words."""
    if len(name) <= LONGEST_NAME:
        return name
    end = " …"
    return name[: LONGEST_NAME - len(end)].rsplit(" ", 1)[0] + end


def _apart(
    labels: Sequence[tuple[float, str, str]], x: svg.PixelAxis, gap: float
) -> Iterator[tuple[float, str, str]]:
    """The labels for which there is space."""
    last = -math.inf
    for label in labels:
        if x(label[0]) - last >= gap:
            last = x(label[0])
            yield label


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
    """The title of a dot."""
    return ", ".join([f"{name}: {quantity(value, unit)}", *filter(None, facts)])
