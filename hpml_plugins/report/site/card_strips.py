"""A picture of one row of a table: a line for each card, a dot for each Record, the interval for
the next card, and the published peak."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from hpml_plugins.analysis.measured import MeasuredValue
from hpml_plugins.model.formatting import quantity
from hpml_plugins.report.site import svg
from hpml_plugins.report.site.page import day
from hpml_plugins.report.site.task_table import TypeColumn
from hpml_plugins.report.site.tasks import TaskCell, TaskRow

#: px.
WIDTH, LEFT, RIGHT, LINE, TOP, BOTTOM = 920, 230, 60, 17, 22, 26
#: Lines of a picture, and dots of a line, at most.
MOST_CARDS, MOST_DOTS = 24, 200


@dataclass(frozen=True)
class TypeStrip:
    """One type.  colour: its class in the style sheet.  low, high: the interval for the next card.

    peak: the value that the published peak allows, or None.  cards: how many it is the mean of.
    spread: how far they differ, `2.1 %`; "" for one card.
    """

    name: str
    colour: str
    readings: Sequence[MeasuredValue]
    low: float | None
    high: float | None
    peak: float | None
    cards: int = 1
    spread: str = ""


def find_strips(row: TaskRow, columns: Sequence[TypeColumn]) -> list[TypeStrip]:
    """The types that have a value in a row."""
    return [
        _strip(row, row.cells[column.number], column)
        for column in columns
        if column.number in row.cells
    ]


def _strip(row: TaskRow, cell: TaskCell, column: TypeColumn) -> TypeStrip:
    estimate = cell.number.estimate
    shared = cell.share if row.metric.unit != "s" else None
    return TypeStrip(
        column.label,
        column.colour,
        row.readings(column.number) or [cell.number],
        estimate.low,
        estimate.high,
        cell.number.value / shared if shared else None,
        cell.cards,
        _spread(cell),
    )


def _spread(cell: TaskCell) -> str:
    levels = [level.level for level in cell.number.levels]
    if len(levels) < 2:
        return ""
    return f"{100 * (math.exp(max(levels) - min(levels)) - 1):.2g} %"


def draw(strips: Sequence[TypeStrip], unit: str) -> Markup:
    """The picture as SVG, with the values as titles."""
    lines = [
        (strip, card, values)
        for strip in strips
        for card, values in sorted(_by_card(strip.readings).items(), key=_smallest)
    ]
    hidden = max(0, len(lines) - MOST_CARDS)
    lines = lines[:MOST_CARDS]
    values = [value.value for _, _, of_card in lines for value in of_card]
    ends = [end for strip in strips for end in (strip.low, strip.high) if end is not None]
    peaks = [strip.peak for strip in strips if strip.peak and strip.peak < 2 * max(values)]
    axis = svg.extent([*values, *svg.near(values, ends), *peaks], logarithmic=False)
    x = svg.scale(axis, LEFT, WIDTH - RIGHT, logarithmic=False)
    floor = TOP + LINE * len(lines)
    parts = []
    for value in svg.ticks(axis, logarithmic=False):
        parts.append(svg.line(x(value), TOP, x(value), floor, "grid"))
        parts.append(
            svg.text(x(value), floor + 16, svg.short(value, unit), "tick", "middle")
        )
    parts += _bands(strips, lines, x)
    for number, (strip, card, of_card) in enumerate(lines):
        y = TOP + LINE * number + LINE // 2
        name = f"{strip.name.removeprefix('NVIDIA ')} {card}"
        parts.append(svg.text(LEFT - 10, y + 4, name[:40], "card", "end"))
        parts += [
            f'<circle class="{strip.colour}" cx="{x(each.value):g}" cy="{y}" r="4">'
            f"<title>{escape(_told(each, unit))}</title></circle>"
            for each in of_card[-MOST_DOTS:]
        ]
    if hidden:
        parts.append(svg.text(LEFT, TOP - 8, f"{hidden} more cards"))
    about = "One line per card, one dot per Record"
    return Markup(svg.picture(parts, WIDTH, floor + BOTTOM, "strip", about))


def _smallest(item: tuple[str, Sequence[MeasuredValue]]) -> float:
    return min(each.value for each in item[1])


def _told(value: MeasuredValue, unit: str) -> str:
    return f"{quantity(value.value, unit)}, {day(1000 * value.started, '%Y-%m-%d %H:%M')}"


def _by_card(readings: Sequence[MeasuredValue]) -> dict[str, list[MeasuredValue]]:
    """A short name of each card → its values."""
    found: dict[str, list[MeasuredValue]] = {}
    for reading in readings:
        found.setdefault(_short(reading.card), []).append(reading)
    return found


def _short(card: str) -> str:
    """`card 47a9f507` of GPU-47a9f507-…; several cards of one node are named by their number."""
    cards = [each.removeprefix("GPU-").removeprefix("MIG-") for each in card.split(",")]
    if len(cards) > 1:
        return f"{len(cards)} cards {cards[0][:8]} …"
    return (
        f"card {cards[0][:8]}"
        if card.startswith(("GPU-", "MIG-"))
        else f"run {cards[0][:8]}"
    )


def _bands(
    strips: Sequence[TypeStrip],
    lines: Sequence[tuple[TypeStrip, str, list[MeasuredValue]]],
    x: svg.Scale,
) -> list[str]:
    """The interval for the next card and the published peak of each type, behind its cards."""
    made = []
    for strip in strips:
        places = [number for number, (of, _, _) in enumerate(lines) if of is strip]
        if not places:
            continue
        top, bottom = TOP + LINE * places[0], TOP + LINE * (places[-1] + 1)
        if strip.low is not None and strip.high is not None:
            left, right = x(strip.low), x(strip.high)
            width = max(1.0, right - left)
            made.append(
                f'<rect class="band {strip.colour}" x="{left:g}" y="{top}" width="{width:g}"'
                f' height="{bottom - top}"><title>95 % interval for the next card</title></rect>'
            )
        if strip.peak:
            at = x(strip.peak)
            made.append(svg.line(at, top, at, bottom, "peak"))
            made.append(svg.text(at, TOP - 8, "published peak", "peak-label", "middle"))
    return made
