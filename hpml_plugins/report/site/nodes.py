"""Each machine's facts and coverage: what was measured there, what was skipped or failed, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hpml_plugins.model import formatting
from hpml_plugins.model.differences import describe_share
from hpml_plugins.model.record import Record
from hpml_plugins.report.reading import History, Machine, TrackedBenchmark
from hpml_plugins.report.site.page import day, history_link

#: Of one benchmark on one machine; the others are counted, and in the Records.
MOST_WARNINGS = 6
#: (status: "skipped", "failed", "retracted", or "warning" of points that count; the reason) → the points, in words.
Reasons = dict[tuple[str, str], list[str]]
#: Facts of a Record's node → how a page calls them.
_NODE_FACTS = {
    "driver": "driver", "cuda": "CUDA", "python": "Python", "os": "OS", "cpu": "CPU",
    "gpu_problem": "problem of the GPU",
}  # fmt: skip


@dataclass(frozen=True)
class Coverage:
    """One benchmark on one machine, each point by the newest that is known of it.

    counts: status, or "missing" → points; a retracted Record counts as none.  more_warnings: how many are not among the
    reasons.
    """

    benchmark: str
    link: str
    counts: Counter[str]
    reasons: Reasons
    more_warnings: int


@dataclass(frozen=True)
class NodeCoverage:
    """A machine of the page. facts: name → text.  last: the day of its newest commit."""

    name: str
    anchor: str
    facts: tuple[tuple[str, str], ...]
    last: str
    commits: int
    coverage: tuple[Coverage, ...]

    @property
    def total(self) -> Counter[str]:
        """How many points ended how."""
        return sum((each.counts for each in self.coverage), Counter())


def find_nodes(history: History) -> list[NodeCoverage]:
    """Every machine with Records, by name."""
    links = {metric.benchmark.name: metric.name for metric in reversed(history.metrics.values())}
    made = []
    for number, machine in enumerate(sorted(history.machines, key=lambda machine: machine.name)):
        seen = history.columns_of(machine.name)
        coverage = tuple(
            _coverage(machine.name, benchmark, history_link(links[benchmark.name], ""))
            for benchmark in history.benchmarks
        )
        facts = tuple(_facts(machine, history.last.get(machine.name)))
        last = day(history.dates[max(seen)]) if seen else ""
        made.append(NodeCoverage(machine.name, f"machine-{number}", facts, last, len(seen), coverage))
    return made


def _coverage(machine: str, benchmark: TrackedBenchmark, link: str) -> Coverage:
    counts: Counter[str] = Counter()
    reasons: Reasons = {}
    for label in benchmark.points:
        outcomes = benchmark.outcomes.get((label, machine))
        if not outcomes:
            counts["missing"] += 1
            continue
        newest = ([each for each in outcomes if each.status != "retracted"] or outcomes)[-1]
        counts["missing" if newest.status == "retracted" else newest.status] += 1
        found = [("warning", warning) for warning in dict.fromkeys(newest.warnings)]
        if newest.status != "ok":
            found = [(newest.status, newest.reason or "no reason recorded")]
        for each in found:
            reasons.setdefault(each, []).append(label or "one point")
    # Every reason why there is no number, and the warnings of most points.
    warnings = sorted((each for each in reasons if each[0] == "warning"), key=lambda each: -len(reasons[each]))
    shown = [*(each for each in reasons if each[0] != "warning"), *warnings[:MOST_WARNINGS]]
    left_out = len(warnings[MOST_WARNINGS:])
    return Coverage(benchmark.heading, link, counts, {each: reasons[each] for each in shown}, left_out)


def _facts(machine: Machine, record: Record | None) -> Iterator[tuple[str, str]]:
    """What asv's machine.json says, then what the newest Record knows better."""
    facts = sorted(machine.facts.items())
    yield from ((str(key), str(value)) for key, value in facts if key not in ("version", "machine"))
    for name, text in record_facts(record) if record else ():
        yield f"{name} (newest record)" if name in (*_NODE_FACTS.values(), "share of its host") else name, text


def record_facts(record: Record) -> Iterator[tuple[str, str]]:
    """What a Record tells of its node: name → text; GPUs, driver, CPU, libraries."""
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
    for key, unit, label in (("memory", "B", ""), ("power_limit", "W", " limit"), ("max_sm_clock", "Hz", " at most")):
        if isinstance(gpu.get(key), int | float) and gpu[key]:
            yield formatting.quantity(float(gpu[key]), unit) + label
    if gpu.get("links"):
        yield str(gpu["links"])
