"""What the page of evidence tells of cards, hosts, GPU types and warnings: which reads unlike the
others of its type, what each type has measured, and what was warned of how often."""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from hpml_plugins.analysis.measured import MeasuredValue
from hpml_plugins.analysis.physics import HOST_TAKES_PART, ON_GPU, Physics
from hpml_plugins.model.differences import spell_card
from hpml_plugins.report.reading import History
from hpml_plugins.report.site.nodes import NodeCoverage
from hpml_plugins.report.site.workloads import Workload

#: Values that a card or host needs in a class.
ENOUGH = 3
#: Most cards and hosts that the page lists.
MOST_CARDS = 60
#: The least that counts as the usual distance of a class: a hundredth of a percent.
LEAST_DISTANCE = 1e-4
#: What a kind of warning is told by: its text without numbers, and how many kinds are listed.
_NUMBER = re.compile(r"[-+]?\d[\d.,]*(e[-+]?\d+)?")
MOST_KINDS = 20


class CardReading(NamedTuple):
    """How a card reads in a class of values, against the other cards of its type; where the host
    takes part, how a host reads against the others that had such cards.

    card: its first digits, or those of the start of the host (kind "host"); a host that the Records
    do not tell has those of its card.  component: the class.  times: the median of how many times
    better than their mean.  values: how many points that is the median of.  others: cards or hosts
    that it is compared with, at most.  colour: the type's class in the style sheet.  unlike: its
    distance from the others, over the median distance of all types in this class.
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
    """How much it matters which card of a type one gets, in a class of values.

    deviation: the standard deviation between cards, as a share.  slowest, fastest: against the mean
    of the others.
    """

    hardware: str
    component: str
    cards: int
    deviation: float
    slowest: float
    fastest: float


class TypeCoverage(NamedTuple):
    """What the machines of a GPU type have.  counts: status → points."""

    hardware: str
    machines: int
    counts: Counter[str]


def find_hosts(history: History) -> dict[str, str]:
    """Card → the start of the host that it was measured in; without those that were in several."""
    found: dict[str, set[str]] = {}
    for benchmark in history.benchmarks:
        for place in benchmark.index:
            for outcome in benchmark.index.stored(place):
                for reading in itertools.islice(outcome.readings.values(), 1):
                    if outcome.host:
                        found.setdefault(reading.card, set()).add(outcome.host)
    return {card: hosts.pop() for card, hosts in found.items() if len(hosts) == 1}


def read_cards(
    workloads: Iterable[Workload], hosts: Mapping[str, str]
) -> list[CardReading]:
    """Each card, and where the host takes part each host, in each class of which it has values
    beside others of its type, the most unusual for their class first: classes vary by a hundredth
    of a percent or by a third.  hosts: see `find_hosts`."""
    known = frozenset(hosts.values())
    found: dict[tuple[tuple[str, str], str, Physics], list[tuple[float, int]]] = {}
    for workload in workloads:
        types = {
            column.number: (column.label, column.colour) for column in workload.columns
        }
        for row in workload.rows:
            if not row.metric.direction:
                continue
            sign = 1 if row.metric.direction == "higher" else -1
            for number, cell in row.cells.items():
                if cell.number.physics not in (*ON_GPU, *HOST_TAKES_PART):
                    continue
                physics = cell.number.physics
                told = hosts if physics in HOST_TAKES_PART else None
                levels = _levels(cell.number, told)
                for name, level in levels.items() if len(levels) > 1 else ():
                    others = [levels[each] for each in levels if each != name]
                    apart = sign * (level - statistics.fmean(others))
                    found.setdefault((types[number], name, physics), []).append(
                        (apart, len(others))
                    )
    readings = [
        CardReading(
            hardware,
            spell_card(card),
            str(component),
            math.exp(statistics.median(apart for apart, _ in values)),
            len(values),
            max(others for _, others in values),
            colour,
            kind=_kind(component, card in known),
        )
        for ((hardware, colour), card, component), values in found.items()
        if len(values) >= ENOUGH
    ]
    return most_unusual_first(readings)


def _kind(component: Physics, told: bool) -> Literal["card", "host", "host of card"]:
    if component not in HOST_TAKES_PART:
        return "card"
    return "host" if told else "host of card"


def _levels(value: MeasuredValue, hosts: Mapping[str, str] | None) -> dict[str, float]:
    """The level of each card; with hosts, of each host the mean over its cards."""
    found: dict[str, list[float]] = {}
    for each in value.levels:
        name = each.card if hosts is None else hosts.get(each.card, each.card)
        found.setdefault(name, []).append(each.level)
    return {name: statistics.fmean(levels) for name, levels in found.items()}


def most_unusual_first(readings: Sequence[CardReading]) -> list[CardReading]:
    """The readings with `unlike`. Of two cards alone neither is the unusual one: they come last."""
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
    """The lottery of each type and class of which ENOUGH cards have values, the types in order.

    A card is compared with the mean of the n others, so that its distance from the mean of all is
    n / (n + 1) of that.
    """
    found: dict[tuple[str, str], list[CardReading]] = {}
    for each in readings:
        found.setdefault((each.hardware, each.component), []).append(each)
    lots = []
    for (hardware, component), cards in sorted(found.items()):
        if len(cards) >= ENOUGH:
            times = [each.times for each in cards]
            share = (len(cards) - 1) / len(cards)
            deviation = share * statistics.stdev(map(math.log, times))
            lots.append(
                Lottery(hardware, component, len(cards), deviation, min(times), max(times))
            )
    return lots


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
    frequent first.  kind: the first warning of those that differ in their numbers alone."""
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
