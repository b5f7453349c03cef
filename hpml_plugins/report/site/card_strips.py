"""A picture of one row of the first page: a line for each card, a dot for each Record, the interval
for the next card, and the published peak."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from hpml_plugins.analysis.measured import MeasuredValue
from hpml_plugins.model.formatting import quantity

#: px.
WIDTH, LEFT, RIGHT, LINE, TOP, BOTTOM = 920, 230, 60, 17, 22, 26
#: Lines and labels on the axis, at most.
MOST_CARDS, TICKS = 24, 5


@dataclass(frozen=True)
class TypeStrip:
    """One type.  colour: its class in the style sheet.  low, high: the interval for the next card.

    peak: the value that the published peak allows, or None.
    """

    name: str
    colour: str
    readings: Sequence[MeasuredValue]
    low: float | None
    high: float | None
    peak: float | None


def draw(strips: Sequence[TypeStrip], unit: str) -> Markup:
    """The picture as SVG, with the values as titles."""
    lines = [
        (strip, card, values)
        for strip in strips
        for card, values in sorted(_by_card(strip.readings).items(), key=lambda each: min(each[1]))
    ]
    hidden = max(0, len(lines) - MOST_CARDS)
    lines = lines[:MOST_CARDS]
    shown = [value for _, _, values in lines for value in values]
    ends = [end for strip in strips for end in (strip.low, strip.high) if end]
    peaks = [strip.peak for strip in strips if strip.peak and strip.peak < 2 * max(shown)]
    low, high = _extent([*shown, *ends, *peaks])

    def x(value: float) -> float:
        share = (min(max(value, low), high) - low) / (high - low)
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    height = TOP + LINE * len(lines) + BOTTOM
    parts = [
        Markup('<svg class="strip" viewBox="0 0 {} {}" role="img" aria-label="{}">').format(
            WIDTH, height, "One line per card, one dot per Record"
        )
    ]
    floor = TOP + LINE * len(lines)
    parts += _axis(low, high, x, floor, unit)
    parts += _bands(strips, lines, x)
    for number, (strip, card, values) in enumerate(lines):
        y = TOP + LINE * number + LINE // 2
        parts.append(
            Markup('<text x="{}" y="{}" class="card">{}</text>').format(
                LEFT - 10, y + 4, f"{strip.name} {card}"
            )
        )
        parts += [
            Markup('<circle class="{}" cx="{}" cy="{}" r="4"><title>{}</title></circle>').format(
                strip.colour, x(value), y, quantity(value, unit)
            )
            for value in values
        ]
    if hidden:
        parts.append(
            Markup('<text x="{}" y="{}">{} more cards</text>').format(LEFT, TOP - 8, hidden)
        )
    parts.append(Markup("</svg>"))
    return Markup("").join(parts)


def _by_card(readings: Sequence[MeasuredValue]) -> dict[str, list[float]]:
    """A short name of each card → its values."""
    found: dict[str, list[float]] = {}
    for reading in readings:
        found.setdefault(reading.card, []).append(reading.value)
    return {_short(card): values for card, values in found.items()}


def _short(card: str) -> str:
    """`card 47a9f507` of GPU-47a9f507-…; several cards of one node are named by their number."""
    cards = [each.removeprefix("GPU-").removeprefix("MIG-") for each in card.split(",")]
    if len(cards) > 1:
        return f"{len(cards)} cards {cards[0][:8]} …"
    return f"card {cards[0][:8]}" if card.startswith(("GPU-", "MIG-")) else f"run {cards[0][:8]}"


def _extent(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    margin = 0.04 * (high - low) or 0.02 * abs(high) or 1.0
    return low - margin, high + margin


def _axis(
    low: float, high: float, x: Callable[[float], float], floor: int, unit: str
) -> list[Markup]:
    step = _round_step((high - low) / TICKS)
    first = math.ceil(low / step)
    made = []
    for number in range(first, math.floor(high / step) + 1):
        at = x(number * step)
        made.append(
            Markup('<line class="grid" x1="{0}" x2="{0}" y1="{1}" y2="{2}"/>').format(
                at, TOP, floor
            )
            + Markup('<text x="{}" y="{}" class="tick">{}</text>').format(
                at, floor + 16, quantity(number * step, unit)
            )
        )
    return made


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= rough)


def _bands(
    strips: Sequence[TypeStrip],
    lines: Sequence[tuple[TypeStrip, str, list[float]]],
    x: Callable[[float], float],
) -> list[Markup]:
    """The interval for the next card and the published peak of each type, behind its cards."""
    made = []
    for strip in strips:
        places = [number for number, (of, _, _) in enumerate(lines) if of is strip]
        if not places:
            continue
        top, bottom = TOP + LINE * places[0], TOP + LINE * (places[-1] + 1)
        if strip.low and strip.high:
            left, right = x(strip.low), x(strip.high)
            made.append(
                Markup(
                    '<rect class="band {}" x="{}" y="{}" width="{}" height="{}"><title>{}</title>'
                    "</rect>"
                ).format(
                    strip.colour,
                    left,
                    top,
                    max(1.0, right - left),
                    bottom - top,
                    "95 % interval for the next card",
                )
            )
        if strip.peak:
            at = x(strip.peak)
            made.append(
                Markup('<line class="peak" x1="{0}" x2="{0}" y1="{1}" y2="{2}"/>').format(
                    at, top, bottom
                )
            )
            made.append(
                Markup('<text x="{}" y="{}" class="peak-label">{}</text>').format(
                    at, TOP - 8, "published peak"
                )
            )
    return made
