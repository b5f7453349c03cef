"""What our own charts are made of: scales, ticks, markers and elements of SVG as text.

Texts of any origin are escaped; colours and lengths come from the caller's own numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from markupsafe import escape

from hpml_plugins.model.formatting import quantity

Scale = Callable[[float], float]

#: A marker of radius 1 around the origin.
MARKERS: Final = {
    "circle": "M-1 0A1 1 0 1 1 1 0A1 1 0 1 1 -1 0Z",
    "square": "M-.9 -.9H.9V.9H-.9Z",
    "triangle-up": "M0 -1.2L1.2 .9H-1.2Z",
    "diamond": "M0 -1.35L1.35 0L0 1.35L-1.35 0Z",
    "cross": "M-.45 -1.3H.45V-.45H1.3V.45H.45V1.3H-.45V.45H-1.3V-.45H-.45Z",
    "triangle-down": "M0 1.2L1.2 -.9H-1.2Z",
    "triangle-right": "M1.2 0L-.9 1.2V-1.2Z",
    "triangle-left": "M-1.2 0L.9 1.2V-1.2Z",
}
DASHES: Final = ("", "7 3", "2 3", "9 3 2 3")
#: Labels on an axis, about; and the spread from which an axis is logarithmic.
TICKS, LOGARITHMIC = 5, 20.0


def extent(values: Iterable[float], *, logarithmic: bool) -> tuple[float, float]:
    """The ends of an axis that shows all values, with some room."""
    shown = list(values)
    low, high = min(shown), max(shown)
    if logarithmic:
        room = (high / low) ** 0.05 * 1.01
        return low / room, high * room
    margin = 0.05 * (high - low) or 0.03 * abs(high) or 1.0
    return low - margin, high + margin


def near(values: Sequence[float], ends: Iterable[float]) -> list[float]:
    """The ends of intervals, none further from the values than they are spread: one interval of
    more than 100 % would flatten all values."""
    low, high = min(values), max(values)
    room = max(high - low, 0.5 * abs(high))
    return [min(max(end, low - room), high + room) for end in ends]


def is_wide(values: Sequence[float]) -> bool:
    """Whether values need a logarithmic axis."""
    return min(values) > 0 and max(values) / min(values) > LOGARITHMIC


def scale(
    ends: tuple[float, float], start: float, end: float, *, logarithmic: bool
) -> Scale:
    """From a value to px. A value outside the ends is drawn at the end."""
    turn: Scale = math.log if logarithmic else float
    low, high = turn(ends[0]), turn(ends[1])

    def place(value: float) -> float:
        inside = min(max(value, ends[0]), ends[1])
        return round(
            start + (end - start) * (turn(inside) - low) / ((high - low) or 1.0), 1
        )

    return place


def ticks(ends: tuple[float, float], *, logarithmic: bool) -> list[float]:
    """Round values between the ends."""
    low, high = ends
    if logarithmic and high / low > 3:
        steps = (1, 2, 5) if high / low < 300 else (1,)
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        made = [step * 10.0**power for power in powers for step in steps]
        return [value for value in made if low <= value <= high]
    rough = (high - low) / TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(each * power for each in (1, 2, 5, 10) if each * power >= rough)
    return [
        number * step
        for number in range(math.ceil(low / step), math.floor(high / step) + 1)
    ]


def marker(shape: str, x: float, y: float, size: float, kind: str, title: str = "") -> str:
    """A marker, which says its title where a pointer rests on it."""
    told = f"<title>{escape(title)}</title>" if title else ""
    place = f"translate({x:g} {y:g}) scale({size:g})"
    return f'<path class="marker {kind}" d="{MARKERS[shape]}" transform="{place}">{told}</path>'


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """A line of text."""
    return f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """A straight line."""
    return f'<line class="{kind}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>'


def value_axis(
    ends: tuple[float, float],
    y: Scale,
    unit: str,
    left: float,
    right: float,
    *,
    logarithmic: bool,
) -> list[str]:
    """Lines across the chart at round values, with their labels."""
    made = []
    for value in ticks(ends, logarithmic=logarithmic):
        made.append(line(left, y(value), right, y(value), "grid"))
        made.append(text(left - 8, y(value) + 4, short(value, unit), "tick", "end"))
    return made


def short(value: float, unit: str) -> str:
    """A round value, without digits that say nothing: `4.2 TB/s` of `4.200 TB/s`."""
    number, _, rest = quantity(value, unit).partition(" ")
    if "." in number and "e" not in number:
        number = number.rstrip("0").rstrip(".")
    return f"{number} {rest}".strip()


def picture(
    parts: Iterable[str], width: float, height: float, kind: str, about: str
) -> str:
    """The whole SVG. about: what it shows, for those who do not see it."""
    return (
        f'<svg class="{kind}" viewBox="0 0 {width:g} {height:g}" role="img"'
        f' aria-label="{escape(about)}">{"".join(parts)}</svg>'
    )
