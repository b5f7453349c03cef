"""Cards, hosts, GPU types and warnings for the page of evidence: which ones are outliers in their
type, what each type has measured, and how often each warning occurred."""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from hpml_plugins.analysis.measured import MeasuredValue
from hpml_plugins.analysis.physics import HOST_TAKES_PART, ON_GPU, Physics
from hpml_plugins.analysis.verdicts import SIGNATURE_DECIMALS
from hpml_plugins.model.differences import format_card
from hpml_plugins.report.reading import History, Outcome
from hpml_plugins.report.site.nodes import NodeCoverage
from hpml_plugins.report.site.workloads import Workload

#: The fewest values of a card or host in a class.
ENOUGH = 3
#: The most cards and hosts that the page lists.
MOST_CARDS = 60
#: The smallest usual distance assumed for a class: a hundredth of a percent.
LEAST_DISTANCE = 1e-4
#: Numbers are removed from a warning to find its kind.
_NUMBER = re.compile(r"[-+]?\d[\d.,]*(e[-+]?\d+)?")
MOST_KINDS = 20
#: s.
DAY = 86400.0


class CardReading(NamedTuple):
    """How a card compares with the other cards of its type in a class of values; if the host takes
    part, how a host compares with the others that had such cards.

    card: its abbreviated UUID, or the abbreviated boot of the host (kind "host"); for a host that
    the Records do not identify, that of its card.  component: the class.  times: the median of how
    many times better it is than the others' mean.  values: the number of points in that median.
    others: the cards or hosts it is compared with, the median over these points.  colour: the
    type's class in the style sheet.  unlike: its distance from the others, over the median distance
    of all types in this class.
    """

    hardware: str
    card: str
    component: str
    times: float
    values: int
    others: int
    colour: str = ""
    unlike: float = 1.0
    kind: Literal["card", "host", "host of card"] = "card"


class Lottery(NamedTuple):
    """How much cards of a type differ in a class of values.

    deviation: the relative standard deviation between cards.  slowest, fastest: compared with the
    mean of the others.
    """

    hardware: str
    component: str
    cards: int
    deviation: float
    slowest: float
    fastest: float


class Drift(NamedTuple):
    """How a card changed in a class of values, with the same code.

    days: from its first to its last measurement.  times: the median of how many times better the
    last is.  values: the number of points in that median.
    """

    hardware: str
    card: str
    component: str
    days: float
    times: float
    values: int


class TypeCoverage(NamedTuple):
    """The results of the machines of a GPU type.  counts: status → points."""

    hardware: str
    machines: int
    counts: Counter[str]


def find_hosts(history: History) -> dict[str, str]:
    """Card → the boot of the host in which it was measured; without cards that were in several."""
    found: dict[str, set[str]] = {}
    for benchmark in history.benchmarks:
        for place in benchmark.index:
            for outcome in benchmark.index.stored(place):
                if outcome.host and (card := outcome.card):
                    found.setdefault(card, set()).add(outcome.host)
    return {card: hosts.pop() for card, hosts in found.items() if len(hosts) == 1}


def read_cards(
    workloads: Iterable[Workload], hosts: Mapping[str, str]
) -> list[CardReading]:
    """Each card (if the host takes part, each host) in each class for which it has values beside
    others of its type. The most unusual for their class come first, because the variation of
    classes ranges from a hundredth of a percent to a third.  hosts: see `find_hosts`."""
    known = frozenset(hosts.values())
    found: dict[_OfClass, list[tuple[float, int]]] = {}
    for workload in workloads:
        for of_class, distance, others in _distances(workload, hosts):
            found.setdefault(of_class, []).append((distance, others))
    readings = []
    for (hardware, colour, card, component), values in found.items():
        if len(values) >= ENOUGH:
            distances, counts = zip(*values, strict=True)
            times = math.exp(statistics.median(distances))
            reading = CardReading(
                hardware,
                format_card(card),
                str(component),
                times,
                len(values),
                statistics.median_low(counts),
                colour,
                kind=_kind(component, card in known),
            )
            readings.append(reading)
    return most_unusual_first(readings)


#: The label of a type and its colour; a card of it; a class of values.
_OfClass = tuple[str, str, str, Physics]


def _distances(
    workload: Workload, hosts: Mapping[str, str]
) -> Iterator[tuple[_OfClass, float, int]]:
    """For each point of a card beside others: the logarithm of its ratio to the mean of the others,
    above 0 if it is better, and their number. The metrics of one timing (time, rate, bandwidth) are
    one value."""
    columns = {column.number: column for column in workload.columns}
    seen: set[object] = set()
    for row in workload.rows:
        if not row.metric.direction:
            continue
        sign = 1 if row.metric.direction == "higher" else -1
        for number, cell in row.cells.items():
            physics = cell.number.physics
            timing = (
                row.point,
                row.regime,
                number,
                _timing(cell.number, row.metric.metric),
            )
            if physics not in (*ON_GPU, *HOST_TAKES_PART) or timing in seen:
                continue
            seen.add(timing)
            column = columns[number]
            levels = _levels(cell.number, hosts if physics in HOST_TAKES_PART else None)
            for card in levels if len(levels) > 1 else ():
                others = [levels[each] for each in levels if each != card]
                distance = sign * (levels[card] - statistics.fmean(others))
                of_class = column.label, column.colour, card, physics
                yield of_class, distance, len(others)


def _timing(value: MeasuredValue, metric: str) -> object:
    """A key shared by all metrics of one timing of a Record."""
    return metric if value.timing is None else round(value.timing, SIGNATURE_DECIMALS)


def _kind(component: Physics, told: bool) -> Literal["card", "host", "host of card"]:
    if component not in HOST_TAKES_PART:
        return "card"
    return "host" if told else "host of card"


def _levels(value: MeasuredValue, hosts: Mapping[str, str] | None) -> dict[str, float]:
    """The level of each card; with hosts, the mean over the cards of each host."""
    found: dict[str, list[float]] = {}
    for each in value.levels:
        name = each.card if hosts is None else hosts.get(each.card, each.card)
        found.setdefault(name, []).append(each.level)
    return {name: statistics.fmean(levels) for name, levels in found.items()}


def most_unusual_first(readings: Sequence[CardReading]) -> list[CardReading]:
    """The readings with `unlike`. Pairs of cards come last, because neither is the outlier."""
    distances: dict[str, list[float]] = {}
    for each in readings:
        distances.setdefault(each.component, []).append(abs(math.log(each.times)))
    usual = {component: statistics.median(found) for component, found in distances.items()}
    told = []
    for each in readings:
        distance = abs(math.log(each.times))
        of_class = usual[each.component]
        told.append(each._replace(unlike=distance / max(of_class, LEAST_DISTANCE)))
    return sorted(told, key=lambda each: (each.others < ENOUGH - 1, -each.unlike))


def draw_lots(readings: Iterable[CardReading]) -> list[Lottery]:
    """The differences between cards of each type and class with values of at least ENOUGH cards,
    sorted by type.

    The variance of a card's distance from the mean of n others is that between cards times 1 + 1/n.
    """
    found: dict[tuple[str, str], list[CardReading]] = {}
    for each in readings:
        found.setdefault((each.hardware, each.component), []).append(each)
    lots = []
    for (hardware, component), cards in sorted(found.items()):
        if len(cards) >= ENOUGH:
            times = [each.times for each in cards]
            variances = [
                math.log(each.times) ** 2 * each.others / (each.others + 1)
                for each in cards
            ]
            deviation = math.sqrt(statistics.fmean(variances))
            lots.append(
                Lottery(hardware, component, len(cards), deviation, min(times), max(times))
            )
    return lots


def find_drifts(history: History) -> list[Drift]:
    """The change of each card with values at least a day apart, the largest first."""
    series: dict[tuple[str, str, str, str], list[MeasuredValue]] = {}
    for outcome, label in _of_returned_cards(history):
        of_timings = {
            _timing(reading, metric): (metric, reading)
            for metric, reading in reversed(outcome.readings.items())
        }
        for metric, reading in of_timings.values():
            if reading.physics in ON_GPU and reading.direction and reading.value > 0:
                key = reading.card, label, metric, reading.code
                series.setdefault(key, []).append(reading)
    found: dict[tuple[str, str, Physics], list[tuple[float, float]]] = {}
    for (card, *_), readings in series.items():
        first = min(readings, key=lambda each: each.started)
        last = max(readings, key=lambda each: each.started)
        days = (last.started - first.started) / DAY
        better = math.log(last.value / first.value)
        if days >= 1 and last.physics is first.physics:
            change = better if last.direction == "higher" else -better
            of_class = found.setdefault((last.hardware, card, last.physics), [])
            of_class.append((days, change))
    drifts = [
        Drift(
            hardware,
            format_card(card),
            str(physics),
            max(days for days, _ in changes),
            math.exp(statistics.median(change for _, change in changes)),
            len(changes),
        )
        for (hardware, card, physics), changes in found.items()
        if len(changes) >= ENOUGH
    ]
    return sorted(drifts, key=lambda each: -abs(math.log(each.times)))


def _of_returned_cards(history: History) -> Iterator[tuple[Outcome, str]]:
    """The outcomes of cards that were measured at least a day apart, each with its point."""
    outcomes: dict[str, list[tuple[Outcome, str]]] = {}
    for benchmark in history.benchmarks:
        for place in benchmark.index:
            point = f"{benchmark.name} {place[0]}"
            for outcome in benchmark.index.stored(place):
                if card := outcome.card:
                    outcomes.setdefault(card, []).append((outcome, point))
    for of_card in outcomes.values():
        started = [outcome.started for outcome, _ in of_card]
        if max(started) - min(started) >= DAY:
            yield from of_card


def cover_types(nodes: Sequence[NodeCoverage]) -> list[TypeCoverage]:
    """Each type with the points of all its machines."""
    found: dict[str, TypeCoverage] = {}
    for node in nodes:
        before = found.get(node.hardware, TypeCoverage(node.hardware, 0, Counter()))
        counts = before.counts + node.total
        found[node.hardware] = TypeCoverage(node.hardware, before.machines + 1, counts)
    return [found[name] for name in sorted(found)]


def fold_warnings(history: History) -> list[tuple[str, int, int]]:
    """(kind, Records, machines) of the warnings of the newest Record of each point, the most
    frequent first.  kind: the first of the warnings that differ only in their numbers."""
    counts: Counter[str] = Counter()
    machines: dict[str, set[str]] = {}
    texts: dict[str, str] = {}
    for benchmark in history.benchmarks:
        for label, machine in benchmark.index:
            newest = benchmark.index.newest((label, machine))
            for warning in newest.warnings if newest else ():
                kind = _NUMBER.sub("…", warning.partition(": ")[2] or warning)
                counts[kind] += 1
                machines.setdefault(kind, set()).add(machine)
                texts.setdefault(kind, warning)
    return [
        (texts[kind], count, len(machines[kind]))
        for kind, count in counts.most_common(MOST_KINDS)
    ]
