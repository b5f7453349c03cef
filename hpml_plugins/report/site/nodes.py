"""The facts and coverage of each machine: what was measured there, what was skipped or failed, and
why."""

from __future__ import annotations

import heapq
import itertools
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from hpml_plugins.analysis.measured import MeasuredValue, Values
from hpml_plugins.analysis.verdicts import ValuePair, compare_values
from hpml_plugins.model import formatting
from hpml_plugins.model.differences import describe_share, format_card
from hpml_plugins.model.record import Record
from hpml_plugins.report.reading import History, Machine, TrackedBenchmark, TrackedMetric
from hpml_plugins.report.site.page import day, minute, point_link

#: For one benchmark on one machine; the others are counted, and are in the Records.
MOST_WARNINGS = 6
#: The most benchmarks that a sentence lists; if there are more, it gives their number.
MOST_NAMED = 40
#: Most cards of a machine that are listed.
MOST_CARDS = 8
#: Most runs of a machine that are listed.
MOST_RUNS = 5
#: A machine is stale if its newest commit is at least this many commits older than the newest of
#: all machines,
STALE_COMMITS = 10
#: or this many days.
STALE_DAYS = 30
#: A point is no longer measured if the machine has since measured this many times as many points
#: as it has, and no earlier gap was longer. A partial run counts for what it measured.
ENOUGH_PASSES = 2
#: (status: "skipped", "failed", "retracted", or "warning" for valid points; the reason) → the
#: points, in words.
Reasons = dict[tuple[str, str], list[str]]
#: Facts of a Record's node → their names on pages.
_NODE_FACTS = {
    "driver": "driver",
    "cuda": "CUDA",
    "python": "Python",
    "os": "OS",
    "cpu": "CPU",
    "gpu_problem": "problem of the GPU",
}


@dataclass(frozen=True)
class Coverage:
    """One benchmark on one machine, using the newest known result of each point.

    counts: status, or "missing" → points; a retracted Record counts as missing.  more_warnings: how
    many are not among the reasons.
    """

    benchmark: str
    link: str
    counts: Counter[str]
    reasons: Reasons
    more_warnings: int


@dataclass(frozen=True)
class Deviation:
    """A value of a machine that differs from those of others with the same GPU type.

    machine: the one with the median value among the others.  here, usual: the values on both.
    times: how many times better.
    """

    metric: TrackedMetric
    point: str
    machine: str
    here: MeasuredValue
    usual: MeasuredValue
    times: float
    verdict: str


@dataclass(frozen=True)
class Comparison:
    """A machine compared with the others of its GPU type. verdicts: verdict → number of values."""

    others: int
    verdicts: Counter[str]
    deviations: list[Deviation]


@dataclass(frozen=True)
class NodeCoverage:
    """The data of a machine for the page. anchor: of its section, by name.  facts: name → text.
    last: the day of its newest commit.

    cards: abbreviated UUID of a card, number of its Records, when the last one was started; the
    last used first.  runs: the newest: when a Record was started, benchmark with point, its page,
    status.
    """

    name: str
    hardware: str
    anchor: str
    facts: tuple[tuple[str, str], ...]
    last: str
    commits: int
    coverage: tuple[Coverage, ...]
    comparison: Comparison
    cards: tuple[tuple[str, int, str], ...]
    runs: tuple[tuple[str, str, str, str], ...]

    @property
    def total(self) -> Counter[str]:
        """The number of points by status."""
        return sum((each.counts for each in self.coverage), Counter())

    @property
    def told_apart(self) -> tuple[list[Coverage], list[Coverage], list[Coverage]]:
        """Benchmarks with every point measured without a warning, those without any result, and the
        others."""
        whole: list[Coverage] = []
        nothing: list[Coverage] = []
        told: list[Coverage] = []
        for each in self.coverage:
            if each.reasons or each.more_warnings:
                told.append(each)
            elif set(+each.counts) == {"ok"}:
                whole.append(each)
            else:
                (told if each.counts["ok"] else nothing).append(each)
        return whole, nothing, told


def find_nodes(history: History) -> list[NodeCoverage]:
    """Every machine with Records, by name."""
    compared = compare_nodes(history)
    made = []
    for machine in sorted(history.machines, key=lambda machine: machine.name):
        seen = history.seen.get(machine.name, ())
        coverage = tuple(
            _coverage(machine.name, benchmark, point_link(benchmark.name))
            for benchmark in history.benchmarks
        )
        facts = tuple(_facts(machine, history.last.get(machine.name)))
        last = day(history.dates[max(seen)]) if seen else ""
        anchor = f"machine-{quote(machine.name, safe='')}"
        made.append(
            NodeCoverage(
                machine.name,
                machine.hardware.label,
                anchor,
                facts,
                last,
                len(seen),
                coverage,
                compared[machine.name],
                *_runs(history, machine),
            )
        )
    return made


def compare_nodes(history: History) -> dict[str, Comparison]:
    """Compare each machine's newest value of each point with the median value of the others with
    the same GPU type.

    Verdicts are those of `compare_values`, corrected for all comparisons. Metrics without direction
    are left out.
    """
    types: dict[str, list[str]] = {}
    for machine in history.machines:
        types.setdefault(machine.hardware.label, []).append(machine.name)
    pairs = list(_pairs(history, types.values()))
    judged = compare_values(
        [
            ValuePair(
                (metric.benchmark.name, label, name, other), usual, here, metric.metric
            )
            for metric, label, name, other, usual, here in pairs
        ]
    )
    made = {
        name: Comparison(len(names) - 1, Counter(), [])
        for names in types.values()
        for name in names
    }
    for (metric, label, name, other, usual, here), difference in zip(
        pairs, judged, strict=True
    ):
        made[name].verdicts[difference.verdict] += 1
        if difference.times is not None and difference.verdict in ("BETTER", "WORSE"):
            values = here[metric.metric], usual[metric.metric]
            made[name].deviations.append(
                Deviation(
                    metric, label, other, *values, difference.times, difference.verdict
                )
            )
    return made


def _pairs(
    history: History, types: Iterable[list[str]]
) -> Iterator[tuple[TrackedMetric, str, str, str, Values, Values]]:
    """Metric, point, machine and the machine to compare it with; the readings of the latter and of
    the former."""
    for metric in (each for each in history.ordered if each.direction):
        current = metric.benchmark.current
        for label, names in itertools.product(metric.benchmark.points, types):
            measured = {
                name: current[label, name][0].readings
                for name in names
                if (label, name) in current
            }
            found = {
                name: values for name, values in measured.items() if metric.metric in values
            }
            for name in found if len(found) > 1 else ():
                others = (
                    (found[other][metric.metric].value, other)
                    for other in found
                    if other != name
                )
                _, usual = statistics.median_low(others)
                yield metric, label, name, usual, found[usual], found[name]


def _runs(
    history: History, machine: Machine
) -> tuple[tuple[tuple[str, int, str], ...], tuple[tuple[str, str, str, str], ...]]:
    """The cards of a machine, and its newest Records; see `NodeCoverage`."""
    cards: dict[str, list[float]] = {}
    started = []
    for benchmark in history.benchmarks:
        for label in benchmark.points:
            title = f"{benchmark.heading} {label}"
            link = point_link(benchmark.name, benchmark.first_metric, label)
            for outcome in benchmark.index.on_line((label, machine.name)):
                if outcome.status != "skipped" and outcome.file:
                    started.append((outcome.started, title, link, str(outcome.status)))
                if card := outcome.card:
                    cards.setdefault(card, []).append(outcome.started)
    newest = heapq.nlargest(MOST_CARDS, cards.items(), key=lambda card: max(card[1]))
    shown = [(format_card(card), len(times), minute(max(times))) for card, times in newest]
    runs = [
        (minute(when), title, link, status)
        for when, title, link, status in heapq.nlargest(MOST_RUNS, started)
    ]
    return tuple(shown), tuple(runs)


def _coverage(machine: str, benchmark: TrackedBenchmark, link: str) -> Coverage:
    counts: Counter[str] = Counter()
    reasons: Reasons = {}
    for label in benchmark.points:
        newest = benchmark.index.newest((label, machine))
        if newest is None:
            counts["missing"] += 1
            continue
        counts["missing" if newest.status == "retracted" else newest.status] += 1
        found = [("warning", warning) for warning in dict.fromkeys(newest.warnings)]
        if newest.status != "ok":
            found = [(newest.status, newest.reason or "no reason recorded")]
        for each in found:
            reasons.setdefault(each, []).append(label or "one point")
    # All reasons for missing numbers, and the warnings that affect most points.
    warnings = sorted(
        (each for each in reasons if each[0] == "warning"),
        key=lambda each: -len(reasons[each]),
    )
    shown = [*(each for each in reasons if each[0] != "warning"), *warnings[:MOST_WARNINGS]]
    left_out = len(warnings[MOST_WARNINGS:])
    return Coverage(
        benchmark.heading, link, counts, {each: reasons[each] for each in shown}, left_out
    )


def _facts(machine: Machine, record: Record | None) -> Iterator[tuple[str, str]]:
    """The facts of asv's machine.json, then those known better from the newest Record."""
    facts = sorted(machine.facts.items())
    yield from (
        (str(key), str(value)) for key, value in facts if key not in ("version", "machine")
    )
    for name, text in record_facts(record) if record else ():
        yield (
            (
                f"{name} (newest record)"
                if name in (*_NODE_FACTS.values(), "share of its host")
                else name
            ),
            text,
        )


def record_facts(record: Record) -> Iterator[tuple[str, str]]:
    """The facts of a Record's node: name → text; GPUs, driver, CPU, libraries."""
    for number, gpu in enumerate(record.gpus):
        yield f"GPU {number}", ", ".join(_gpu(gpu))
    for key, name in _NODE_FACTS.items():
        if record.node.get(key):
            yield name, str(record.node[key])
    if share := describe_share(record):
        yield "share of its host", share
    for name, version in sorted(record.packages.items()):
        yield name, str(version)


def _gpu(gpu: Mapping[str, Any]) -> Iterable[str]:
    yield str(gpu.get("name", "unknown"))
    for key, unit, label in (
        ("memory", "B", ""),
        ("power_limit", "W", " limit"),
        ("max_sm_clock", "Hz", " at most"),
    ):
        if isinstance(gpu.get(key), int | float) and gpu[key]:
            yield formatting.quantity(float(gpu[key]), unit) + label
    if gpu.get("links"):
        yield str(gpu["links"])


@dataclass(frozen=True)
class Gaps:
    """What is missing or stale on a machine.

    behind, days: commits and days between its newest commit and the newest of all.  stale: whether
    that is too much.  dropped: benchmark → points that used to be measured: point, its page, the
    date of its last commit, ms since 1970, and its age in commits.  failed: points whose newest
    Record failed.  last: the date of the machine's newest commit.
    """

    name: str
    anchor: str
    behind: int
    days: int
    stale: bool
    dropped: dict[str, list[tuple[str, str, float, int]]]
    failed: int
    last: float


#: A point that a machine measured: its benchmark, its label, and the columns of its commits.
_MeasuredPoint = tuple[TrackedBenchmark, str, list[int]]


def find_gaps(history: History, nodes: Iterable[NodeCoverage]) -> list[Gaps]:
    """The machines on which something is missing or stale, those most commits behind first."""
    last = len(history.commits) - 1
    measured = _measured_points(history)
    found = []
    for node in nodes:
        seen = sorted(history.seen.get(node.name, ()))
        if not seen:
            continue
        newest = seen[-1]
        behind = last - newest
        days = int((history.dates[last] - history.dates[newest]) / 86_400_000)
        stale = behind >= STALE_COMMITS or days >= STALE_DAYS
        dropped = _find_dropped(measured.get(node.name, ()), seen, history)
        failed = node.total["failed"]
        if stale or dropped or failed:
            newest_date = history.dates[newest]
            found.append(
                Gaps(
                    node.name,
                    node.anchor,
                    behind,
                    days,
                    stale,
                    dropped,
                    failed,
                    newest_date,
                )
            )
    return sorted(
        found, key=lambda each: (-each.behind, -each.failed, -len(each.dropped), each.name)
    )


def _measured_points(history: History) -> dict[str, list[_MeasuredPoint]]:
    """Machine → the points that it measured and that did not fail last, since failures are counted
    separately."""
    found: dict[str, list[_MeasuredPoint]] = {}
    for benchmark in history.benchmarks:
        for (label, machine), line in benchmark.index.lines().items():
            columns = [
                history.columns[outcome.revision]
                for outcome in line
                if outcome.status == "ok"
            ]
            if columns and line[-1].status != "failed":
                found.setdefault(machine, []).append((benchmark, label, columns))
    return found


def _find_dropped(
    points: Sequence[_MeasuredPoint], seen: Sequence[int], history: History
) -> dict[str, list[tuple[str, str, float, int]]]:
    """The points that a machine no longer measures: benchmark → points, see `Gaps`.

    seen: the columns of the machine's commits, ascending.
    """
    counts = Counter(itertools.chain(*(columns for *_, columns in points)))
    done = dict(
        zip(seen, itertools.accumulate(counts[column] for column in seen), strict=True)
    )
    dropped: dict[str, list[tuple[str, str, float, int]]] = {}
    for benchmark, label, columns in points:
        at = [done[column] for column in columns]
        since = counts.total() - at[-1]
        gap = max((b - a for a, b in itertools.pairwise(at)), default=since + 1)
        if ENOUGH_PASSES * len(points) <= since >= gap:
            link = point_link(benchmark.name, benchmark.first_metric, label)
            point = label, link, history.dates[columns[-1]], seen[-1] - columns[-1]
            dropped.setdefault(benchmark.heading, []).append(point)
    return dropped
