"""Pictures of cards: a line for each, or for each class of values, with a dot for each Record or
card."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from hpml_plugins.report.site import svg
from hpml_plugins.report.site.page import fill

#: px.
WIDTH, RIGHT, TOP = 920, 860, 22


class Strip(NamedTuple):
    """A line.  colour: its type's class in the style sheet.  dots: values with what they say.
    names: values that are named above."""

    label: str
    colour: str
    dots: Sequence[tuple[float, str]]
    names: Sequence[tuple[float, str]] = ()


class StripBand(NamedTuple):
    """What lines have behind them, from the first to the one before the end: the interval for the
    next card, and the published peak, where they are known."""

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
    """The picture as SVG.  axis: values that it reaches to.  hidden: cards without a line.  left:
    px of the labels.  height: of a line, px."""
    x = svg.PixelAxis.around(axis, left, RIGHT)
    picture = fill(
        "strips.svg.jinja",
        lines=lines,
        bands=bands,
        hidden=hidden,
        about=about,
        x=x,
        ticks=x.ticks(unit),
        left=left,
        height=height,
        width=WIDTH,
        top=TOP,
    )
    return Markup(picture)
