"""A picture of one row of a table: a line for each card, a dot for each Record, the interval for
the next card, and the published peak."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from hpml_plugins.analysis.measured import MeasuredValue
from hpml_plugins.model.formatting import quantity
from hpml_plugins.report.site import svg
from hpml_plugins.report.site.matrix import TaskCell, TaskRow, TypeColumn
from hpml_plugins.report.site.page import day
from hpml_plugins.report.site.strips import Strip, StripBand, draw_strips

#: The most lines of a picture, one per card.
MOST_CARDS = 24
#: Characters of the label beside a line.
LONGEST_LABEL = 32
#: The most dots of a line.
MOST_DOTS = 200


@dataclass(frozen=True)
class TypeStrip:
    """One type.  colour: its class in the style sheet.  low, high: the interval for the next card.

    peak: the value that corresponds to the published peak, or None.  cards: the number averaged.
    spread: the difference between them, `2.1 %`; "" for one card.
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
    cards = [
        (strip, card, values)
        for strip in strips
        for card, values in sorted(_by_card(strip.readings).items(), key=_smallest)
    ]
    shown = cards[:MOST_CARDS]
    lines = [
        Strip(
            f"{_of_type(strip.name)[: LONGEST_LABEL - len(card)]} {card}".rstrip(),
            strip.colour,
            [(each.value, _told(each, unit)) for each in values[-MOST_DOTS:]],
        )
        for strip, card, values in shown
    ]
    bands = []
    first = 0
    for strip, of_type in itertools.groupby(shown, key=operator.itemgetter(0)):
        end = first + len(list(of_type))
        bands.append(StripBand(first, end, strip.colour, strip.low, strip.high, strip.peak))
        first = end
    values = [each.value for _, _, of_card in shown for each in of_card]
    ends = [end for strip in strips for end in (strip.low, strip.high) if end is not None]
    peaks = [strip.peak for strip in strips if strip.peak and strip.peak < 2 * max(values)]
    axis = [*values, *svg.near(values, ends), *peaks]
    about = "One line per card, one dot per Record"
    return draw_strips(lines, axis, unit, about, bands, len(cards) - len(shown))


def _of_type(name: str) -> str:
    """`H200 ×1` for NVIDIA H200 ×1, `AMD EPYC` for no GPU (AMD EPYC)."""
    return name.removeprefix("NVIDIA ").removeprefix("no GPU (").removesuffix(")")


def _smallest(item: tuple[str, Sequence[MeasuredValue]]) -> float:
    return min(each.value for each in item[1])


def _told(value: MeasuredValue, unit: str) -> str:
    return f"{quantity(value.value, unit)}, {day(1000 * value.started, '%Y-%m-%d %H:%M')}"


def _by_card(readings: Sequence[MeasuredValue]) -> dict[str, list[MeasuredValue]]:
    """The short name of each card → its values."""
    found: dict[str, list[MeasuredValue]] = {}
    for reading in readings:
        found.setdefault(_short(reading.card), []).append(reading)
    return found


def _short(card: str) -> str:
    """`card 47a9f507` for GPU-47a9f507-…; for several cards of one node, their number."""
    cards = [each.removeprefix("GPU-").removeprefix("MIG-") for each in card.split(",")]
    if len(cards) > 1:
        return f"{len(cards)} cards {cards[0][:8]} …"
    if card.startswith(("GPU-", "MIG-")):
        return f"card {cards[0][:8]}"
    return f"run {cards[0][:8]}".rstrip()
