"""From the rounds of both sides to verdicts: variances, how many rounds a power needs, and what is
refused."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from msgspec.structs import replace
from scipy.special import stdtrit

from hpml_plugins.analysis import (
    ERROR_RATE,
    EXACT,
    Difference,
    MeasuredValue,
    Spread,
    Variability,
    compare_values,
    variance_of_median,
)
from hpml_plugins.model import Record, combine

#: Share of slow-downs of the budget that the planned number of rounds finds.
POWER = 0.9
Outcome = Literal["refused", "undecided", "within"]


@dataclass(frozen=True)
class GatedValue:
    """One metric of one point on both sides. budget: the slow-down that is allowed, 0.05 for 5 %.

    difference: of head against base, with its verdict.  slower, low, high: how many times worse
    head is, and its 95 % interval; None where there is no ratio.  finds: the smallest slow-down
    that these rounds find nine times in ten.
    """

    benchmark: str
    point: str
    metric: str
    unit: str
    base: MeasuredValue
    head: MeasuredValue
    difference: Difference
    budget: float
    finds: float

    @property
    def slower(self) -> float | None:
        """How many times worse head is: 1.1 for 10 %."""
        return None if self.difference.times is None else 1 / self.difference.times

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of `slower`."""
        low, high = self.difference.low, self.difference.high
        if low is None or high is None:
            return None
        return (1 / high, 1 / low) if self.difference.direction == "higher" else (low, high)

    @property
    def outcome(self) -> Outcome:
        """refused: significantly worse, and by more than the budget; any rise from 0 is.  within:
        it is not worse by more than that, as far as the interval reaches.  undecided: neither."""
        limit = 1 + self.budget
        if self.slower is None:
            without_ratio: dict[str, Outcome] = {
                "WORSE": "refused",
                "AMBIGUOUS": "undecided",
                "BOUND": "undecided",
            }
            return without_ratio.get(self.difference.verdict, "within")
        if self.difference.verdict == "WORSE" and self.slower > limit:
            return "refused"
        return "within" if self.interval is not None and self.interval[1] <= limit else "undecided"


class Gate:
    """The spreads of what both sides measured, and what follows from them.

    rounds: of all points of both sides, not joined.  Rounds of one side repeat one another; the
    sides take turns within minutes, so no difference between days or cards is added, and what else
    used the CPUs disturbed both.

    The card's factor (`hpml_plugins.analysis.reference`) is no covariate here. Both sides are
    measured on one card in one visit, so their reference is the same: whatever the coefficient, it
    cancels in the difference, whose variance is that of rounds on one card alone.
    """

    def __init__(self, rounds: Sequence[Record]) -> None:
        self._variability = Variability(map(_undisturbed, rounds))

    def spread(self, record: Record, metric: str) -> Spread | None:
        """Of one round."""
        return self._variability.reading(_undisturbed(record), metric).spread

    def value(self, rounds: Sequence[Record], metric: str) -> MeasuredValue:
        """The median of the rounds of one side, with the spread of such a median."""
        undisturbed = [_undisturbed(each) for each in rounds]
        value, own = MeasuredValue.of(combine(undisturbed), metric), self.spread(rounds[0], metric)
        if own is not None and own != EXACT:
            variance = variance_of_median(own.same_card, len(rounds))
            own = Spread(variance, own.same_freedom, variance, own.same_freedom)
        value.spread = own
        return value

    def rounds_needed(self, record: Record, budgets: Mapping[str, float], comparisons: int) -> int:
        """How many rounds of each side find a slow-down of the budget in any one metric with
        probability POWER.

        budgets: of its metrics.  comparisons: how many values are judged at once: the correction
        for that asks for ERROR_RATE / comparisons where one of them alone differs.
        """
        needed = [1]
        for metric, budget in budgets.items():
            spread = self.spread(record, metric)
            if spread is not None and spread != EXACT:
                # variance_of_median is proportional to 1 / (n + ½)
                variance = variance_of_median(spread.same_card, 1) * 1.5
                count = (
                    2 * variance * (_deviations(spread, comparisons) / math.log1p(budget)) ** 2
                    - 0.5
                )
                needed.append(math.ceil(min(count, 1e6)))
        return max(needed)


def _undisturbed(record: Record) -> Record:
    return replace(record, conditions={})


def _deviations(spread: Spread, comparisons: int) -> float:
    """How many standard deviations a difference needs in order to be found with probability
    POWER."""
    freedom = spread.same_freedom
    return float(
        stdtrit(freedom, 1 - ERROR_RATE / 2 / max(comparisons, 1)) + stdtrit(freedom, POWER)
    )


def smallest_found(base: MeasuredValue, head: MeasuredValue, comparisons: int) -> float:
    """The slow-down that is found with probability POWER, 0.05 for 5 %; 0 for what is counted."""
    if base.spread is None or head.spread is None:
        return math.inf
    if base.spread == head.spread == EXACT:
        return 0.0
    deviation = math.sqrt(base.spread.same_card + head.spread.same_card)
    least = min(base.spread, head.spread, key=lambda each: each.same_freedom)
    return math.expm1(_deviations(least, comparisons) * deviation)


Sided = tuple[Sequence[Record], Sequence[Record]]


def judge(
    points: Sequence[tuple[str, Sided]], budgets: Sequence[Mapping[str, float]]
) -> list[GatedValue]:
    """Verdicts on all metrics that have a budget, corrected for how many there are.

    points: the point as text, and the rounds of base and of head.
    """
    gate = Gate([each for _, sides in points for side in sides for each in side])
    asked = []
    for (point, (base, head)), allowed in zip(points, budgets, strict=True):
        common = sorted(base[0].metrics.keys() & head[0].metrics.keys())
        of_base, of_head = (
            {name: gate.value(side, name) for name in common} for side in (base, head)
        )
        asked += [
            (point, base[0], of_base, of_head, name, allowed[name])
            for name in common
            if name in allowed
        ]
    judged = compare_values([(of_base, of_head, name) for _, _, of_base, of_head, name, _ in asked])
    return [
        GatedValue(
            record.benchmark,
            point,
            name,
            record.metrics[name].unit,
            of_base[name],
            of_head[name],
            difference,
            limit,
            smallest_found(of_base[name], of_head[name], len(asked)),
        )
        for (point, record, of_base, of_head, name, limit), difference in zip(
            asked, judged, strict=True
        )
    ]
