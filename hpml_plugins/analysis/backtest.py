"""Test intervals and verdicts on the Records themselves: each card is left out and predicted from
the others.

Values of equal code on several cards of one type of hardware differ only by the cards. Each value
is left out in turn, with everything else its card measured, and predicted from the remaining cards.
Every two of them are also compared as the verdicts compare them, which shows the smallest slow-down
of one of them that would be detected.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import numpy as np

from hpml_plugins.analysis.measured import Adjusted, MeasuredValue, Values, mean_over_cards
from hpml_plugins.analysis.physics import HOST_TAKES_PART, ON_GPU, Physics
from hpml_plugins.analysis.reference import References
from hpml_plugins.analysis.variability import (
    ObservedReadings,
    Place,
    Readings,
    adjusted_spreads,
    observe,
    with_references,
)
from hpml_plugins.analysis.variance import Spread, half_width
from hpml_plugins.analysis.verdicts import MARGIN, Difference, ValuePair, compare_values

#: The tested classes: those whose values are timed.
TESTED = (*ON_GPU, Physics.THROTTLED, *HOST_TAKES_PART)
#: The share of values or pairs covered by a half width or a smallest slow-down.
FOUND = 0.95
#: The verdicts that are wrong for equal code.
DIFFERENT = ("BETTER", "WORSE")


@dataclass(frozen=True)
class _Repeated:
    """Results of several cards of one type of hardware with equal code. cards: card → its value,
    without a spread.

    line: the number of the line of its values; see `ObservedReadings`.
    """

    physics: Physics
    line: int
    cards: dict[str, MeasuredValue]


class LeftOut(NamedTuple):
    """A value predicted from the other cards. card: the one that measured it.  error, half_width:
    its deviation from their mean, and that of their interval; logarithms."""

    card: str
    error: float
    half_width: float


class _ComparedPair(NamedTuple):
    """A value of one card compared with one of another, both of equal code.

    called: whether it was called different, judged alone.  called_together: the same, judged with
    everything that the two cards have in common.  smallest: the smallest slow-down of the second
    that would be detected alone, as a logarithm.  adjusted: whether the factors of the cards were
    removed.  referenced: whether both visits measured the reference steps, as they do by default;
    those steps themselves have no reference.
    """

    cards: tuple[str, str]
    called: bool
    called_together: bool
    smallest: float
    adjusted: bool
    referenced: bool


@dataclass(frozen=True)
class ClassResult:
    """The results of the back-test for a class.  pairs: in both orders."""

    physics: Physics
    left_out: list[LeftOut] = field(default_factory=list)
    pairs: list[_ComparedPair] = field(default_factory=list)

    @property
    def cards(self) -> set[str]:
        """The cards that took part."""
        return {each.card for each in self.left_out}

    @property
    def covered(self) -> list[bool]:
        """For each value left out, whether the interval of the other cards contained it."""
        return [each.error <= each.half_width for each in self.left_out]

    @property
    def covered_of_a_card(self) -> list[float]:
        """Of each card the share of its values that the interval contained. A card's values often
        miss together, so their shares say more than all values do about the next card."""
        found: dict[str, list[bool]] = {}
        for each, covered in zip(self.left_out, self.covered, strict=True):
            found.setdefault(each.card, []).append(covered)
        return [statistics.fmean(of_card) for of_card in found.values()]

    @property
    def half_width(self) -> float:
        """The median of the half widths."""
        return statistics.median(each.half_width for each in self.left_out)

    @property
    def called(self) -> list[bool]:
        """For each pair, whether it was called different alone."""
        return [each.called for each in self.pairs]

    @property
    def called_together(self) -> list[bool]:
        """For each pair, whether it was called different together with everything its cards
        share."""
        return [each.called_together for each in self.pairs]

    @property
    def smallest(self) -> list[float]:
        """The smallest detectable slow-down of each pair."""
        return [each.smallest for each in self.pairs]

    @property
    def smallest_found(self) -> float:
        """The slow-down that is detected in FOUND of the pairs, 0.05 for 5 %."""
        return math.expm1(smallest_in_most(self.smallest))


class MeasuredPoint(NamedTuple):
    """The values of one Record, one for each metric, in the order of the Record."""

    machine: str
    benchmark: str
    point: str
    values: Values


def _timed_readings(measured: Iterable[MeasuredPoint]) -> list[Readings]:
    """The timed values, one per timing: the first metric represents those derived from it."""
    found: dict[tuple[str, Place], list[MeasuredValue]] = {}
    for machine, benchmark, point, values in measured:
        seen: set[tuple[Physics, float]] = set()
        for name, reading in values.items():
            if reading.physics not in TESTED or reading.is_busy or reading.value <= 0:
                continue
            timing = reading.physics, round(reading.timing or 0.0, 6)
            if reading.timing is not None and timing in seen:
                continue
            seen.add(timing)
            key = machine, Place(benchmark, point, name)
            found.setdefault(key, []).append(reading)
    return [(place, readings) for (_, place), readings in found.items()]


def _repeated_values(observed: ObservedReadings) -> list[_Repeated]:
    """Every value of equal code on at least two cards of a type."""
    found: dict[tuple[object, ...], list[tuple[int, MeasuredValue]]] = {}
    for number, (place, line) in enumerate(
        zip(observed.places, observed.lines, strict=True)
    ):
        for reading in line:
            spot = place, reading.physics, reading.hardware, reading.code
            found.setdefault(spot, []).append((number, reading))
    made = []
    for members in found.values():
        by_card: dict[str, list[MeasuredValue]] = {}
        for _, reading in members:
            by_card.setdefault(reading.card, []).append(reading)
        if len(by_card) > 1:
            number, first = members[-1]
            cards = {card: mean_over_cards(readings) for card, readings in by_card.items()}
            made.append(_Repeated(first.physics, number, cards))
    return made


class BackTest:
    """The back-test of all measured points.  results: by class, in the order of TESTED."""

    def __init__(
        self, measured: Iterable[MeasuredPoint], references: References | None = None
    ) -> None:
        self._references = references or References()
        observed = observe(with_references(_timed_readings(measured), self._references))
        self.results: dict[Physics, ClassResult] = {}
        if observed is None:
            return
        self._observed = observed
        self._repeated = _repeated_values(observed)
        for each in self._repeated:
            result = self.results.setdefault(each.physics, ClassResult(each.physics))
            self._leave_one_out(each, result)
        self._compare_pairs()
        self.results = {name: self.results[name] for name in TESTED if name in self.results}

    def _leave_one_out(self, each: _Repeated, result: ClassResult) -> None:
        for card, value in each.cards.items():
            others = [
                other.cards[0].level for name, other in each.cards.items() if name != card
            ]
            spread = self._observed.spreads([card])[each.line]
            width = half_width(spread.any_card, spread.any_freedom, len(others))
            error = abs(math.log(value.value) - statistics.fmean(others))
            result.left_out.append(LeftOut(card, error, width))

    def _compare_pairs(self) -> None:
        """Compare every two cards, in both orders, on everything both measured with equal code."""
        known: dict[frozenset[str], tuple[dict[int, Spread], dict[int, Adjusted]]] = {}
        shared: dict[tuple[str, str], list[_Repeated]] = {}
        for each in self._repeated:
            for cards_of_pair in itertools.permutations(each.cards, 2):
                shared.setdefault(cards_of_pair, []).append(each)
        for (a, b), common in shared.items():
            cards = frozenset((a, b))
            if cards not in known:
                part = self._observed.part({each.line for each in common})
                adjusted = adjusted_spreads(part, self._references, cards)
                known[cards] = part.spreads(cards), adjusted
            spreads, adjusted = known[cards]
            pairs: list[ValuePair] = []
            for each in common:
                one, other = (
                    msgspec.structs.replace(
                        each.cards[card],
                        spread=spreads[each.line],
                        adjusted=adjusted.get(each.line),
                    )
                    for card in (a, b)
                )
                pairs.append(ValuePair(len(pairs), {"": one}, {"": other}, ""))
            together = compare_values(pairs)
            for each, found, pair in zip(common, together, pairs, strict=True):
                (alone,) = compare_values([pair])
                self.results[each.physics].pairs.append(
                    _ComparedPair(
                        (a, b),
                        alone.verdict in DIFFERENT,
                        found.verdict in DIFFERENT,
                        smallest_found(alone),
                        alone.adjusted,
                        _is_referenced(pair.a[""]) and _is_referenced(pair.b[""]),
                    )
                )


def _is_referenced(value: MeasuredValue) -> bool:
    return value.cards[0].reference is not None


def smallest_found(alone: Difference) -> float:
    """The logarithm of the smallest slow-down of the other side that is called worse, so that the
    interval excludes 1 and ends beyond MARGIN. inf without an interval, or if its bounds are not
    finite."""
    interval = alone.interval
    if (
        interval is None
        or alone.direction is None
        or not 0 < min(interval) <= max(interval) < math.inf
    ):
        return math.inf
    # the ratio says how many times better the other is; the margin applies to the ratio
    low, high = map(math.log, interval)
    beyond = math.log(1 + MARGIN) if alone.direction == "lower" else -math.log(1 - MARGIN)
    return max(0.0, high, low + beyond)


def smallest_in_most(smallest: Sequence[float]) -> float:
    """The logarithm of the slow-down that FOUND of the pairs reach.  smallest: of each pair."""
    return float(np.quantile(smallest, FOUND, method="higher"))
