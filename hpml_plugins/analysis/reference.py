"""The card's factor: the speed of a card, estimated from the reference steps of a visit.

Each visit to a GPU first measures the benchmark `reference`: a copy of 4 GiB, a float32 product,
and a bfloat16 product at boost and settled. A card that is 1 % faster than others of its type in
the reference is about 1 % faster in computations limited by the same physics. Values of a class are
regressed on the reference of the class, both as deviations from the means of groups of equal code
and type, so that differences between codes and types have no influence:

    value − group mean = β (reference − group mean) + rest

β is shrunk by its uncertainty and limited to 0 to 1, so that a card's factor is neither
overcorrected nor inverted. A class is adjusted only if that narrows its intervals: if the pooled
variance of the residuals, which have one degree of freedom less, is smaller. The uncertainty of β
widens the interval of a comparison in proportion to the difference between the references of the
sides.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hpml_plugins.analysis.measured import TypeReference, card_of, hardware_of
from hpml_plugins.analysis.physics import Physics
from hpml_plugins.analysis.variance import Array

if TYPE_CHECKING:
    from hpml_plugins.model.record import Record

#: The benchmark of the reference steps.
BENCHMARK = "reference"
VERSION = "1"
#: Its metrics: times, s.
COPY = "copy"
FLOAT32 = "float32"
BFLOAT16 = "bfloat16"
#: s: a reference of the same card at most this far from a Record counts for its visit.
SAME_VISIT = 2 * 3600.0
#: Class → the metric of the reference with the same physics.
STEPS = {
    Physics.STREAMING: COPY,
    Physics.MEMORY_BOUND: COPY,
    Physics.NEVER_THROTTLED: FLOAT32,
    Physics.LATENCY: FLOAT32,
    Physics.BOOST: BFLOAT16,
    Physics.SUSTAINED: BFLOAT16,
}
#: The classes for which the bfloat16 product at boost is used: at settled clocks its time also
#: depends on temperature and regulator, and explains less of the differences between cards.
TOLD_BY_BOOST = (Physics.BOOST, Physics.SUSTAINED)
#: The number of standard errors that is subtracted from the estimate of a coefficient.
SHRINKAGE = 1.0
#: The fewest cards from which a coefficient is estimated.
ENOUGH_CARDS = 3
#: If their sum of squares is smaller, references differ only by rounding, which is near 1e-16
#: for each logarithm.
SAME_REFERENCE = 1e-24


class _Visit(NamedTuple):
    """The reference of one visit. logarithms: class → the natural logarithm of its step's time."""

    run: str
    card: str
    hardware: str
    started: float
    logarithms: Mapping[Physics, float]


@dataclass
class References:
    """The visits that measured the reference."""

    _by_run: dict[tuple[str, str], _Visit] = field(default_factory=dict)
    _by_card: dict[str, list[_Visit]] = field(default_factory=dict)

    @classmethod
    def of(cls, records: Iterable[Record]) -> References:
        """The references among these Records; others are ignored."""
        found = cls()
        for record in records:
            found.add(record)
        return found

    def add(self, record: Record) -> None:
        """Add a Record if it is of the reference."""
        if visit := visit_of(record):
            self._by_run[visit.run, visit.card] = visit
            self._by_card.setdefault(visit.card, []).append(visit)

    def of_type(self, hardware: str, physics: Physics) -> TypeReference | None:
        """The mean reference of the cards of a type for a class; None for fewer than two cards."""
        by_card: dict[str, list[float]] = {}
        for card, visits in self._by_card.items():
            for visit in visits:
                if visit.hardware == hardware and physics in visit.logarithms:
                    by_card.setdefault(card, []).append(visit.logarithms[physics])
        means = [statistics.fmean(values) for values in by_card.values()]
        if len(means) < 2:
            return None
        return TypeReference(
            statistics.fmean(means), statistics.variance(means) / len(means)
        )

    def find(self, run: str, card: str, started: float) -> _Visit | None:
        """The visit of a Record: that of the same run, else the one of the same card nearest in
        time, if near enough."""
        if run and (run, card) in self._by_run:
            return self._by_run[run, card]
        near = [
            each
            for each in self._by_card.get(card, ())
            if abs(each.started - started) <= SAME_VISIT
        ]
        return min(near, key=lambda each: abs(each.started - started), default=None)


def visit_of(record: Record) -> _Visit | None:
    """The visit described by a Record of the reference; None for any other Record."""
    if (record.benchmark, record.version, record.status) != (
        BENCHMARK,
        VERSION,
        "ok",
    ) or not record.gpus:
        return None
    logarithms = {}
    for physics, name in STEPS.items():
        metric = record.metrics.get(name)
        if metric is None:
            continue
        boost = metric.boost_median
        seconds = boost if physics in TOLD_BY_BOOST and boost is not None else metric.value
        if seconds > 0:
            logarithms[physics] = math.log(seconds)
    return _Visit(
        record.run, card_of(record), hardware_of(record), record.started, logarithms
    )


class Coefficient(NamedTuple):
    """β of a class. cards: the number of cards it is fitted to.  before, after: the pooled variance
    without and with it.  variance: of β itself."""

    value: float
    cards: int
    before: float
    after: float
    variance: float

    @property
    def narrows(self) -> bool:
        """Whether it makes intervals narrower."""
        return self.value > 0 and self.after < self.before


def fit_coefficient(
    group: Array, card: Array, value: Array, reference: Array
) -> Coefficient | None:
    """β by least squares within the groups, shrunk and limited; None for too few cards.

    Every array has one entry per value.  group: of equal code and type.  value: the logarithm of a
    time, or the negative logarithm of a rate, so that both rise with the reference.  reference:
    that of the visit. Each card counts once in a group, with its means. The standard error counts
    cards rather than values, because the values of one card share its factor.
    """
    if len(np.unique(card)) < ENOUGH_CARDS:
        return None
    (groups, cards), place = np.unique([group, card], axis=1, return_inverse=True)
    y, x = (_means(each, place.ravel()) for each in (value, reference))
    members = np.bincount(groups)[groups]
    y, x, groups, cards = (each[members > 1] for each in (y, x, groups, cards))
    distinct_cards = len(np.unique(cards))
    if distinct_cards < ENOUGH_CARDS:
        return None
    y, x = (each - _means(each, groups)[groups] for each in (y, x))
    freedom = len(y) - len(np.unique(groups))
    squares = float(x @ x)
    if squares < SAME_REFERENCE:
        return None
    slope = float(x @ y) / squares
    rest = float((y - slope * x) @ (y - slope * x))
    independent = max(1, distinct_cards - 2)
    error = math.sqrt(
        rest / max(1, freedom - 1) / squares * max(1.0, freedom / independent)
    )
    shrunk = min(1.0, max(0.0, slope - SHRINKAGE * error))
    residuals = y - shrunk * x
    return Coefficient(
        shrunk,
        distinct_cards,
        float(y @ y) / freedom,
        float(residuals @ residuals) / max(1, freedom - 1),
        error**2,
    )


def _means(values: Array, group: Array) -> Array:
    """The mean of each group, by its number; 0 for an empty group."""
    sums = np.bincount(group, values)
    counts = np.bincount(group)
    return sums / np.maximum(counts, 1)
