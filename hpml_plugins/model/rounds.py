"""Rounds: each point is measured several times, each time in a process of its own, all points in
random order.

Memory addresses, the algorithm that a library selects and the cores in use are fixed for the
lifetime of a process, so samples from one process vary less than results from different processes.
Interleaving the rounds of all points also captures slow changes, such as temperature and other
users of the host. pyperf and asv use rounds for the same reasons. Sources: Stinner, pyperf
documentation, Analyze benchmark results; Kalibera and Jones, Rigorous benchmarking in reasonable
time, ISMM 2013.

Each round is stored as a separate Record as soon as it is measured, so a killed run loses only the
current round. Records of the same run, commit, environment and point are read as one Record. A
Record that is known to be wrong is retracted by a further line of the same identity, which takes
its numbers away and gives the reason.
"""

from __future__ import annotations

import random
import re
import statistics
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

from msgspec.structs import replace

from hpml_plugins.model.failure import Failure
from hpml_plugins.model.record import MetricSamples, Record

_DIGITS, _NUMBER = re.compile(r"[\d.]+"), re.compile(r"\d+(?:\.\d+)?")
Point = TypeVar("Point", bound=Hashable)
RunKey = tuple[str | float, ...]
#: Why a point has no numbers of which a round was stored twice, differently.
DISPUTED = (
    "two different Records of one round are stored, and neither counts; measure the point again"
)


def schedule(points: Sequence[Point], rounds: Callable[[Point], int], seed: str) -> Iterator[Point]:
    """Every point as often as it has rounds: all points once, in random order, then all that have a
    second round, …

    seed: the same one gives the same order.
    """
    order = random.Random(seed)
    most = max(map(rounds, points), default=0)
    for number in range(most):
        due = [point for point in points if rounds(point) > number]
        order.shuffle(due)
        yield from due


def join_rounds(records: Iterable[Record]) -> list[Record]:
    """The Records with the rounds of each point joined, in the order in which each was begun;
    retractions applied."""
    return [
        combine([record for _, record in rounds]) for rounds in group_rounds(enumerate(records))
    ]


def group_rounds(records: Iterable[tuple[int, Record]]) -> list[list[tuple[int, Record]]]:
    """Each Record with a number, such as its place in a file, grouped by point: its rounds, and
    their retraction.

    A Record that comes twice is one: two rounds never start at the same time. Where two differ, one
    of them was edited and nothing says which: the point is retracted.
    """
    groups: dict[RunKey, dict[tuple[float, bool], tuple[int, Record]]] = {}
    for number, record in records:
        rounds = groups.setdefault(run_key(record), {})
        round_key = (record.started, record.status == "retracted")
        _, known = rounds.setdefault(round_key, (number, record))
        if are_disputed(known, record):
            rounds.setdefault((record.started, True), (number, retract(record, DISPUTED)))
    return [list(rounds.values()) for rounds in groups.values()]


def run_key(record: Record) -> RunKey:
    """What all rounds of a point in one run, and their retraction, have in common."""
    # A Record without a run, such as one measured before there were runs, has no other round.
    run = record.run or record.started
    return (run, record.machine, record.commit, record.environment, record.point)


def are_disputed(one: Record, other: Record) -> bool:
    """Whether two Records of a run and point tell of the same round, and differently. 0: when is
    not told."""
    return (
        one.started == other.started > 0
        and "retracted" not in (one.status, other.status)
        and one != other
    )


def retract(record: Record, reason: str) -> Record:
    """The line that retracts a Record with all its rounds: of the same identity, `started`
    included."""
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
    """One Record of the rounds of a point. A round that failed or was skipped makes the point what
    it is.

    With a retraction among them, what was measured is left out, and facts of the node are kept.
    rounds: in the order measured, at least one, each of one round or of several. Series and what
    the samples say of themselves are those of the first, but numbers that differ from round to
    round are their medians, and texts that differ are joined.
    """
    retractions = [record for record in rounds if record.status == "retracted"]
    if retractions:
        first = next((record for record in rounds if record.status != "retracted"), retractions[0])
        cleared = replace(
            first,
            metrics={},
            series={},
            checks=[],
            warnings=[],
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
    return replace(
        first,
        metrics={
            name: _join([record.metrics[name] for record in rounds])
            for name in first.metrics
            if all(name in record.metrics for record in rounds)
        },
        warnings=_join_warnings(rounds),
        checks=list(dict.fromkeys(text for record in rounds for text in record.checks)),
        duration=_total(rounds),
        energy=sum(record.energy for record in rounds),
        throttled="; ".join(
            dict.fromkeys(record.throttled for record in rounds if record.throttled)
        ),
        conditions={
            name: max(record.conditions[name] for record in rounds if name in record.conditions)
            for name in dict.fromkeys(name for record in rounds for name in record.conditions)
        },
    )


def _join_warnings(rounds: Sequence[Record]) -> list[str]:
    """Each warning once, as the round with the largest numbers has it: the interval of the Record
    covers that round."""
    found: dict[str, list[str]] = {}
    for record in rounds:
        for key, text in {_DIGITS.sub("#", text): text for text in record.warnings}.items():
            found.setdefault(key, []).append(text)
    return [
        max(texts, key=lambda text: [float(number) for number in _NUMBER.findall(text)])
        for texts in found.values()
    ]


def _total(rounds: Sequence[Record]) -> float:
    return sum(record.duration for record in rounds)


def _join(metrics: Sequence[MetricSamples]) -> MetricSamples:
    boosted = [metric for metric in metrics if metric.boost]
    sustained = sum(bool(metric.regime) for metric in metrics)
    return replace(
        metrics[0],
        samples=[value for metric in metrics for value in metric.samples],
        rounds=[count for metric in metrics for count in metric.rounds or [len(metric.samples)]],
        boost=[value for metric in boosted for value in metric.boost],
        boost_rounds=[
            count for metric in boosted for count in metric.boost_rounds or [len(metric.boost)]
        ],
        info={
            name: _join_info([metric.info[name] for metric in metrics if name in metric.info])
            for name in dict.fromkeys(name for metric in metrics for name in metric.info)
        }
        | _core_rates(metrics)
        | ({"sustained_rounds": sustained} if 0 < sustained < len(metrics) else {}),
        timers=list(dict.fromkeys(timer for metric in metrics for timer in metric.timers)),
        launch_visible=any(metric.launch_visible for metric in metrics),
        crosses_host=any(metric.crosses_host for metric in metrics),
        settled=any(metric.settled for metric in metrics),
    )


def _core_rates(metrics: Sequence[MetricSamples]) -> dict[str, str | float]:
    """The core's rate of each round, 1/s, beside their median: a figure tells by them what the time
    follows."""
    stored = [metric.info.get("core_rate") for metric in metrics]
    rates = [rate for rate in stored if isinstance(rate, float | int)]
    return (
        {"core_rates": "; ".join(f"{rate:.7g}" for rate in rates)}
        if len(rates) == len(metrics)
        else {}
    )


def _join_info(values: Sequence[str | float]) -> str | float:
    different = list(dict.fromkeys(values))
    numbers = [value for value in different if not isinstance(value, str)]
    if len(different) == 1:
        return different[0]
    return (
        statistics.median(numbers)
        if len(numbers) == len(different)
        else "; ".join(map(str, different))
    )
