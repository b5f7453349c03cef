"""Values of the first page per joule: the work of a step or run over the energy of the board during
it, and that energy.

The energy is measured under load of its own, at whose clocks a step may take longer than where it
was timed. So a rate is not divided by the power: the work is the rate times the time.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpml_plugins.analysis.sides import BOOST, MeasuredRun, PointSides
from hpml_plugins.analysis.variance import half_width, student_quantile
from hpml_plugins.model import formatting
from hpml_plugins.model.record import Estimate
from hpml_plugins.model.units import is_rate
from hpml_plugins.report.site.matrix import TaskRow
from hpml_plugins.report.site.tasks import OTHER_CODE

#: Said of a ratio whose values are not those that the cells show.
OLDER_CODE = "at older code that both measured"
#: The metric that times what the energy is of.
TIME = "time"
#: Confidence level of both sides of a ratio's interval, as a quantile.
_UPPER = 0.975


@dataclass(frozen=True)
class PerJoule:
    """What a GPU type does per joule, or what a step costs it.

    unit: of the rate that was divided, or "J".  cards: the natural logarithm of each card's value.
    """

    unit: str
    cards: Sequence[float]

    @property
    def estimate(self) -> Estimate:
        """The mean over the cards, with the 95 % interval for the next card; of one card without an
        interval."""
        mean = statistics.fmean(self.cards)
        count = len(self.cards)
        value = math.exp(mean)
        if count < 2:
            return Estimate(value, None, None, count)
        half = half_width(statistics.variance(self.cards), count - 1, count)
        return Estimate(value, math.exp(mean - half), math.exp(mean + half), count)

    @property
    def texts(self) -> tuple[str, str]:
        """`5.62 GB/J`, and half the width of its interval, "" without one."""
        value, interval = formatting.split_estimate(
            formatting.estimate(self.estimate, self.unit)
        )
        return value.replace("/s", "/J"), interval.replace("/s", "/J")


def per_joule(row: TaskRow, column: int) -> PerJoule | None:
    """The value of a type in a row; None if the power was not measured there.

    Nothing is known of a burst, for which the sensor is too slow.
    """
    cell = row.cells[column]
    name = row.metric.metric
    if row.regime == BOOST and (cell.number.boosted or cell.values[name].boosted):
        return None
    return _of_runs(row, cell.runs.of_code(cell.values[name].code))


def compare_per_joule(row: TaskRow, base: int, other: int) -> str:
    """How many times as good the other type is per joule, with the 95 % interval, in words; "" if
    either was not measured.

    Both are compared at the newest code that both measured, else each at its own; the words say so
    where that is not the code of the cells, or not the same. The cards of both types are assumed to
    vary alike, so that one card of a type can be compared with several of another.
    """
    if not row.metric.direction or not {base, other} <= row.cells.keys():
        return ""
    shown = (per_joule(row, base), per_joule(row, other))
    if None in shown:
        return ""
    sides = PointSides(row.cells[base].runs, row.cells[other].runs, common=True)
    common = (_of_runs(row, sides.a), _of_runs(row, sides.b))
    are_own = sides.across or None in common
    of_base, of_other = shown if are_own else common
    assert of_base and of_other
    sign = -1 if of_base.unit == "J" else 1
    means = [statistics.fmean(each.cards) for each in (of_base, of_other)]
    difference = sign * (means[1] - means[0])
    ratio = f"{formatting.times(math.exp(difference))}× per joule"
    code = OTHER_CODE if are_own else "" if common == shown else OLDER_CODE
    code = code and f"; {code}"
    counts = [len(each.cards) for each in (of_base, of_other)]
    freedom = sum(counts) - 2
    if not freedom:
        return f"{ratio}; one card each, so the interval is unknown{code}"
    squares = sum(
        (level - mean) ** 2
        for each, mean in zip((of_base, of_other), means, strict=True)
        for level in each.cards
    )
    variance = squares / freedom * sum(1 / count for count in counts)
    half = student_quantile(_UPPER, freedom) * math.sqrt(variance)
    ends = [
        formatting.times(math.exp(end)) for end in (difference - half, difference + half)
    ]
    return f"{ratio}, {' to '.join(ends)}×{code}"


def ratios_per_joule(
    rows: Mapping[str, TaskRow], base: int, numbers: Iterable[int]
) -> dict[int, dict[str, str]]:
    """Column → row → `compare_per_joule`, where there is one.  rows: by their name on the page."""
    found: dict[int, dict[str, str]] = {}
    for other in numbers:
        if other != base:
            texts = {
                name: compare_per_joule(row, base, other) for name, row in rows.items()
            }
            found[other] = {name: text for name, text in texts.items() if text}
    return found


def _of_runs(row: TaskRow, runs: Iterable[MeasuredRun[Any]]) -> PerJoule | None:
    name, unit = row.metric.metric, row.metric.unit
    if not is_rate(unit) and unit != "J" and name != TIME:
        return None
    by_card: dict[str, list[float]] = {}
    for run in runs:
        value, time = run.values.get(name), run.values.get(TIME)
        spent = max((each.spent for each in run.values.values()), default=0.0)
        if value is None or value.value <= 0 or not spent or value.is_busy:
            continue
        if unit == "J":
            found = value.value
        elif name == TIME:
            found = spent
        elif time:
            found = value.value * time.value / spent
        else:
            continue
        by_card.setdefault(value.card, []).append(math.log(found))
    if not by_card:
        return None
    cards = [statistics.fmean(levels) for levels in by_card.values()]
    return PerJoule(unit if is_rate(unit) else "J", cards)
