"""Rounds: each point is measured several times, each time in a new process, all points in random
order.

Memory addresses, the algorithm that a library selects and the cores in use are fixed for the
lifetime of a process, so samples from one process vary less than results from different processes.
Interleaving the rounds of all points also captures slow changes, such as temperature and other
users of the host. pyperf and asv use rounds for the same reasons. Sources: Stinner, pyperf
documentation, Analyze benchmark results; Kalibera and Jones, Rigorous benchmarking in reasonable
time, ISMM 2013.

Each round is stored as a separate Record as soon as it is measured, so a killed run loses only the
current round. Records of the same run, commit, environment and point are read as one Record. A
Record that is known to be wrong is retracted by a further line of the same identity, which removes
its numbers and gives the reason.
"""

from __future__ import annotations

import itertools
import random
import re
import statistics
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from hpml_plugins.errors import Failure
from hpml_plugins.model.record import MetricSamples, Record
from hpml_plugins.model.serialization import shorten

_DIGITS = re.compile(r"[\d.]+")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
Point = TypeVar("Point", bound=Hashable)
T = TypeVar("T")
RunKey = tuple[str | float, ...]
#: The rounds of a point and their retraction, with their numbers, by `started` and whether it is
#: the retraction.
Group = dict[tuple[float, bool], tuple[int, Record]]
#: Why a point has no numbers if two different Records of one of its rounds are stored.
DISPUTED = (
    "two different Records of one round are stored, and neither counts; "
    "measure the point again"
)


def schedule(
    points: Sequence[Point], rounds: Callable[[Point], int], seed: str
) -> Iterator[Point]:
    """Yield every point once per round: all points once, in random order, then all that have a
    second round, …

    The order is determined by the seed.
    """
    order = random.Random(seed)
    most = max(map(rounds, points), default=0)
    for number in range(most):
        due = [point for point in points if rounds(point) > number]
        order.shuffle(due)
        yield from due


def join_rounds(records: Iterable[Record]) -> list[Record]:
    """Join the rounds of each point into one Record, in the order in which each was begun, and
    apply retractions."""
    joined = []
    for numbered in group_rounds(enumerate(records)):
        rounds = [record for _, record in numbered]
        joined.append(combine(rounds))
    return joined


def group_rounds(records: Iterable[tuple[int, Record]]) -> list[list[tuple[int, Record]]]:
    """Group numbered Records by point: its rounds and their retraction. The number can be the place
    in a file.

    Duplicates count once: two rounds never start at the same time. If two Records of one round
    differ, one of them was edited and it is unknown which: the point is retracted. A point that was
    measured again in the same run gets a further group, since more rounds than planned cannot
    belong to one measurement.
    """
    ordered: list[Group] = []
    groups: dict[RunKey, list[Group]] = {}
    for number, record in records:
        same_run = groups.setdefault(run_key(record), [])
        rounds = _group_of(record, same_run)
        if rounds is None:
            rounds = {}
            same_run.append(rounds)
            ordered.append(rounds)
        round_key = (record.started, record.status == "retracted")
        _, known = rounds.setdefault(round_key, (number, record))
        if are_disputed(known, record):
            rounds.setdefault((record.started, True), (number, retract(record, DISPUTED)))
    return [list(rounds.values()) for rounds in ordered]


def _group_of(record: Record, groups: Sequence[Group]) -> Group | None:
    """The group of its run and point to which a Record belongs; None if it begins a new one."""
    for rounds in groups:
        if (record.started, False) in rounds or (record.started, True) in rounds:
            return rounds
    if not groups or (record.status != "retracted" and _is_full(groups[-1])):
        return None
    return groups[-1]


def _is_full(rounds: Group) -> bool:
    """Whether all planned rounds are there. Records from before rounds were planned say 1, however
    many rounds they had."""
    measured = [record for _, record in rounds.values() if record.status != "retracted"]
    planned = max((record.planned_rounds for record in measured), default=0)
    return 1 < planned <= sum(record.measured_rounds for record in measured)


def run_key(record: Record) -> RunKey:
    """What all rounds of a point in one run, and their retraction, have in common."""
    # A Record without a run, such as one measured before runs were introduced, has no other
    # round.
    run = record.run or record.started
    return (run, record.machine, record.commit, record.environment, record.point)


def are_disputed(one: Record, other: Record) -> bool:
    """Whether two Records of a run and point describe the same round differently. A time of 0 is
    unknown. Digits that are not stored make no difference: a site has the first Records without
    them."""
    return (
        one.started == other.started > 0
        and "retracted" not in (one.status, other.status)
        and one != other
        and shorten(one) != shorten(other)
    )


def retract(record: Record, reason: str) -> Record:
    """The line that retracts a Record with all its rounds: the same identity, including
    `started`."""
    return Record(
        benchmark=record.benchmark,
        plugin=record.plugin,
        version=record.version,
        params=record.params,
        status="retracted",
        reason=reason,
        started=record.started,
        machine=record.machine,
        commit=record.commit,
        environment=record.environment,
        run=record.run,
    )


def combine(rounds: Sequence[Record]) -> Record:
    """Combine the rounds of a point into one Record. If a round failed or was skipped, so is the
    point.

    If one of them is a retraction, the measured values are left out and the facts of the node kept.
    rounds: in the order measured, at least one, each of one round or of several. Series and the
    info of the samples are taken from the first round, but numbers that differ between rounds are
    replaced by their medians, and texts that differ are joined.
    """
    retractions = [record for record in rounds if record.status == "retracted"]
    if retractions:
        first = next(
            (record for record in rounds if record.status != "retracted"), retractions[0]
        )
        cleared = replace(
            first,
            metrics={},
            series={},
            checks=[],
            warnings=[],
            noise=[],
            throttled="",
            failure=Failure.NONE,
            duration=_total(rounds),
        )
        return replace(cleared, status="retracted", reason=retractions[0].reason)
    first = rounds[0]
    for number, record in enumerate(rounds, 1):
        if record.status != "ok":
            where = f"round {number} of {len(rounds)}: " if len(rounds) > 1 else ""
            return replace(
                record,
                reason=f"{where}{record.reason}",
                started=first.started,
                duration=_total(rounds),
            )
    if len(rounds) == 1:
        return first
    chosen = _choose_rounds(rounds)
    metrics = {}
    for name, alike in chosen.items():
        all_samples = [record.metrics[name] for record in rounds]
        metrics[name] = _join(alike, all_samples)
    throttled = [record.throttled for record in rounds if _stands(record, chosen)]
    warnings = _join_warnings([record.warnings for record in rounds])
    return replace(
        first,
        metrics=metrics,
        warnings=[*warnings, *_warn_of_unlike(metrics)],
        noise=_join_warnings([record.noise for record in rounds]),
        checks=_distinct(_chained(record.checks for record in rounds)),
        duration=_total(rounds),
        energy=sum(record.energy for record in rounds),
        throttled="; ".join(filter(None, _distinct(throttled))),
        conditions=_largest_conditions(rounds),
    )


def _chained(lists: Iterable[Sequence[T]]) -> list[T]:
    return list(itertools.chain.from_iterable(lists))


def _distinct(values: Iterable[T]) -> list[T]:
    return list(dict.fromkeys(values))


def _total(rounds: Sequence[Record]) -> float:
    return sum(record.duration for record in rounds)


def _largest_conditions(rounds: Sequence[Record]) -> dict[str, float]:
    found: dict[str, float] = {}
    for record in rounds:
        for name, value in record.conditions.items():
            found[name] = max(value, found.get(name, value))
    return found


def _join_warnings(rounds: Sequence[Sequence[str]]) -> list[str]:
    """Each warning once, from the round with the largest numbers, since the interval of the Record
    covers that round."""
    found: dict[str, list[str]] = {}
    for warnings in rounds:
        of_round = {_DIGITS.sub("#", text): text for text in warnings}
        for wording, text in of_round.items():
            found.setdefault(wording, []).append(text)
    return [max(texts, key=_numbers_in) for texts in found.values()]


def _numbers_in(text: str) -> list[float]:
    return [float(number) for number in _NUMBER.findall(text)]


def _warn_of_unlike(metrics: Mapping[str, MetricSamples]) -> Iterator[str]:
    """Warn, for each metric, of the rounds that are left out because they were timed in another
    way."""
    for name, metric in metrics.items():
        if metric.unlike_rounds:
            rounds = len(metric.rounds) + metric.unlike_rounds
            yield (
                f"{name}: {metric.unlike_rounds} of {rounds} rounds left out: "
                f"timed in another way or regime than the others"
            )


def _choose_rounds(rounds: Sequence[Record]) -> dict[str, list[MetricSamples]]:
    """For each metric that every round has, the samples to use."""
    chosen = {}
    for name in rounds[0].metrics:
        if all(name in record.metrics for record in rounds):
            samples = [(record.metrics[name], bool(record.throttled)) for record in rounds]
            chosen[name] = _choose(samples)
    return chosen


def _choose(rounds: Sequence[tuple[MetricSamples, bool]]) -> list[MetricSamples]:
    """The samples that were timed in the way of most rounds, and of these the ones in the regime of
    most.

    Samples taken while the card throttled are neither boost nor settled: they count only if no
    round that was timed like them has regimes. In a tie, hidden launches are preferred to visible
    ones, and settled clocks to boost, which is measured beside them.

    rounds: each with whether the card throttled.
    """
    alike = _most(
        rounds,
        lambda metric: (tuple(metric.timers), metric.launch_visible, metric.crosses_host),
        lambda metric: not metric.launch_visible,
    )
    if any(metric.regime for metric, _ in alike):
        alike = [each for each in alike if each[0].regime or not each[1]]
    of_regime = _most(
        alike, lambda metric: metric.regime, lambda metric: bool(metric.regime)
    )
    return [metric for metric, _ in of_regime]


def _most(
    rounds: Sequence[tuple[MetricSamples, bool]],
    kind: Callable[[MetricSamples], Hashable],
    preferred: Callable[[MetricSamples], bool],
) -> list[tuple[MetricSamples, bool]]:
    """Those of the most frequent kind; in a tie, of a preferred one."""
    kinds: dict[Hashable, list[tuple[MetricSamples, bool]]] = {}
    for each in rounds:
        kinds.setdefault(kind(each[0]), []).append(each)
    return max(kinds.values(), key=lambda some: (len(some), preferred(some[0][0])))


def _stands(record: Record, chosen: Mapping[str, Sequence[MetricSamples]]) -> bool:
    """Whether samples that this round timed are among the chosen ones, or no round timed any."""
    timed = [metric for alike in chosen.values() for metric in alike if metric.timers]
    mine = {id(metric) for metric in record.metrics.values()}
    return not timed or any(id(metric) in mine for metric in timed)


def _join(alike: Sequence[MetricSamples], rounds: Sequence[MetricSamples]) -> MetricSamples:
    """Join the samples that were timed alike.  rounds: the number of all rounds."""
    joined = _join_alike(alike)
    given = sum(len(metric.rounds or [metric]) + metric.unlike_rounds for metric in rounds)
    return replace(joined, unlike_rounds=given - len(joined.rounds))


def _join_alike(metrics: Sequence[MetricSamples]) -> MetricSamples:
    boosted = [metric for metric in metrics if metric.boost]
    boost_rounds = [metric.boost_rounds or [len(metric.boost)] for metric in boosted]
    rounds = [metric.rounds or [len(metric.samples)] for metric in metrics]
    return replace(
        metrics[0],
        samples=_chained(metric.samples for metric in metrics),
        rounds=_chained(rounds),
        boost=_chained(metric.boost for metric in boosted),
        boost_rounds=_chained(boost_rounds),
        info=_join_infos(metrics),
        settled=any(metric.settled for metric in metrics),
    )


def _join_infos(metrics: Sequence[MetricSamples]) -> dict[str, str | float]:
    """Combine the info of the rounds.

    All core rates are kept beside their median: a figure shows how the time depends on them.
    """
    told: dict[str, list[str | float]] = {}
    for metric in metrics:
        for name, value in metric.info.items():
            told.setdefault(name, []).append(value)
    joined = {name: _join_info(values) for name, values in told.items()}
    rates = [rate for rate in told.get("core_rate", ()) if not isinstance(rate, str)]
    if len(rates) == len(metrics):
        joined["core_rates"] = "; ".join(f"{rate:.7g}" for rate in rates)
    return joined


def _join_info(values: Sequence[str | float]) -> str | float:
    different = _distinct(values)
    if len(different) == 1:
        return different[0]
    numbers = [value for value in different if not isinstance(value, str)]
    if len(numbers) == len(different):
        return statistics.median(numbers)
    return "; ".join(map(str, different))
