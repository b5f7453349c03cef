"""On which side of its point a label stands in a chart, so that labels are legible.

Vega-Lite draws labels where it is told, also across each other, so their places are estimated from
the rows of the table and the size of the chart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

#: Font size, and about the width of a character, px.
SIZE: Final = 9
LETTER: Final = 5.7
#: Half the width of a marker, px.
MARKER: Final = 4.0
#: Of points with the same text, those closer than this many heights of it get one label.
REPEATED: Final = 2.0


class LabelSide(NamedTuple):
    """Beside a point.

    is_left: the text ends there instead of starting.  right, down: its distance, px.
    """

    is_left: bool
    right: int
    down: int


#: In the order of preference.
SIDES: Final = (
    LabelSide(is_left=False, right=6, down=5),
    LabelSide(is_left=False, right=6, down=-5),
    LabelSide(is_left=True, right=-6, down=-5),
    LabelSide(is_left=True, right=-6, down=5),
)


class Scale(NamedTuple):
    """An axis for the numbers of a column.

    length: px, with a margin at both ends.  beyond: how far the axis goes on, as a ratio to the
    least and to the largest number.
    """

    column: str
    length: float
    margin: float
    is_log: bool
    beyond: Sequence[float] = (1, 1)

    def places(self, rows: Iterable[Mapping[str, Any]]) -> list[float | None]:
        """The distance of each row's number from the lower end, px; None for one that is not
        drawn."""
        placed = [self._placed(row[self.column]) for row in rows]
        if not (shown := [each for each in placed if each is not None]):
            return placed
        before, after = (math.log10(each) if self.is_log else 0 for each in self.beyond)
        low, high = min(shown) + before, max(shown) + after
        pixels = (self.length - 2 * self.margin) / (high - low or 1)
        return [
            None if each is None else self.margin + (each - low) * pixels for each in placed
        ]

    def _placed(self, number: Any) -> float | None:
        if not isinstance(number, int | float) or (self.is_log and number <= 0):
            return None
        return math.log10(number) if self.is_log else float(number)


@dataclass(frozen=True)
class Point:
    """A point on the screen, px, downwards positive, and its label."""

    x: float
    y: float
    text: str


def highest_of_each(points: Sequence[Point]) -> list[Point]:
    """The points, of which those below another one of the same text have none."""
    highest: dict[str, Point] = {}
    for point in sorted(points, key=lambda point: -point.y):
        highest[point.text] = point
    return [
        point if highest[point.text] is point else replace(point, text="")
        for point in points
    ]


def sides_of(points: Sequence[Point]) -> list[int | None]:
    """The number of the side of each point's label, in SIDES; None for one without a label: its
    text is empty, stands close by already, or would cover another label on every side."""
    markers = [_Box(each.x, each.y, MARKER, MARKER) for each in points]
    found: list[int | None] = [None] * len(points)
    placed: list[tuple[str, _Box]] = []
    for number in sorted(range(len(points)), key=lambda number: points[number].y):
        point = points[number]
        if not point.text or _is_repeated(point, placed):
            continue
        boxes = [_label_box(point, side) for side in SIDES]
        free = [
            side
            for side, box in enumerate(boxes)
            if not any(box.touches(other) for _, other in placed)
        ]
        if free:
            others = [*markers[:number], *markers[number + 1 :]]
            side = min(free, key=lambda side: sum(map(boxes[side].touches, others)))
            found[number] = side
            placed.append((point.text, boxes[side]))
    return found


@dataclass(frozen=True)
class _Box:
    """A rectangle: its centre and half of its sides, px."""

    x: float
    y: float
    half_width: float
    half_height: float

    def touches(self, other: _Box) -> bool:
        """Whether both share a place."""
        return (
            abs(self.x - other.x) < self.half_width + other.half_width
            and abs(self.y - other.y) < self.half_height + other.half_height
        )


def _label_box(point: Point, side: LabelSide) -> _Box:
    half = len(point.text) * LETTER / 2
    centre = point.x + side.right + (-half if side.is_left else half)
    return _Box(centre, point.y + side.down, half, SIZE / 2)


def _is_repeated(point: Point, placed: Iterable[tuple[str, _Box]]) -> bool:
    around = _Box(point.x, point.y, len(point.text) * LETTER, REPEATED * SIZE)
    return any(text == point.text and around.touches(box) for text, box in placed)
