"""Pictures of cards: a line for each card or class of values, with a dot for each Record or
card."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

from hpml_plugins.report.site import svg

#: Width of a picture, right end of its axis, and top of its first line, px.
WIDTH = 920
RIGHT = 860
TOP = 22


class Strip(NamedTuple):
    """A line.  colour: its type's class in the style sheet.  dots: values with their titles.
    names: values labelled above."""

    label: str
    colour: str
    dots: Sequence[tuple[float, str]]
    names: Sequence[tuple[float, str]] = ()


class StripBand(NamedTuple):
    """The background of lines, from the first to the one before the end: the interval for the next
    card, and the published peak, if known."""

    first: int
    end: int
    colour: str
    low: float | None
    high: float | None
    peak: float | None


def draw_strips(
    lines: Sequence[Strip],
    axis: Sequence[float],
    unit: str,
    about: str,
    bands: Sequence[StripBand] = (),
    hidden: int = 0,
    *,
    left: int = 230,
    height: int = 17,
) -> Markup:
    """The picture as SVG.  axis: values that the axis must include.  hidden: the number of cards
    without a line.  left: px of the labels.  height: of a line, px."""
    x = svg.PixelAxis.around(axis, left, RIGHT)
    floor = TOP + height * len(lines)
    parts: list[str] = []
    ticks = [(x(value), words) for value, words in x.ticks(unit)]
    parts.append(svg.path("grid", "".join(f"M{at:g} {TOP}V{floor}" for at, _ in ticks)))
    parts.append(
        svg.texts("tick", "middle", [(at, floor + 16, each) for at, each in ticks])
    )
    for band in bands:
        parts += _draw_band(band, x, height)
    for number, strip in enumerate(lines):
        y = TOP + height * number + height // 2
        parts.append(svg.text(left - 10, y + 4, strip.label, "card", "end") + "\n")
        parts.append(f'<g class="{escape(strip.colour)}">\n')
        for value, title in strip.dots:
            parts.append(svg.marker("circle", x(value), y, 4, title=title) + "\n")
        parts.append("</g>")
        for value, name in strip.names:
            parts.append(svg.text(x(value), y - 7, name, "name", "middle"))
    if hidden:
        parts.append(svg.text(left, TOP - 8, f"{hidden} more cards"))
    return svg.picture("strip", WIDTH, floor + 26, about, parts)


def _draw_band(band: StripBand, x: svg.PixelAxis, height: int) -> Iterator[str]:
    start = TOP + height * band.first
    end = TOP + height * band.end
    if band.low is not None and band.high is not None:
        low = x(band.low)
        width = max(1.0, x(band.high) - x(band.low))
        place = f'x="{low:g}" y="{start}" width="{width:g}" height="{end - start}"'
        title = "<title>95 % interval for the next card</title>"
        yield f'<rect class="band {escape(band.colour)}" {place}>{title}</rect>'
    if band.peak:
        peak = x(band.peak)
        yield svg.path("peak", f"M{peak:g} {start}V{end}")
        yield svg.text(peak, TOP - 8, "published peak", "peak-label", "middle")
