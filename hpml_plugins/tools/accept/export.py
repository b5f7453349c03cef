"""Bands from Records: `hpml accept --export-bands FILE`, and the back-test of them."""

from __future__ import annotations

import datetime
import hashlib
import math
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from hpml_plugins.analysis import (
    MeasuredValue,
    Place,
    card_of,
    hardware_of,
    observe,
    student_quantile,
)
from hpml_plugins.model import Record
from hpml_plugins.tools.accept.bands import (
    Band,
    Bands,
    Component,
    Expected,
    Population,
    Provenance,
    Regime,
    Words,
    card_digest,
    format_stack,
    stack_of_record,
)
from hpml_plugins.tools.accept.points import (
    BITS,
    OF_NODE,
    accept_points,
    component_of,
    digests_of,
    majority,
)
from hpml_plugins.version import __version__

#: The share of sound cards that fail, at most, over all values of a card together.
ERROR_RATE = 0.01
#: A card that is worse by less than this does not fail, however similar the others are. Copies from
#: the host differ by 12 % from host to host, and a link that lost lanes or a generation by half.
MARGIN: dict[Component, float] = {"link": 0.25}
MARGIN_OF_OTHERS = 0.01
#: Fewest cards of a type for a band.
LEAST_CARDS = 4
#: A card is left out of all bands of a component if its values are this many robust deviations from
#: the median of the other cards,
FAR = 6.0
#: and at least this share of it.
FAR_SHARE = 0.05
#: Cards that this needs.
ENOUGH_CARDS = 5
#: From median absolute deviation to standard deviation, of normal values.
_MAD = 1.4826
#: Digits of the logarithms in the file.
_DIGITS = 7


class ValueByCard(NamedTuple):
    """The readings of one metric in one regime on cards of one type.  by_card: the readings of each
    card."""

    record: Record
    metric: str
    regime: Regime
    by_card: dict[str, list[MeasuredValue]]

    @property
    def component(self) -> Component:
        """The component that it measures."""
        first = next(iter(self.by_card.values()))[0]
        found = component_of(self.record.benchmark, first.physics)
        assert found, "others are not gathered"
        return found

    def levels(self) -> dict[str, float]:
        """The mean of each card's logarithms."""
        return {
            card: statistics.fmean(math.log(each.value) for each in readings)
            for card, readings in self.by_card.items()
        }


class _TypeValues(NamedTuple):
    """The values of one type and stack."""

    hardware: str
    stack: Words
    values: list[ValueByCard]
    outliers: set[str]

    @property
    def cards(self) -> set[str]:
        """All cards that are not excluded."""
        return {card for value in self.values for card in value.by_card} - self.outliers


def usable(records: Iterable[Record]) -> Iterator[Record]:
    """The Records of points of `hpml accept`, measured with the node's own packages."""
    points = accept_points()
    for record in records:
        is_one = record.status == "ok" and not record.of_stack and record.point in points
        # a measurement of one of several cards says nothing about all of them
        if is_one and (len(record.gpus) > 1) == (record.benchmark in OF_NODE):
            yield record


def gather(records: Iterable[Record]) -> list[_TypeValues]:
    """The values of each type of hardware and stack, by the points of `hpml accept`."""
    found: dict[tuple[str, str], dict[tuple[str, str, str], ValueByCard]] = defaultdict(
        dict
    )
    stacks: dict[str, Words] = {}
    for record in records:
        stack = stack_of_record(record)
        stacks[format_stack(stack)] = stack
        values = found[hardware_of(record), format_stack(stack)]
        for name, reading in _readings(record):
            # one stack, one population: the plugin's code may differ, its version does not
            reading = msgspec.structs.replace(
                reading, code=format_stack(stack), boosted=None
            )
            key = record.point, name, _regime(reading)
            value = values.setdefault(key, ValueByCard(record, name, key[2], {}))
            value.by_card.setdefault(card_of(record), []).append(reading)
    return [
        _TypeValues(
            hardware,
            stacks[stack_name],
            list(values.values()),
            _outliers(values.values()),
        )
        for (hardware, stack_name), values in sorted(found.items())
    ]


def _readings(record: Record) -> Iterator[tuple[str, MeasuredValue]]:
    """The times of a Record that a component explains, including those at boost."""
    for name, metric in record.metrics.items():
        if metric.unit != "s" or metric.direction != "lower":
            continue  # rates follow from times
        reading = MeasuredValue.of(record, name)
        for each in filter(None, (reading, reading.boosted)):
            component = component_of(record.benchmark, each.physics)
            if component and not each.is_busy and each.value > 0:
                yield name, each


def _regime(reading: MeasuredValue) -> Regime:
    return "boost" if reading.regime == "boost" else ""


def _outliers(values: Collection[ValueByCard]) -> set[str]:
    """The cards with outlying values in some component."""
    apart: dict[tuple[str, str], list[float]] = defaultdict(list)
    for value in values:
        levels = value.levels()
        for card in levels if len(levels) >= ENOUGH_CARDS else ():
            others = [level for other, level in levels.items() if other != card]
            centre = statistics.median(others)
            spread = _MAD * statistics.median(abs(each - centre) for each in others)
            distance = abs(levels[card] - centre)
            apart[value.component, card].append(distance / max(FAR * spread, FAR_SHARE))
    return {card for (_, card), found in apart.items() if statistics.median(found) > 1}


class _Estimator:
    """The levels of all values of a type, by the variance components of all that were measured."""

    def __init__(self, judged: Sequence[_TypeValues]) -> None:
        self._lines: dict[int, int] = {}
        readings = []
        for each in judged:
            for value in each.values:
                kept = [
                    reading
                    for card, of_card in value.by_card.items()
                    if card not in each.outliers
                    for reading in of_card
                ]
                if kept:
                    place = Place(value.record.benchmark, value.record.point, value.metric)
                    readings.append((place, kept))
        self._observed = observe(readings)
        if self._observed:
            for number, line in enumerate(self._observed.lines):
                self._lines |= {id(reading): number for reading in line}

    def level(
        self, value: ValueByCard, outliers: set[str], count: int, card: str = ""
    ) -> Expected | None:
        """The expected level of another card, from all cards except this one; None if there are too
        few.

        count: of values by which a card is judged.
        """
        kept = {
            name: level
            for name, level in value.levels().items()
            if name not in outliers and name != card
        }
        least = LEAST_CARDS - 1 if card else LEAST_CARDS
        first = next((value.by_card[name][-1] for name in kept), None)
        if len(kept) < least or first is None or id(first) not in self._lines:
            return None
        assert self._observed
        spread = self._observed.spreads({card} - {""})[self._lines[id(first)]]
        variance = spread.any_card + self._of_one_round(value)
        deviation = math.sqrt(variance * (1 + 1 / len(kept)))
        strict = student_quantile(1 - ERROR_RATE / max(1, count), spread.any_freedom)
        usual = student_quantile(0.975, spread.any_freedom) / 1.96
        margin = MARGIN.get(value.component, MARGIN_OF_OTHERS)
        limit = max(strict * deviation, math.log1p(margin))
        centre = statistics.fmean(kept.values())
        return Expected(
            *(round(each, _DIGITS) for each in (centre, usual * deviation, limit))
        )

    def _of_one_round(self, value: ValueByCard) -> float:
        """The excess variance of one round over the median of several."""
        variances = [
            (each.rounds[0], each.rounds[1] + 1)
            for readings in value.by_card.values()
            for each in readings
            if each.rounds
        ]
        extra = [
            variance * ((count + 0.5) * 2 / math.pi - 1) for variance, count in variances
        ]
        return statistics.median(extra) if extra else 0.0


def make_bands(records: Iterable[Record]) -> Bands:
    """The bands of all types with enough measured cards."""
    used = list(usable(records))
    judged = gather(used)
    estimator = _Estimator(judged)
    populations = []
    for each in judged:
        sufficient = [
            value
            for value in each.values
            if len(set(value.by_card) - each.outliers) >= LEAST_CARDS
        ]
        took = _durations(used, each.hardware)
        bands = [
            _band(value, each, estimator, len(sufficient), took[value.record.point])
            for value in sufficient
        ]
        digests = _digests(used, each)
        if bands or digests:
            populations.append(
                Population(
                    hardware=each.hardware,
                    stack=each.stack,
                    cards=len(each.cards),
                    outliers=len(each.outliers),
                    bands=tuple(band for band in bands if band),
                    digests=digests,
                )
            )
    return Bands(
        version=__version__, made_from=_provenance(used), populations=tuple(populations)
    )


def _band(
    value: ValueByCard,
    judged: _TypeValues,
    estimator: _Estimator,
    count: int,
    seconds: float,
) -> Band | None:
    every = estimator.level(value, judged.outliers, count)
    if every is None:
        return None
    without = {
        card_digest(card): level
        for card in sorted(value.by_card)
        if (level := estimator.level(value, judged.outliers, count, card))
    }
    reading = next(iter(value.by_card.values()))[0]
    record = value.record
    return Band(
        benchmark=record.benchmark,
        version=record.version,
        params=record.params,
        metric=value.metric,
        regime=value.regime,
        unit=record.metrics[value.metric].unit,
        direction="lower",
        component=value.component,
        physics=str(reading.physics),
        seconds=seconds,
        cards=len(set(value.by_card) - judged.outliers),
        every=every,
        without=without,
    )


def _durations(records: Iterable[Record], hardware: str) -> dict[str, float]:
    """The median time of a round of each point, s."""
    found: dict[str, list[float]] = defaultdict(list)
    for record in records:
        if hardware_of(record) == hardware:
            found[record.point].append(record.duration / max(1, record.measured_rounds))
    return {point: round(statistics.median(each), 2) for point, each in found.items()}


def _digests(records: Iterable[Record], judged: _TypeValues) -> Words:
    """The result of each step of `bits` on most cards, if at least two and more than half agree."""
    by_step: dict[str, dict[str, str]] = defaultdict(dict)
    for record in records:
        alike = (
            hardware_of(record) == judged.hardware
            and stack_of_record(record) == judged.stack
        )
        if record.benchmark == BITS and alike:
            for step, digest in digests_of(record).items():
                by_step[step][card_of(record)] = digest
    most = {step: majority(list(of_cards.values())) for step, of_cards in by_step.items()}
    return {step: digest for step, digest in most.items() if digest}


def _provenance(used: Sequence[Record]) -> Provenance:
    identities = sorted(
        f"{each.machine} {each.run} {each.point} {each.started!r} {each.measured_rounds}"
        for each in used
    )
    newest = max((each.started for each in used), default=0.0)
    day = datetime.datetime.fromtimestamp(newest, datetime.UTC).date().isoformat()
    digest = hashlib.sha256("\n".join(identities).encode()).hexdigest()
    return Provenance(len(used), day, digest, ERROR_RATE)
