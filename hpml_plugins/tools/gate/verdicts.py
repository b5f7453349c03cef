"""Derives verdicts from pairs of rounds, one of each side at about the same time.

Other processes slow rounds down by factors that change with time. Both rounds of a pair are
measured one after the other, in random order, so a disturbance is equally likely on either side:
the differences of pairs are symmetric around the true one, and no pair is excluded. Every second
pair has the reverse order, so that what slows each second round down cancels. All pairs are judged
after 4, 8, 16, … of them, and measuring stops once nothing is undecided. Each of these looks has an
equal share of the error (Bonferroni), so that stopping early costs no confidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from hpml_plugins.analysis import (
    ERROR_RATE,
    MeasuredValue,
    correct,
    different_problems,
    p_value,
    student_quantile,
)
from hpml_plugins.model import Record, combine, format_point

#: The fewest pairs of rounds that `--rounds` can ask for.
LEAST = 3
#: Pairs of rounds before the first look.
FIRST_LOOK = 4
Outcome = Literal["refused", "undecided", "within"]
#: A round of base and one of head.
Pair = tuple[Record, Record]


def looks(most: int) -> list[int]:
    """The numbers of pairs after which all points are judged.  most: the limit of pairs."""
    found = [most]
    count = FIRST_LOOK
    while count < most:
        found.append(count)
        count *= 2
    return sorted(found)


def needed_pairs(most: int) -> int:
    """Pairs of rounds that a verdict needs: those of the first look. Of fewer, which is all that a
    time limit may leave, a load can make equal code differ."""
    return looks(most)[0]


class _Mean(NamedTuple):
    """The mean of the differences of pairs. half_width: of its 95 % interval over all looks.  p:
    the p-value of no difference."""

    value: float
    half_width: float
    p: float


def _mean_difference(differences: Sequence[float], number_of_looks: int) -> _Mean:
    """By Student's t: the differences are symmetric around the true one under any load.

    differences: at least two.
    """
    mean = float(np.mean(differences))
    freedom = len(differences) - 1
    variance = float(np.var(differences, ddof=1)) / len(
        differences
    )  # 0 for a counted value
    quantile = student_quantile(1 - ERROR_RATE / 2 / number_of_looks, freedom)
    p = number_of_looks * p_value(mean, variance, freedom)
    return _Mean(mean, quantile * math.sqrt(variance), min(1.0, p))


@dataclass(frozen=True)
class GatedValue:
    """One metric of one point on both sides. budget: the allowed slow-down, 0.05 for 5 %.

    base, head: means of the rounds.  difference: how much worse head is, of logarithms unless
    `is_ratio` is false; its p is corrected for the number of values.  reason: why it cannot be
    judged, or "".
    """

    benchmark: str
    point: str
    metric: str
    unit: str
    base: float
    head: float
    budget: float
    difference: _Mean
    is_ratio: bool = True
    reason: str = ""

    @property
    def slower(self) -> float | None:
        """How many times worse head is: 1.1 for 10 %; None if there is no ratio."""
        return math.exp(self.difference.value) if self.is_ratio else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of `slower`."""
        if not self.is_ratio:
            return None
        value = self.difference.value
        width = self.difference.half_width
        return _power(value - width), _power(value + width)

    @property
    def is_better(self) -> bool:
        """Whether it is significantly better."""
        return self._differs and self.difference.value < 0

    @property
    def outcome(self) -> Outcome:
        """refused: significantly worse, and by more than the budget; includes any rise from 0.
        within: the whole interval is within the budget.  undecided: neither."""
        if self.reason:
            return "undecided"
        allowed = math.log1p(self.budget) if self.is_ratio else 0.0
        if self._differs and self.difference.value > allowed:
            return "refused"
        farthest = self.difference.value + self.difference.half_width
        return "within" if farthest <= allowed else "undecided"

    @property
    def _differs(self) -> bool:
        return not self.reason and self.difference.p < ERROR_RATE


def _power(exponent: float) -> float:
    """The exponential function, limited: neither 0 nor infinite, so that it can be inverted."""
    return math.exp(min(max(exponent, -700.0), 700.0))


def judge(
    points: Sequence[Sequence[Pair]],
    budgets_of: Callable[[Record], Mapping[str, float]],
    number_of_looks: int,
) -> list[list[GatedValue]]:
    """Verdicts on all metrics of each point that have a budget, corrected for multiple comparisons.

    The correction is that of Benjamini and Hochberg. Metrics of one timing, which have one p-value,
    are one hypothesis.

    The card's factor (`hpml_plugins.analysis.reference`) is no covariate here. Both sides are
    measured on one card in one visit, so their reference is the same: for any coefficient it
    cancels in the difference, whose variance is that of rounds on one card alone.

    points: the pairs of each, `needed_pairs` or more.  budgets_of: of the metrics of a Record.
    """
    values: list[list[GatedValue]] = [[] for _ in points]
    hypotheses: dict[tuple[int, str], float] = {}
    for number, pairs in enumerate(points):
        reason = _different_problems(pairs)
        budgets = budgets_of(pairs[0][0])
        for metric in sorted(budgets.keys() & common_metrics(pairs)):
            value = _judge_alone(pairs, metric, budgets[metric], number_of_looks, reason)
            hypotheses[_hypothesis(number, value)] = value.difference.p
            values[number].append(value)
    corrected = dict(zip(hypotheses, correct(list(hypotheses.values())), strict=True))
    judged = []
    for number, of_point in enumerate(values):
        chances = [corrected[_hypothesis(number, each)] for each in of_point]
        judged.append(list(map(_with_chance, of_point, chances)))
    return judged


def _with_chance(value: GatedValue, p: float) -> GatedValue:
    return replace(value, difference=value.difference._replace(p=p))


def _hypothesis(number: int, value: GatedValue) -> tuple[int, str]:
    return number, f"{value.difference.p:.6g}"


def common_metrics(pairs: Sequence[Pair]) -> set[str]:
    """The metrics that all rounds of both sides have."""
    return set.intersection(*(set(each.metrics) for pair in pairs for each in pair))


def _judge_alone(
    pairs: Sequence[Pair], metric: str, budget: float, number_of_looks: int, reason: str
) -> GatedValue:
    first, of_head = pairs[0]
    measured = first.metrics[metric]
    other = of_head.metrics[metric]
    if (measured.unit, measured.direction) != (other.unit, other.direction):
        reason = "its unit or direction changed"
    medians = np.array([[each.metrics[metric].value for each in pair] for pair in pairs])
    is_ratio = bool((medians > 0).all())
    compared = np.log(medians) if is_ratio else medians
    worse = -1 if measured.direction == "higher" else 1
    found = _mean_difference(worse * (compared[:, 1] - compared[:, 0]), number_of_looks)
    means = compared.mean(axis=0)
    base, head = (np.exp(means) if is_ratio else means).tolist()
    return GatedValue(
        first.benchmark,
        format_point(first.params),
        metric,
        measured.unit,
        base,
        head,
        budget,
        found,
        is_ratio,
        reason,
    )


def _different_problems(pairs: Sequence[Pair]) -> str:
    """See `analysis.different_problems`."""
    base, head = (combine(rounds) for rounds in zip(*pairs, strict=True))
    of_base, of_head = (
        {name: MeasuredValue.of(each, name) for name in each.metrics}
        for each in (base, head)
    )
    return different_problems(of_base, of_head)
