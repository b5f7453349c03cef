"""A picture of one row of a table: a line for each card, a dot for each Record, the interval for
the next card, and the published peak."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from hpml_plugins.analysis.measured import MeasuredValue
from hpml_plugins.model.formatting import quantity
from hpml_plugins.report.site import svg
from hpml_plugins.report.site.matrix import TaskCell, TaskRow, TypeColumn
from hpml_plugins.report.site.page import minute
from hpml_plugins.report.site.strips import Strip, StripBand, draw_strips

#: The most lines of a picture, one per card.
MOST_CARDS = 24
#: Characters of the label beside a line.
LONGEST_LABEL = 32
#: The most dots of a line.
MOST_DOTS = 200


def draw(row: TaskRow, columns: Sequence[TypeColumn]) -> Markup:
    """The picture as SVG, with the values as titles.  columns: those of the row that it shows."""
    unit = row.metric.unit
    cards = [
        (column, card, values)
        for column in columns
        for card, values in sorted(
            _by_card(row.readings(column.number)).items(), key=_smallest
        )
    ]
    shown = cards[:MOST_CARDS]
    lines = [
        Strip(
            f"{_of_type(column.label)[: LONGEST_LABEL - len(card)]} {card}".rstrip(),
            column.colour,
            [(each.value, _told(each, unit)) for each in values[-MOST_DOTS:]],
        )
        for column, card, values in shown
    ]
    bands = []
    first = 0
    for column in columns:
        count = sum(of is column for of, _, _ in shown)
        cell = row.cells[column.number]
        of_next = cell.number.estimate
        band = StripBand(
            first, first + count, column.colour, of_next.low, of_next.high, _peak(row, cell)
        )
        first += count
        bands.append(band)
    values = [each.value for _, _, of_card in shown for each in of_card]
    ends = [end for band in bands for end in (band.low, band.high) if end is not None]
    peaks = [band.peak for band in bands if band.peak and band.peak < 2 * max(values)]
    axis = [*values, *svg.near(values, ends), *peaks]
    about = "One line per card, one dot per Record"
    drawn = [band for band in bands if band.first < band.end]
    return draw_strips(lines, axis, unit, about, drawn, len(cards) - len(shown))


def _peak(row: TaskRow, cell: TaskCell) -> float | None:
    """The value that corresponds to the published peak."""
    shared = cell.share if row.metric.unit != "s" else None
    return cell.number.value / shared if shared else None


def _of_type(name: str) -> str:
    """`H200 ×1` for NVIDIA H200 ×1, `AMD EPYC` for no GPU (AMD EPYC)."""
    return name.removeprefix("NVIDIA ").removeprefix("no GPU (").removesuffix(")")


def _smallest(item: tuple[str, Sequence[MeasuredValue]]) -> float:
    return min(each.value for each in item[1])


def _told(value: MeasuredValue, unit: str) -> str:
    return f"{quantity(value.value, unit)}, {minute(value.started)}"


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
