"""Verdicts on differences: BETTER, WORSE, SAME, or the bounds within which the ratio lies."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from hpml_plugins.analysis.measured import MeasuredValue, Values
from hpml_plugins.analysis.physics import MOST_THROTTLED, Physics
from hpml_plugins.analysis.segments import BUSY
from hpml_plugins.analysis.variance import p_value, student_quantile
from hpml_plugins.model.formatting import bounded_times, least_times, quantity, times

Verdict = Literal["SAME", "BETTER", "WORSE", "BOUND", "AMBIGUOUS"]

#: Share of comparisons between equal things that may be called different, over all comparisons
#: made together.
ERROR_RATE = 0.05
#: Two values are the same if the 95 % interval of their ratio lies within this share of 1.
MARGIN = 0.02
#: Counted values with a direction are the same if they agree this well: they are shown with as
#: many digits, and allocators round.
COUNTED_MARGIN = 5e-4
#: An interval around 1 that extends no further is written as "equal within 3 %", a wider one by
#: its bounds.
NEARLY_EQUAL = 0.03
#: Signatures of one timing agree to this many decimals; see `physics.signature`.
SIGNATURE_DECIMALS = 6
NOTHING_REPEATED = "no repeated runs show how much a value at or below 0 varies"
DIFFERENT_PROBLEMS = "different problems: "
NO_DIRECTION = "neither direction is better"
UNKNOWN_SPREAD = "its variation is unknown"
OTHER_LOAD = "on one side the card rested between the steps"
NO_SECOND_CARD = "its variation between cards is unknown"


@dataclass(frozen=True)
class Difference:
    """One metric of one point, B compared with A. ratio: B over A, None if one of them is not above
    0.

    verdict: SAME, BETTER and WORSE are decided. BOUND: only the interval is known. AMBIGUOUS:
    nothing is known, and `reason` says why.  change: B minus A, in the metric's unit.  direction:
    which is better.  low, high: the 95 % interval of the ratio.  least: the bound nearer to 1 of
    its one-sided 95 % interval: B is at least that much larger or smaller.  p: of no difference,
    before correction; None if unknown.  cards: the number of cards that measured A and B; for
    `paired` sides, those that measured both.  paired: whether the same cards measured both sides;
    each is then compared with itself.  adjusted: whether the cards' factors, estimated from the
    reference steps, are removed from the ratio.
    """

    verdict: Verdict
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    reason: str = ""
    direction: str | None = None
    change: float | None = None
    least: float | None = None
    cards: tuple[int, int] = (1, 1)
    paired: bool = False
    adjusted: bool = False

    @property
    def times(self) -> float | None:
        """How many times better B is, in the direction of the metric; None if unknown."""
        if self.ratio is None or self.direction is None:
            return None
        return self._oriented(self.ratio)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of `times`, or of the ratio if no direction is better; None without
        one."""
        if self.low is None or self.high is None:
            return None
        ends = sorted((self._oriented(self.low), self._oriented(self.high)))
        return ends[0], ends[1]

    def _oriented(self, ratio: float) -> float:
        return 1 / ratio if self.direction == "lower" else ratio

    @property
    def reversed(self) -> Difference:
        """A compared with B."""
        opposite: dict[Verdict, Verdict] = {"BETTER": "WORSE", "WORSE": "BETTER"}
        return dataclasses.replace(
            self,
            verdict=opposite.get(self.verdict, self.verdict),
            ratio=1 / self.ratio if self.ratio else self.ratio,
            low=1 / self.high if self.high else None,
            high=1 / self.low if self.low else None,
            least=1 / self.least if self.least else None,
            change=None if self.change is None else -self.change,
            cards=self.cards[::-1],
        )

    @property
    def undirected(self) -> Difference:
        """The difference worded as B over A, whichever direction is better."""
        return dataclasses.replace(self, direction=self.direction and "higher")

    def wording(self, unit: str = "1") -> str:
        """The result in words: `at least 1.40×`, `equal within 2 %`, `0.97 to 1.04×`.

        Above 1, B is better; if no direction is better, it is larger.  unit: of the metric, for a
        difference without a ratio.
        """
        if self.ratio is None:
            return self._wording_of_change(unit)
        interval = self.interval
        if interval is None:
            return "equal" if self.verdict == "SAME" else self.reason
        low, high = interval
        if low == high:
            return f"{times(low)}×"
        if self.least is not None and self.verdict in ("BETTER", "WORSE"):
            return least_times(self._oriented(self.least))
        farthest = max(1 - low, high - 1)
        if self.verdict == "SAME" or (low <= 1 <= high and farthest <= NEARLY_EQUAL):
            return f"equal within {max(1, math.ceil(100 * farthest - 1e-9))} %"
        return f"{bounded_times(low, up=False)} to {bounded_times(high, up=True)}×"

    def full_wording(self, unit: str = "1") -> str:
        """The wording with `, adjusted` if the cards' own speed is removed from the ratio."""
        return self.wording(unit) + ", adjusted" * self.adjusted

    def _wording_of_change(self, unit: str) -> str:
        if self.verdict == "AMBIGUOUS" or self.change is None:
            return self.reason
        sign = "+" if self.change > 0 else ""
        return f"{sign}{quantity(self.change, unit)}" if self.change else "equal"


class ValuePair(NamedTuple):
    """A metric of two sides, to be compared. place: names the point and the sides; metrics of one
    timing (time, rate, bandwidth) of equal places are one hypothesis.  a, b: of all metrics."""

    place: Hashable
    a: Values
    b: Values
    metric: str


def compare_values(pairs: Sequence[ValuePair]) -> list[Difference]:
    """A verdict on B against A of each pair, corrected for the number of hypotheses (Benjamini and
    Hochberg).

    SAME: the 95 % interval of the ratio lies within MARGIN of 1.  BETTER, WORSE: it does not, and
    such a difference between equal things is sufficiently improbable; for counted values any
    difference above COUNTED_MARGIN counts.  BOUND: neither, or no direction is better.  AMBIGUOUS:
    see `Difference`.
    Source: Benjamini and Hochberg, Controlling the false discovery rate, JRSS B 57 (1995).
    """
    raw = [_difference(pair.a, pair.b, pair.metric) for pair in pairs]
    hypotheses: dict[object, float] = {}
    keys = []
    for number, (found, pair) in enumerate(zip(raw, pairs, strict=True)):
        key = _hypothesis(pair) or number
        keys.append(key)
        if found.p is not None:
            hypotheses[key] = max(found.p, hypotheses.get(key, 0.0))
    corrected = dict(zip(hypotheses, correct(list(hypotheses.values())), strict=True))
    return [
        _judged(found, corrected.get(key, 1.0))
        for found, key in zip(raw, keys, strict=True)
    ]


def correct(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for their number by the step-up procedure.

    Of n, the k-th smallest is multiplied by n / k, and a smaller one never ends above a larger one.
    Source: Benjamini and Hochberg (1995), Controlling the false discovery rate, section 3.1.
    """
    given = np.asarray(p_values, dtype=float)
    ascending = np.argsort(given)
    count = len(given)
    scaled = given[ascending] * (count / np.arange(1, count + 1))
    stepped_up = np.minimum.accumulate(scaled[::-1])[::-1]
    corrected = np.empty(count)
    corrected[ascending] = np.minimum(stepped_up, 1.0)
    return [float(each) for each in corrected]


def _hypothesis(pair: ValuePair) -> Hashable:
    """A key shared by all metrics of one timing of a place; None for a value without a timing."""
    a = pair.a[pair.metric]
    b = pair.b[pair.metric]
    if a.timing is None or b.timing is None:
        return None
    timings = [round(timing, SIGNATURE_DECIMALS) for timing in (a.timing, b.timing)]
    return (pair.place, a.physics, b.physics, *timings)


def _difference(of_a: Values, of_b: Values, name: str) -> Difference:
    a = of_a[name]
    b = of_b[name]
    direction = common_direction(a, b)
    if not _describes_problem(a, b) and (reason := different_problems(of_a, of_b)):
        return Difference("AMBIGUOUS", reason=reason)
    change = b.value - a.value
    positive = a.value > 0 and b.value > 0
    ratio = b.value / a.value if positive else None
    unjudged = Difference("AMBIGUOUS", ratio, direction=direction, change=change)
    exact = a.physics is b.physics is Physics.COUNTED
    unknown = a.spread is None or b.spread is None or _lack_spread(a, b)
    if a.value == b.value and (exact or unknown):
        return Difference(
            "SAME", 1.0 if positive else None, direction=direction, change=change
        )
    if _is_other_load(a, b):
        return dataclasses.replace(unjudged, reason=OTHER_LOAD)
    if exact and direction and ratio and abs(ratio - 1) <= COUNTED_MARGIN:
        return dataclasses.replace(unjudged, verdict="SAME")
    if exact:
        return dataclasses.replace(
            unjudged, low=ratio, high=ratio, least=ratio, p=0.0, reason=NO_DIRECTION
        )
    if not positive:
        return _difference_of_changes(a, b, unjudged)
    if a.spread is None or b.spread is None:
        return dataclasses.replace(unjudged, reason=UNKNOWN_SPREAD)
    if _lack_spread(a, b):
        return dataclasses.replace(unjudged, reason=NO_SECOND_CARD)
    return _difference_of_ratios(a, b, unjudged)


def _lack_spread(a: MeasuredValue, b: MeasuredValue) -> bool:
    """Whether values of different cards are compared although nothing shows how far they vary
    between cards."""
    if not (a.lacks_spread or b.lacks_spread):
        return False
    of_a, of_b = ({each.card for each in side.levels} or {side.card} for side in (a, b))
    return not of_a & of_b


def _difference_of_changes(
    a: MeasuredValue, b: MeasuredValue, found: Difference
) -> Difference:
    """Compare values not above 0 by their difference, using the variation between repeated runs of
    equal code."""
    scatters = [each.scatter for each in (a, b) if each.scatter]
    if len(scatters) < 2 or found.change is None:
        return dataclasses.replace(found, reason=NOTHING_REPEATED)
    variance = sum(each for each, _ in scatters)
    freedom = min(each for _, each in scatters)
    return dataclasses.replace(found, p=p_value(found.change, variance, freedom))


class _Compared(NamedTuple):
    """The logarithm of B over A. variance: of the logarithm.  freedom: of the variance.  cards: of
    A and B.

    paired: see `Difference`.  adjusted: whether the factors of the cards are removed.
    """

    ratio: float
    variance: float
    freedom: float
    cards: tuple[int, int]
    paired: bool = False
    adjusted: bool = False

    @property
    def half_width(self) -> float:
        """Half-width of the 95 % interval."""
        return student_quantile(0.975, self.freedom) * math.sqrt(self.variance)


def _compare_cards(a: MeasuredValue, b: MeasuredValue) -> _Compared:
    """Compare each card that measured both sides with itself. Without such cards compare the means
    of the two sides, with the factors of the cards removed if that is more precise."""
    assert a.spread is not None and b.spread is not None
    of_a = {level.card: level for level in a.cards}
    of_b = {level.card: level for level in b.cards}
    common = of_a.keys() & of_b.keys()
    if common:
        count = len(common)
        ratio = sum(of_b[card].level - of_a[card].level for card in common) / count
        variance = sum(
            a.spread.same_card / of_a[card].runs + b.spread.same_card / of_b[card].runs
            for card in common
        )
        freedom = min(a.spread.same_freedom, b.spread.same_freedom)
        return _Compared(ratio, variance / count**2, freedom, (count, count), paired=True)
    counts = len(of_a), len(of_b)
    variance = a.spread.any_card / counts[0] + b.spread.any_card / counts[1]
    freedom = min(a.spread.any_freedom, b.spread.any_freedom)
    plain = _Compared(math.log(b.value / a.value), variance, freedom, counts)
    adjusted = _adjust(a, b, plain)
    return min(plain, adjusted, key=lambda each: each.half_width) if adjusted else plain


def _adjust(a: MeasuredValue, b: MeasuredValue, plain: _Compared) -> _Compared | None:
    """The comparison with the factors of the cards removed; None if no side has a reference.

    For two sides on one type the references are compared directly. Otherwise each side with a
    reference is compared with the mean over its type, which has its own error (the regression
    estimator of double sampling; Cochran, Sampling Techniques, 3rd ed. (1977), section 12.6). The
    error of β is weighted by the difference of the references.
    """
    if a.physics is not b.physics:
        return None
    of_a = _mean_reference(a)
    of_b = _mean_reference(b)
    if (
        a.hardware == b.hardware
        and (a.adjusted and b.adjusted)
        and (of_a is not None and of_b is not None)
    ):
        reference_difference = of_b - of_a
        ratio = plain.ratio - a.adjusted.coefficient * reference_difference
        variance = a.adjusted.variance / len(a.cards) + b.adjusted.variance / len(b.cards)
        variance += a.adjusted.of_coefficient * reference_difference**2
        freedom = min(a.adjusted.freedom, b.adjusted.freedom)
        return _Compared(ratio, variance, freedom, plain.cards, adjusted=True)
    sides = _from_type(a, of_a), _from_type(b, of_b)
    if sides == (None, None):
        return None
    shifts, variances, freedoms = zip(
        *(found or _unadjusted(side) for found, side in zip(sides, (a, b), strict=True)),
        strict=True,
    )
    ratio = plain.ratio + shifts[1] - shifts[0]
    return _Compared(ratio, sum(variances), min(freedoms), plain.cards, adjusted=True)


class _Side(NamedTuple):
    """An adjustment of the mean of a side's cards. shift: of its logarithm.  variance, freedom: of
    the adjusted mean."""

    shift: float
    variance: float
    freedom: float


def _unadjusted(side: MeasuredValue) -> _Side:
    assert side.spread is not None
    variance = side.spread.any_card / len(side.cards)
    return _Side(0.0, variance, side.spread.any_freedom)


def _from_type(side: MeasuredValue, reference: float | None) -> _Side | None:
    """Adjust for the distance of the cards' reference from the mean of their type."""
    adjusted = side.adjusted
    if reference is None or adjusted is None or adjusted.of_type is None:
        return None
    reference_difference = reference - adjusted.of_type.mean
    variance = (
        adjusted.variance / len(side.cards)
        + adjusted.of_coefficient * reference_difference**2
        + adjusted.coefficient**2 * adjusted.of_type.variance
    )
    return _Side(-adjusted.coefficient * reference_difference, variance, adjusted.freedom)


def _mean_reference(side: MeasuredValue) -> float | None:
    """The mean reference of the cards; None if a card has none."""
    references = [each.reference for each in side.cards if each.reference is not None]
    if not references or len(references) < len(side.cards):
        return None
    return sum(references) / len(references)


def _slowed_by_others(a: MeasuredValue, b: MeasuredValue, quiet: _Compared) -> _Compared:
    """Increase the variance by the unknown factor by which busy CPUs slowed down each busy side."""
    if not (a.is_busy or b.is_busy):
        return quiet
    variance = quiet.variance + BUSY**2 * (a.is_busy + b.is_busy)
    # Satterthwaite's formula, with the variance of that factor known
    freedom = variance**2 / max(quiet.variance**2 / quiet.freedom, 1e-9)
    return quiet._replace(variance=variance, freedom=freedom)


def _difference_of_ratios(
    a: MeasuredValue, b: MeasuredValue, found: Difference
) -> Difference:
    compared = _slowed_by_others(a, b, _compare_cards(a, b))
    lower, higher = throttling_slack(a, b)
    deviation = math.sqrt(compared.variance)
    width = compared.half_width
    certain = student_quantile(1 - ERROR_RATE, compared.freedom) * deviation
    nearest = max(0.0, compared.ratio - lower) + min(0.0, compared.ratio + higher)
    least = nearest - math.copysign(certain, nearest)
    return dataclasses.replace(
        found,
        ratio=math.exp(compared.ratio),
        low=math.exp(compared.ratio - lower - width),
        high=math.exp(compared.ratio + higher + width),
        least=math.exp(least) if least * nearest > 0 else None,
        p=p_value(nearest, compared.variance, compared.freedom) if nearest else 1.0,
        cards=compared.cards,
        paired=compared.paired,
        adjusted=compared.adjusted,
    )


def throttling_slack(a: MeasuredValue, b: MeasuredValue) -> tuple[float, float]:
    """How much lower and higher the logarithm of B over A may be because one side was sampled while
    it throttled.

    Such a sample is neither boost nor settled: the settled rate is lower by up to the ratio of the
    two regimes, taken from the other side if it has both, else MOST_THROTTLED. Two sides that were
    both sampled this way are compared unchanged.
    """
    sides = [each.physics is Physics.THROTTLED for each in (a, b)]
    if all(sides) or not any(sides):
        return 0.0, 0.0
    other = b if sides[0] else a
    if other.boosted:
        most = abs(math.log(other.value / other.boosted.value))
    else:
        most = math.log(MOST_THROTTLED)
    a_slower = sides[0]
    # The settled time of a side is longer and its rate lower; without a direction it may be
    # either.
    direction = common_direction(a, b)
    if direction is None:
        return most, most
    lowers_ratio = a_slower == (direction == "lower")
    return (most, 0.0) if lowers_ratio else (0.0, most)


def _judged(found: Difference, adjusted: float) -> Difference:
    if found.p is None:
        return found
    within = found.low is not None and found.high is not None and found.low != found.high
    if (
        within
        and (found.low or 0.0) >= 1 - MARGIN
        and (found.high or math.inf) <= 1 + MARGIN
    ):
        return dataclasses.replace(found, verdict="SAME", reason="")
    if adjusted < ERROR_RATE and found.direction is not None:
        risen = (found.change or 0.0) > 0 if found.ratio is None else found.ratio > 1
        better = risen == (found.direction == "higher")
        return dataclasses.replace(
            found, verdict="BETTER" if better else "WORSE", reason=""
        )
    if found.ratio is not None:
        return dataclasses.replace(found, verdict="BOUND", reason="")
    return dataclasses.replace(
        found, reason=found.reason or "the difference may be run-to-run variation"
    )


def why_not_judged(a: MeasuredValue, b: MeasuredValue) -> str:
    """Why two values cannot be part of one history, or "".

    A value sampled while the card throttled is neither boost nor sustained. Long steps were faster
    while the card rested between them.
    """
    if (a.physics is Physics.THROTTLED) != (b.physics is Physics.THROTTLED):
        return "one side throttled"
    return OTHER_LOAD if _is_other_load(a, b) else ""


def _is_other_load(a: MeasuredValue, b: MeasuredValue) -> bool:
    """Whether the card rested between the steps of one of them only."""
    return "" not in (a.load, b.load) and a.load != b.load


def common_direction(a: MeasuredValue, b: MeasuredValue) -> str | None:
    """The direction that is better on both sides of a metric; None if a side has none, or if they
    differ."""
    return a.direction if a.direction == b.direction else None


def different_problems(of_a: Values, of_b: Values) -> str:
    """How the problems solved by two Records of a point differ: `different problems: size 4096 and
    12288`, or "".

    A counted metric without a direction, such as the size at which a product was fastest, describes
    the problem. The other metrics of different problems have no ratio.
    """
    differing = [
        f"{name} {of_a[name].value:.15g} and {of_b[name].value:.15g}"
        for name in sorted(of_a.keys() & of_b.keys())
        if _describes_problem(of_a[name], of_b[name])
        and of_a[name].value != of_b[name].value
    ]
    return DIFFERENT_PROBLEMS + ", ".join(differing) if differing else ""


def _describes_problem(a: MeasuredValue, b: MeasuredValue) -> bool:
    return a.physics is b.physics is Physics.COUNTED and common_direction(a, b) is None
