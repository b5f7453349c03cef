"""One or two sentences that summarise a chart, for readers who cannot see it or are in a hurry."""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator
from math import isfinite
from typing import NamedTuple

from hpml_plugins.model.figure import Chart, Row, Table
from hpml_plugins.model.formatting import quantity
from hpml_plugins.report.charts import label_of

#: Number of points that two series must share before their ratio is stated.
ENOUGH_SHARED = 2


class _Point(NamedTuple):
    """A number of a chart.  place: its position, without its series."""

    value: float
    series: str
    place: str


def summarise(chart: Chart, table: Table) -> str:
    """The range of the values of a chart, and the ratio of the two series that share most points,
    as geometric mean.

    Empty for a chart not made by `hpml_plugins.report.charts`, or one that combines several
    columns.
    """
    meta = chart.get("usermeta", {})
    *across, (column, title, unit) = meta.get("axes") or [("", "", "")]
    points = []
    for row in table.rows():
        number = row.get(column)
        # a published roof was not measured
        if (
            isinstance(number, int | float)
            and isfinite(number)
            and row.get("what") != "roof"
        ):
            place = _joined([label_of(row, meta["others"]), *_coordinates(row, across)])
            points.append(_Point(number, label_of(row, meta["series"]), place))
    lowest = min(points, key=_value, default=None)
    highest = max(points, key=_value, default=None)
    if lowest is None or highest is None or lowest.value == highest.value:
        return ""
    heading = f"{title[:1].upper()}{title[1:]}"
    return (
        f"{heading} from {_end(lowest, unit)} to {_end(highest, unit)}.{_compare(points)}"
    )


def _value(point: _Point) -> float:
    return point.value


def _coordinates(row: Row, axes: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    """The position of a row on the other axes."""
    for column, title, unit in axes:
        number = row.get(column)
        if isinstance(number, int | float):
            yield f"{title} {_text(number, unit)}"


def _end(point: _Point, unit: str) -> str:
    """`3.2 ms (h200-x1, size 4)`; the series is not repeated if its words are in the place."""
    is_told = set(point.series.split(", ")) <= set(point.place.split(", "))
    where = point.place if is_told else _joined([point.series, point.place])
    return f"{_text(point.value, unit)} ({where})" if where else _text(point.value, unit)


def _joined(texts: Iterable[str]) -> str:
    return ", ".join(filter(None, texts))


def _compare(points: Iterable[_Point]) -> str:
    """` A is 1.41 times B (geometric mean of 7 points).`; empty if no two series share enough
    points."""
    by_place: dict[str, dict[str, float]] = defaultdict(dict)
    for point in points:
        by_place[point.place][point.series] = point.value
    shared: dict[tuple[str, str], list[float]] = defaultdict(list)
    for values in by_place.values():
        positive = {name: value for name, value in values.items() if name and value > 0}
        for one, other in itertools.combinations(positive, 2):
            shared[one, other].append(positive[one] / positive[other])
    pair = max(shared, key=lambda each: len(shared[each]), default=None)
    if pair is None or len(shared[pair]) < ENOUGH_SHARED:
        return ""
    mean = statistics.geometric_mean(shared[pair])
    larger, smaller = pair if mean >= 1 else pair[::-1]
    ratio = f"{max(mean, 1 / mean):.2f}"
    of = f"(geometric mean of {len(shared[pair])} points)"
    if ratio == "1.00":
        return f" {larger} and {smaller} are equal {of}."
    return f" {larger} is {ratio} times {smaller} {of}."


def _text(value: float, unit: str) -> str:
    return f"{100 * value:.3g} %" if unit == "%" else quantity(value, unit)
