"""What a chart says, in a sentence or two: for readers who do not see it, and for those in a
hurry."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping
from math import isfinite
from operator import itemgetter

from hpml_plugins.model.figure import Cell, Chart, Table
from hpml_plugins.model.formatting import quantity
from hpml_plugins.report.charts import label_of

#: Number of points that two series must share before their ratio is stated.
ENOUGH_SHARED = 2


def summarise(chart: Chart, table: Table) -> str:
    """The range of what a chart measures; and the ratio of the two series that share most points,
    as geometric mean.

    Empty for a chart that was not made by `hpml_plugins.report.charts`, or draws several columns as
    one.
    """
    meta = chart.get("usermeta", {})
    *across, (column, title, unit) = meta.get("axes") or [("", "", "")]
    # a published roof was not measured
    rows = [row for row in table.rows() if row.get("what") != "roof"]
    known = [
        (number, row)
        for row in rows
        if isinstance(number := row.get(column), int | float) and isfinite(number)
    ]
    if len({number for number, _ in known}) < 2:
        return ""

    def place(row: Mapping[str, Cell]) -> str:
        at = [
            f"{title} {_text(x, unit)}"
            for name, title, unit in across
            if isinstance(x := row.get(name), int | float)
        ]
        return ", ".join(filter(None, [label_of(row, meta["others"]), *at]))

    ends = []
    for number, row in (min(known, key=itemgetter(0)), max(known, key=itemgetter(0))):
        where = ", ".join(filter(None, [label_of(row, meta["series"]), place(row)]))
        ends.append(_text(number, unit) + (f" ({where})" if where else ""))
    points: dict[str, dict[str, float]] = defaultdict(dict)
    for number, row in known:
        points[place(row)][label_of(row, meta["series"])] = number
    return f"{title[:1].upper()}{title[1:]} from {ends[0]} to {ends[1]}.{_compare(points)}"


def _compare(points: dict[str, dict[str, float]]) -> str:
    """` A is 1.41 times B (geometric mean of 7 points).`, or nothing where no two series share
    enough."""
    shared: dict[tuple[str, str], list[float]] = defaultdict(list)
    for values in points.values():
        positive = {name: value for name, value in values.items() if name and value > 0}
        for (one, a), (other, b) in itertools.combinations(positive.items(), 2):
            shared[one, other].append(math.log(a / b))
    pair = max(shared, key=lambda each: len(shared[each]), default=None)
    if pair is None or len(shared[pair]) < ENOUGH_SHARED:
        return ""
    mean = math.fsum(shared[pair]) / len(shared[pair])
    one, other = pair if mean >= 0 else pair[::-1]
    of = f"(geometric mean of {len(shared[pair])} points)"
    if (ratio := f"{math.exp(abs(mean)):.2f}") == "1.00":
        return f" {one} and {other} are equal {of}."
    return f" {one} is {ratio} times {other} {of}."


def _text(value: float, unit: str) -> str:
    return f"{100 * value:.3g} %" if unit == "%" else quantity(value, unit)
