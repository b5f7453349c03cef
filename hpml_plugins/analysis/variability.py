"""The variation of values, estimated from the differences between Records of equal code."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import statistics
from array import array
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from hpml_plugins.analysis.cards import CardObservations, estimate_points
from hpml_plugins.analysis.measured import (
    EXACT,
    Adjusted,
    MeasuredValue,
    TypeReference,
    Values,
)
from hpml_plugins.analysis.physics import HOST_TAKES_PART, Physics, compared_metrics
from hpml_plugins.analysis.reference import BENCHMARK as REFERENCE
from hpml_plugins.analysis.reference import Coefficient, References, fit_coefficient
from hpml_plugins.analysis.variance import (
    Estimated,
    Observations,
    Spread,
    estimate_runs,
    estimate_spreads,
    pool_rounds,
)

if TYPE_CHECKING:
    from hpml_plugins.model.record import Record

_Array = np.ndarray[Any, Any]

#: The number of newest readings of a point from which its variation is estimated.
RECENT = 50
#: The numbers of each such reading: its reference, those of Observations, then place, spot, member
#: and pool of CardObservations.
_COLUMNS = 14
#: Classes for which nothing is estimated.
_NOT_ESTIMATED = (Physics.COUNTED, Physics.FOREIGN)


class Place(NamedTuple):
    """What a reading measures. point: of the benchmark, on any machine."""

    benchmark: str
    point: str
    metric: str


#: The readings of one place on one machine.
Readings = tuple[Place, Sequence[MeasuredValue]]


@dataclass(frozen=True)
class ObservedReadings:
    """All readings as numbers, or a subset of them.

    same: the variance of a run on the same card, for each observation.  references: one for each
    observation, NaN if its visit has none.  lines: the readings of each point of `observations`,
    one class each.  places: what each line measures.  names: of the cards, by their numbers.
    asked: the lines whose spreads are needed; None: all.
    """

    observations: Observations
    cards: CardObservations
    same: Estimated
    references: _Array
    lines: list[list[MeasuredValue]]
    places: list[Place]
    names: list[str]
    asked: frozenset[int] | None = None

    def numbers_of(self, cards: Collection[str]) -> list[int]:
        """The numbers of the cards with these names."""
        return [number for number, name in enumerate(self.names) if name in cards]

    def spreads(self, without: Iterable[str] = ()) -> dict[int, Spread]:
        """The number of each line → its spread, estimated without these cards."""
        cards = frozenset(without)
        if cards not in self._known:
            found = estimate_points(self.cards, self.numbers_of(cards), self.pools)
            rows = list(self.first.values())
            between = Estimated(*(each[self.cards.point[rows]] for each in found))
            same = Estimated(*(each[rows] for each in self.same))
            spreads = estimate_spreads(self.observations.only(rows), same, between)
            self._known[cards] = dict(zip(self.first, spreads, strict=True))
        return self._known[cards]

    def part(self, lines: Collection[int]) -> ObservedReadings:
        """The observations that determine the spreads of some lines: those of the families of their
        pools.  lines: their numbers."""
        pools = {int(self.cards.pool[self.first[number]]) for number in lines}
        families = frozenset(self.cards.family[list(pools)].tolist())
        if families not in self._parts:
            chosen = np.isin(self.cards.family[self.cards.pool], list(families))
            self._parts[families] = dataclasses.replace(
                self,
                observations=self.observations.only(chosen),
                cards=self.cards.only(chosen),
                same=Estimated(*(each[chosen] for each in self.same)),
                references=self.references[chosen],
            )
        return dataclasses.replace(self._parts[families], asked=frozenset(lines))

    @functools.cached_property
    def first(self) -> dict[int, int]:
        """The number of each line whose spread is needed → the number of its first observation."""
        numbers, first = np.unique(self.observations.point, return_index=True)
        found = zip(numbers.tolist(), first.tolist(), strict=True)
        return {
            line: row for line, row in found if self.asked is None or line in self.asked
        }

    @functools.cached_property
    def pools(self) -> frozenset[int]:
        """The pools of these lines."""
        return frozenset(self.cards.pool[list(self.first.values())].tolist())

    @functools.cached_property
    def _known(self) -> dict[frozenset[str], dict[int, Spread]]:
        return {}

    @functools.cached_property
    def _parts(self) -> dict[frozenset[int], ObservedReadings]:
        return {}


def fill_in_spreads(points: Iterable[Readings], references: References) -> None:
    """Fill in the spread of every reading and, where references say it, its variation without the
    card's factor.

    See `hpml_plugins.analysis.variance` and `hpml_plugins.analysis.cards` for the estimators.
    """
    observed = observe(with_references(points, references))
    if observed is None:
        return
    for number, spread in observed.spreads().items():
        for reading in observed.lines[number]:
            reading.spread = spread
    for number, adjusted in adjusted_spreads(observed, references).items():
        for reading in observed.lines[number]:
            reading.adjusted = adjusted


def with_references(
    points: Iterable[Readings], references: References
) -> Iterator[Readings]:
    """The points, with the reference step of its class and visit added to each reading.

    Readings of the reference itself get none: regressing a value on itself is meaningless.
    """
    for place, readings in points:
        for reading in readings if place.benchmark != REFERENCE else ():
            visit = references.find(reading.run, reading.card, reading.started)
            for each in filter(None, (reading, reading.boosted)):
                seconds = visit.logarithms.get(each.physics) if visit else None
                each.reference = None if seconds is None else _signed(each, seconds)
        yield place, readings


def _signed(reading: MeasuredValue, logarithm: float) -> float:
    """The logarithm with the sign of the reading: a rate falls when the time of the reference
    rises."""
    return -logarithm if reading.direction == "higher" else logarithm


def adjusted_spreads(
    observed: ObservedReadings,
    references: References,
    without: Collection[str] = (),
) -> dict[int, Adjusted]:
    """The number of a line → its variation between cards without the card's factor. Contains only
    lines of classes whose intervals become narrower.

    without: cards to leave out.
    """
    cards = observed.cards
    known = observed.references
    usable = np.isfinite(known) & ~np.isin(cards.card, observed.numbers_of(without))
    fitted = _fit_coefficients(cards, known, usable)
    slopes = np.full(len(known), math.nan)
    for pool, found in fitted.items():
        slopes[cards.pool == pool] = found.value
    if not fitted:
        return {}
    values = np.where(usable, cards.value - slopes * known, math.nan)
    adjusted = dataclasses.replace(cards, value=values)
    between = estimate_points(adjusted, pools=observed.pools)
    of_type = functools.cache(references.of_type)
    made: dict[int, Adjusted] = {}
    for number, spread in observed.spreads(without).items():
        line = observed.lines[number]
        first = observed.first[number]
        coefficient = fitted.get(int(cards.pool[first]))
        point = int(cards.point[first])
        if coefficient is None or not between.known[point]:
            continue
        made[number] = Adjusted(
            coefficient.value,
            coefficient.variance,
            _without_factor(spread, float(between.variance[point])),
            float(between.freedom[point]),
            _signed_type(line[0], of_type(line[0].hardware, line[0].physics)),
        )
    return made


def _fit_coefficients(
    cards: CardObservations, references: _Array, usable: _Array
) -> dict[int, Coefficient]:
    """β of each pool whose intervals it narrows.  usable: the observations to fit it to."""
    found: dict[int, Coefficient] = {}
    for pool in np.unique(cards.pool[usable]).tolist():
        inside = usable & (cards.pool == pool)
        coefficient = fit_coefficient(
            cards.spot[inside], cards.card[inside], cards.value[inside], references[inside]
        )
        if coefficient and coefficient.narrows:
            found[pool] = coefficient
    return found


def _without_factor(spread: Spread, variance: float) -> float:
    """The variance of a run on any card, without the card's factor."""
    # otherwise the variance on the same card was borrowed from the cards
    is_own = spread.same_card < spread.any_card
    return max(variance, spread.same_card) if is_own else variance


def _signed_type(
    reading: MeasuredValue, of_type: TypeReference | None
) -> TypeReference | None:
    return of_type and of_type._replace(mean=_signed(reading, of_type.mean))


def _numbers() -> defaultdict[Any, int]:
    """Numbers for names, in order of first appearance."""
    return defaultdict(itertools.count().__next__)


def observe(points: Iterable[Readings]) -> ObservedReadings | None:
    """The readings as numbers; None if none of them varies.

    Also fills in the spread of counted values, and the scatter of values not above 0.
    """
    groups, kinds, codes, cards, runs = (_numbers() for _ in range(5))
    spots, members, member_places, pools = (_numbers() for _ in range(4))
    # rows of _COLUMNS, one behind the other: a list of tuples takes three times the memory
    rows = array("d")
    loose_kinds: set[int] = set()
    lines: list[list[MeasuredValue]] = []
    places: list[Place] = []
    for place, readings in points:
        _fill_in_scatter(readings)
        for line in _split(readings):
            first = line[0]
            number = len(lines)
            kind = first.kind
            member = member_of(place, first)
            pool = _pool_of(place, first)
            of_member = members[member], pools[pool]
            place_of_member = member_places[member, place]
            recent = line[-RECENT:]
            told = [each.rounds for each in recent if each.rounds]
            rounds_freedom = float(sum(freedom for _, freedom in told))
            of_line = pool_rounds(told), rounds_freedom, number
            of_class = groups[kind, place.benchmark, place.metric], kinds[kind]
            if first.physics is Physics.DERIVED:
                loose_kinds.add(kinds[kind])
            for each in recent:
                run = codes[each.code], cards[each.card], runs[each.started]
                spot = spots[place_of_member, each.hardware, each.code]
                value = math.log(each.value)
                reference = math.nan if each.reference is None else each.reference
                of_card = place_of_member, spot, *of_member
                rows.extend((reference, value, *of_line, *of_class, *run, *of_card))
            lines.append(line)
            places.append(place)
    if not rows:
        return None
    references, *table = np.frombuffer(rows).reshape(-1, _COLUMNS).T
    numbers = [column.astype(np.int64) for column in table[3:]]
    observations = Observations(*table[:3], *numbers[:6])
    modest = np.array([pool[0] in HOST_TAKES_PART for pool in pools])
    loose = np.array([pool[0] is Physics.DERIVED for pool in pools])
    classes = _numbers()
    family = np.array([classes[pool[:-1]] for pool in pools])
    place_number, spot_number, member_number, pool_number = numbers[6:]
    return ObservedReadings(
        observations,
        CardObservations(
            observations.value,
            place_number,
            spot_number,
            member_number,
            pool_number,
            observations.card,
            modest,
            loose,
            family,
        ),
        estimate_runs(observations, loose_kinds),
        references,
        lines,
        places,
        list(cards),
    )


def _split(readings: Sequence[MeasuredValue]) -> Iterator[list[MeasuredValue]]:
    """The readings of one point by kind, boost readings separate, in order of time.

    Fills in the spread of counted values. Values that are not above 0 have none and are left out.
    """
    of_kind: dict[str, list[MeasuredValue]] = {}
    for reading in sorted(readings, key=lambda reading: reading.started):
        for each in filter(None, (reading, reading.boosted)):
            if each.physics is Physics.COUNTED:
                each.spread = EXACT
            elif each.physics not in _NOT_ESTIMATED and each.value > 0:
                of_kind.setdefault(each.kind, []).append(each)
    yield from of_kind.values()


def member_of(place: Place, reading: MeasuredValue) -> tuple[str, ...]:
    """The key of readings that share one variance between cards; see `hpml_plugins.analysis.cards`.

    For GPU computations, the benchmark on a type of hardware; if the host takes part or nothing was
    timed, each metric of each point.
    """
    physics = reading.physics
    if physics in HOST_TAKES_PART or physics is Physics.DERIVED:
        return (*_class_of(reading), *place)
    return (*_class_of(reading), place.benchmark, reading.hardware)


def _pool_of(place: Place, reading: MeasuredValue) -> tuple[str, ...]:
    """The key of the pool that members borrow from: their class on their type of hardware; the last
    item is the type.

    If the host takes part, the type is omitted. Values that were not timed have only their metric
    in common.
    """
    if reading.physics is Physics.DERIVED:
        return (*_class_of(reading), place.benchmark, place.metric, "")
    hardware = "" if reading.physics in HOST_TAKES_PART else reading.hardware
    return (*_class_of(reading), hardware)


def _class_of(reading: MeasuredValue) -> tuple[str, str]:
    """The class of a reading: disturbed values say nothing about undisturbed ones."""
    return reading.physics, "busy" if reading.is_busy else ""


def _fill_in_scatter(readings: Sequence[MeasuredValue]) -> None:
    """Fill in the scatter of values of which some are not above 0 and so have no logarithm."""
    if all(reading.value > 0 for reading in readings):
        return
    by_code: dict[str, list[float]] = {}
    for reading in readings:
        by_code.setdefault(f"{reading.kind} {reading.code}", []).append(reading.value)
    repeated = [values for values in by_code.values() if len(values) > 1]
    if not repeated:
        return
    freedom = float(sum(len(values) - 1 for values in repeated))
    squares = sum(statistics.variance(values) * (len(values) - 1) for values in repeated)
    for reading in readings:
        reading.scatter = squares / freedom, freedom


class Variability:
    """The variation from run to run and from card to card of all metrics of some Records.

    records: those whose values are needed, and any others: more Records give better estimates.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        points: dict[tuple[str, Place], list[MeasuredValue]] = {}
        records = list(records)
        self._references = References.of(records)
        for record in records:
            if record.status == "ok":
                for name, value in MeasuredValue.all_of(record).items():
                    key = record.machine, Place(record.benchmark, record.point, name)
                    points.setdefault(key, []).append(value)
        fill_in_spreads(
            ((place, readings) for (_, place), readings in points.items()), self._references
        )
        self._known: dict[tuple[str, Place, str], MeasuredValue] = {}
        for key, readings in points.items():
            for reading in readings:
                for each in filter(None, (reading, reading.boosted)):
                    self._known[*key, each.kind] = each

    def reading(self, record: Record, name: str) -> MeasuredValue:
        """The value of a metric of a Record, with its spread."""
        found = MeasuredValue.of(record, name)
        place = Place(record.benchmark, record.point, name)
        list(with_references([(place, [found])], self._references))
        for each in filter(None, (found, found.boosted)):
            if known := self._known.get((record.machine, place, each.kind)):
                each.spread = known.spread
                each.scatter = known.scatter
                each.adjusted = known.adjusted
        return found

    def values(self, record: Record) -> Values:
        """The values of all metrics by which a Record is compared."""
        return {name: self.reading(record, name) for name in compared_metrics(record)}


def with_intervals(record: Record, readings: Values) -> Record:
    """The Record with the intervals of these readings, for commands and pages; not to be stored."""
    shown = {name: reading.estimate for name, reading in readings.items()}
    metrics = {
        name: (
            replace(metric, interval=(shown[name].low, shown[name].high))
            if name in shown
            else metric
        )
        for name, metric in record.metrics.items()
    }
    return replace(record, metrics=metrics)
