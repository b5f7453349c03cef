"""The card's factor: what the reference steps of a visit say of how fast a card is.

Each visit to a GPU first measures the benchmark `reference`: a copy of 4 GiB, a float32 product,
and a bfloat16 product at boost and settled. A card that is 1 % faster than others of its type in
the reference is about 1 % faster in what the same physics limits. Values of a class are regressed
on the reference of the class, both as deviations from the means of groups of equal code and type,
so that neither the codes nor the types matter:

    value − group mean = β (reference − group mean) + rest

with β shrunk to what is sure of it and limited to 0 to 1: no card's factor counts more than in
full, none against itself. A class is adjusted only where that narrows its intervals: where the
pooled variance of what is left, which has lost a degree of freedom, is smaller. What is not sure of
β widens the interval of a comparison by its error times how far the references of the sides differ.
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
#: s between a Record and the reference of the same card that still tells of its visit.
SAME_VISIT = 2 * 3600.0
#: Class → the metric of the reference that is of the same physics.
STEPS = {
    Physics.STREAMING: COPY,
    Physics.MEMORY_BOUND: COPY,
    Physics.NEVER_THROTTLED: FLOAT32,
    Physics.LATENCY: FLOAT32,
    Physics.BOOST: BFLOAT16,
    Physics.SUSTAINED: BFLOAT16,
}
#: The classes that the bfloat16 product at boost tells of: at settled clocks its time follows the
#: heat and the regulator too, and explains less of what differs between cards.
TOLD_BY_BOOST = (Physics.BOOST, Physics.SUSTAINED)
#: A coefficient is believed as far as its estimate less this many standard errors reaches up to it.
SHRINKAGE = 1.0
#: Cards from which a coefficient is estimated.
ENOUGH_CARDS = 3
#: Below this sum of squares references differ by rounding alone: of logarithms, near 1e-16 each.
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
        """Of all Records; others than of the reference do not count."""
        found = cls()
        for record in records:
            found.add(record)
        return found

    def add(self, record: Record) -> None:
        """Take a Record in, if it is of the reference."""
        if visit := visit_of(record):
            self._by_run[visit.run, visit.card] = visit
            self._by_card.setdefault(visit.card, []).append(visit)

    def __bool__(self) -> bool:
        return bool(self._by_card)

    def of_type(self, hardware: str, physics: Physics) -> TypeReference | None:
        """What the cards of a type have in common in the reference of a class; None for fewer than
        two cards."""
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
        """The visit of a Record: that of the same run, else that of the same card nearest in time,
        if near enough."""
        if run and (run, card) in self._by_run:
            return self._by_run[run, card]
        near = [
            each
            for each in self._by_card.get(card, ())
            if abs(each.started - started) <= SAME_VISIT
        ]
        return min(near, key=lambda each: abs(each.started - started), default=None)


def visit_of(record: Record) -> _Visit | None:
    """The visit that a Record of the reference tells of; None for any other Record."""
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
        seconds = boost if physics in TOLD_BY_BOOST and boost is not None else metric.median
        if seconds > 0:
            logarithms[physics] = math.log(seconds)
    return _Visit(
        record.run, card_of(record), hardware_of(record), record.started, logarithms
    )


class Coefficient(NamedTuple):
    """β of a class. cards: how many told it.  before, after: the pooled variance without and with
    it.  variance: of β itself."""

    value: float
    cards: int
    before: float
    after: float
    variance: float

    @property
    def narrows(self) -> bool:
        """Whether intervals become narrower by it."""
        return self.value > 0 and self.after < self.before


def fit_coefficient(
    group: Array, card: Array, value: Array, reference: Array
) -> Coefficient | None:
    """β by least squares within the groups, shrunk and limited; None where too few cards tell.

    One entry for each value, in every array.  group: of equal code and type.  value: the logarithm
    of a time; of a rate its negative, so that both rise with the reference.  reference: that of the
    visit. Each card counts once in a group, with its means. The standard error counts cards, not
    values: the values of one card share its factor.
    """
    if len(np.unique(card)) < ENOUGH_CARDS:
        return None
    (groups, cards), place = np.unique([group, card], axis=1, return_inverse=True)
    y, x = (_means(each, place.ravel()) for each in (value, reference))
    members = np.bincount(groups)[groups]
    y, x, groups, cards = (each[members > 1] for each in (y, x, groups, cards))
    told = len(np.unique(cards))
    if told < ENOUGH_CARDS:
        return None
    y, x = (each - _means(each, groups)[groups] for each in (y, x))
    freedom = len(y) - len(np.unique(groups))
    squares = float(x @ x)
    if squares < SAME_REFERENCE:
        return None
    slope = float(x @ y) / squares
    rest = float((y - slope * x) @ (y - slope * x))
    independent = max(1, told - 2)
    error = math.sqrt(
        rest / max(1, freedom - 1) / squares * max(1.0, freedom / independent)
    )
    believed = min(1.0, max(0.0, slope - SHRINKAGE * error))
    left = y - believed * x
    return Coefficient(
        believed,
        told,
        float(y @ y) / freedom,
        float(left @ left) / max(1, freedom - 1),
        error**2,
    )


def _means(values: Array, group: Array) -> Array:
    """The mean of each group, by its number; 0 where there is none."""
    sums = np.bincount(group, values)
    counts = np.bincount(group)
    return sums / np.maximum(counts, 1)
