"""What our own charts are made of: scales, ticks and shapes of markers.

The templates `*.svg.jinja` draw them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from hpml_plugins.model.formatting import quantity

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


@dataclass(frozen=True)
class PixelAxis:
    """Where values are drawn.  low, high: of the values.  start, end: their places, px."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    @classmethod
    def around(
        cls, values: Iterable[float], start: float, end: float, *, logarithmic: bool = False
    ) -> PixelAxis:
        """An axis that shows all values, with some room."""
        shown = list(values)
        low, high = min(shown), max(shown)
        if logarithmic:
            room = (high / low) ** 0.05 * 1.01
            return cls(low / room, high * room, start, end, logarithmic)
        margin = 0.05 * (high - low) or 0.03 * abs(high) or 1.0
        return cls(low - margin, high + margin, start, end)

    def __call__(self, value: float) -> float:
        """The place of a value, px. One beyond the ends is drawn at the end."""
        turn = math.log if self.logarithmic else float
        low, high = turn(self.low), turn(self.high)
        inside = turn(min(max(value, self.low), self.high))
        share = (inside - low) / ((high - low) or 1.0)
        return round(self.start + (self.end - self.start) * share, 1)

    def ticks(self, unit: str) -> list[tuple[float, str]]:
        """Round values between the ends, and how they are written."""
        return [(value, _short(value, unit)) for value in self._round_values()]

    def _round_values(self) -> list[float]:
        low, high = self.low, self.high
        if self.logarithmic and high / low > 3:
            steps = (1, 2, 5) if high / low < 300 else (1,)
            powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
            made = [step * 10.0**power for power in powers for step in steps]
            return [value for value in made if low <= value <= high]
        rough = (high - low) / TICKS
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(each * power for each in (1, 2, 5, 10) if each * power >= rough)
        first, last = math.ceil(low / step), math.floor(high / step)
        return [number * step for number in range(first, last + 1)]


def near(values: Sequence[float], ends: Iterable[float]) -> list[float]:
    """The ends of intervals, none further from the values than they are spread: one interval of
    more than 100 % would flatten all values."""
    low, high = min(values), max(values)
    room = max(high - low, 0.5 * abs(high))
    return [min(max(end, low - room), high + room) for end in ends]


def is_wide(values: Sequence[float]) -> bool:
    """Whether values need a logarithmic axis."""
    return min(values) > 0 and max(values) / min(values) > LOGARITHMIC


def _short(value: float, unit: str) -> str:
    """A round value, without digits that say nothing: `4.2 TB/s` of `4.200 TB/s`."""
    number, _, rest = quantity(value, unit).partition(" ")
    if "." in number and "e" not in number:
        number = number.rstrip("0").rstrip(".")
    return f"{number} {rest}".strip()
