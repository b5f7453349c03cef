"""Parts of our own charts: scales, ticks, and elements with their texts escaped.

A site has 6,000 charts. Using templates took ten times as long as writing the elements here.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from markupsafe import Markup, escape

from hpml_plugins.model.formatting import quantity

#: The corners of markers of radius 1 around the origin; "circle" is one too.
_CORNERS: Final = {
    "square": ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    "triangle-up": ((0, -1.2), (1.2, 0.9), (-1.2, 0.9)),
    "diamond": ((0, -1.35), (1.35, 0), (0, 1.35), (-1.35, 0)),
    "cross": (
        *((-0.45, -1.3), (0.45, -1.3), (0.45, -0.45), (1.3, -0.45)),
        *((1.3, 0.45), (0.45, 0.45), (0.45, 1.3), (-0.45, 1.3)),
        *((-0.45, 0.45), (-1.3, 0.45), (-1.3, -0.45), (-0.45, -0.45)),
    ),
    "triangle-down": ((0, 1.2), (1.2, -0.9), (-1.2, -0.9)),
    "triangle-right": ((1.2, 0), (-0.9, 1.2), (-0.9, -1.2)),
    "triangle-left": ((-1.2, 0), (0.9, 1.2), (0.9, -1.2)),
}
DASHES: Final = ("", "7 3", "2 3", "9 3 2 3")
#: Approximate number of labels on an axis.
TICKS = 5
#: An axis is logarithmic if its largest value is at least this many times its smallest.
LOGARITHMIC = 20.0


@dataclass(frozen=True)
class PixelAxis:
    """Maps values to positions.  low, high: of the values.  start, end: their positions, px."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    @classmethod
    def around(
        cls, values: Iterable[float], start: float, end: float, *, logarithmic: bool = False
    ) -> PixelAxis:
        """An axis that includes all values, with a margin."""
        shown = list(values)
        low = min(shown)
        high = max(shown)
        if logarithmic:
            room = (high / low) ** 0.05 * 1.01
            return cls(low / room, high * room, start, end, logarithmic)
        margin = 0.05 * (high - low) or 0.03 * abs(high) or 1.0
        return cls(low - margin, high + margin, start, end)

    def __call__(self, value: float) -> float:
        """The position of a value, px. Values beyond the ends are drawn at the end."""
        inside = min(max(value, self.low), self.high)
        low, width = self._turned
        turned = math.log(inside) if self.logarithmic else inside
        share = (turned - low) / width
        return round(self.start + (self.end - self.start) * share, 1)

    @functools.cached_property
    def _turned(self) -> tuple[float, float]:
        """The lower end and the width, or those of the logarithms."""
        turn = math.log if self.logarithmic else float
        low = turn(self.low)
        return low, (turn(self.high) - low) or 1.0

    def ticks(self, unit: str) -> list[tuple[float, str]]:
        """Round values between the ends, and their labels."""
        return [(value, _short(value, unit)) for value in self._round_values()]

    def _round_values(self) -> list[float]:
        low = self.low
        high = self.high
        if self.logarithmic and high / low > 3:
            steps = (1, 2, 5) if high / low < 300 else (1,)
            powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
            made = [step * 10.0**power for power in powers for step in steps]
            return [value for value in made if low <= value <= high]
        rough = (high - low) / TICKS
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(each * power for each in (1, 2, 5, 10) if each * power >= rough)
        first = math.ceil(low / step)
        last = math.floor(high / step)
        return [number * step for number in range(first, last + 1)]


def picture(
    kind: str, width: float, height: float, about: str, parts: Iterable[str]
) -> Markup:
    """An SVG.  kind: its classes in the style sheet.  about: a description of its contents."""
    described = f'viewBox="0 0 {width} {height}" role="img" aria-label="{escape(about)}"'
    return Markup(f'<svg class="{escape(kind)}" {described}>\n{"".join(parts)}</svg>')


def path(kind: str, course: str) -> str:
    """Lines.  kind: their classes in the style sheet.  course: the commands of a path."""
    return f'<path class="{kind}" d="{course}"/>'


def marker(
    shape: str, x: float, y: float, size: float, kind: str = "", title: str | None = None
) -> str:
    """A circle, or one of the other markers.  size: its radius, px.  title: its tooltip."""
    look = f' class="{kind}"' if kind else ""
    told = f"<title>{escape(title)}</title>" if title else ""
    if shape == "circle":
        return f'<circle{look} cx="{x:g}" cy="{y:g}" r="{size:g}">{told}</circle>'
    return f'<path{look} d="M{x:g} {y:g}{_outline(shape, size)}">{told}</path>'


@functools.cache
def _outline(shape: str, size: float) -> str:
    """The commands that draw a marker around the position."""
    corners = [(round(size * x, 1), round(size * y, 1)) for x, y in _CORNERS[shape]]
    steps = [(x - before, y - above) for (before, above), (x, y) in pairwise(corners)]
    texts = [f"{round(x, 1):g} {round(y, 1):g}" for x, y in (corners[0], *steps)]
    return f"m{'l'.join((texts[0], ' '.join(texts[1:])))}z".replace(" -", "-")


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """A line of text.  anchor: the part of it that is at the position."""
    place = f'x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}"'
    return f"<text {place}>{escape(words)}</text>"


def texts(kind: str, anchor: str, lines: Iterable[tuple[float, float, str]]) -> str:
    """Lines of text that look alike: positions and words."""
    drawn = (f'<text x="{x:g}" y="{y:g}">{escape(words)}</text>\n' for x, y, words in lines)
    return f'<g class="{kind}" text-anchor="{anchor}">{"".join(drawn)}</g>\n'


def near(values: Sequence[float], ends: Iterable[float]) -> list[float]:
    """The bounds of intervals, limited to the spread of the values: otherwise one interval of more
    than 100 % would flatten all values."""
    low = min(values)
    high = max(values)
    room = max(high - low, 0.5 * abs(high))
    return [min(max(end, low - room), high + room) for end in ends]


def is_wide(values: Sequence[float]) -> bool:
    """Whether values need a logarithmic axis."""
    return min(values) > 0 and max(values) / min(values) > LOGARITHMIC


def _short(value: float, unit: str) -> str:
    """A round value without superfluous digits: `4.2 TB/s` instead of `4.200 TB/s`."""
    number, _, rest = quantity(value, unit).partition(" ")
    if "." in number and "e" not in number:
        number = number.rstrip("0").rstrip(".")
    return f"{number} {rest}".strip()
