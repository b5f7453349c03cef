"""Each machine's facts and coverage: what was measured there, what was skipped or failed, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpml_plugins.model import formatting
from hpml_plugins.model.record import Record
from hpml_plugins.report.reading import FAILED, History, Machine, TrackedMetric
from hpml_plugins.report.site.page import day, history_link

#: Of one benchmark on one machine; the others are counted, and in the Records.
MOST_WARNINGS = 6


@dataclass(frozen=True)
class Reason:
    """Points that ended alike. status: "skipped", "failed", or "warning" of points that count.  points: in words."""

    status: str
    reason: str
    points: tuple[str, ...]


@dataclass(frozen=True)
class Coverage:
    """One benchmark on one machine, each point by the newest that is known of it."""

    benchmark: str
    link: str
    measured: int
    skipped: int
    failed: int
    missing: int
    reasons: tuple[Reason, ...]
    more_warnings: int = 0


@dataclass(frozen=True)
class NodeCoverage:
    """A machine of the page. facts: name → text.  last: the day of its newest commit."""

    name: str
    anchor: str
    facts: tuple[tuple[str, str], ...]
    last: str
    commits: int
    coverage: tuple[Coverage, ...]

    def total(self, status: str) -> int:
        """How many points ended so."""
        return sum(getattr(each, status) for each in self.coverage)


def find_nodes(history: History) -> list[NodeCoverage]:
    """Every machine with Records, by name."""
    one_each: dict[str, TrackedMetric] = {}
    for metric in history.metrics.values():
        one_each.setdefault(metric.benchmark, metric)
    rows = {machine.name: row for row, machine in enumerate(history.machines)}
    made = []
    for number, machine in enumerate(sorted(history.machines, key=lambda machine: machine.name)):
        seen = _commits(history, rows[machine.name])
        coverage = tuple(_coverage(machine.name, one_each[name], history) for name in sorted(one_each))
        facts = tuple(_facts(machine, history.last.get(machine.name)))
        last = day(history.dates[int(seen[-1])]) if len(seen) else ""
        made.append(NodeCoverage(machine.name, f"machine-{number}", facts, last, len(seen), coverage))
    return made


def _coverage(machine: str, metric: TrackedMetric, history: History) -> Coverage:
    counts = dict.fromkeys(("measured", "skipped", "failed", "missing"), 0)
    reasons: dict[tuple[str, str], list[str]] = {}
    for label in metric.points.labels:
        outcome = history.outcomes.get((machine, metric.benchmark, label))
        if outcome is None:
            counts["missing"] += 1
            continue
        counts["measured" if outcome.status == "ok" else outcome.status] += 1
        if outcome.status != "ok":
            reasons.setdefault((outcome.status, outcome.reason or "no reason recorded"), []).append(label)
        else:
            for warning in dict.fromkeys(outcome.warnings):
                reasons.setdefault(("warning", warning), []).append(label)
    shown, left_out = _most(reasons)
    return Coverage(
        metric.heading,
        history_link(metric.name, ""),
        **counts,
        reasons=tuple(
            Reason(status, reason, tuple(label or "one point" for label in labels))
            for (status, reason), labels in shown
        ),
        more_warnings=left_out,
    )


def _most(reasons: Mapping[tuple[str, str], list[str]]) -> tuple[list[tuple[tuple[str, str], list[str]]], int]:
    """Every reason why there is no number, the warnings of most points, and how many warnings are left out."""
    warnings = [each for each in reasons.items() if each[0][0] == "warning"]
    warnings.sort(key=lambda each: -len(each[1]))
    why_not = [each for each in reasons.items() if each[0][0] != "warning"]
    return [*why_not, *warnings[:MOST_WARNINGS]], len(warnings[MOST_WARNINGS:])


def _commits(history: History, row: int) -> np.ndarray:
    found = [(lines.status[row] >= FAILED).any(axis=1) for lines in history.lines.values()]
    return np.flatnonzero(np.any(found, axis=0)) if found else np.zeros(0, int)


def _facts(machine: Machine, record: Record | None) -> Iterator[tuple[str, str]]:
    """What asv's machine.json says, then what the newest Record knows better."""
    facts = sorted(machine.facts.items())
    yield from ((str(key), str(value)) for key, value in facts if key not in ("version", "machine"))
    if record is None:
        return
    node = record.node
    for key in ("driver", "cuda", "python", "os", "gpu_problem"):
        if node.get(key):
            yield f"{key} (newest record)", str(node[key])
    for number, gpu in enumerate(record.gpus):
        yield f"GPU {number}", ", ".join(_gpu(gpu))
    for name, version in sorted(record.packages.items()):
        yield name, str(version)


def _gpu(gpu: Mapping[str, Any]) -> Iterable[str]:
    yield str(gpu.get("name", "unknown"))
    for key, unit, label in (("memory", "B", ""), ("power_limit", "W", " limit"), ("max_sm_clock", "Hz", " at most")):
        if isinstance(gpu.get(key), int | float) and gpu[key]:
            yield formatting.quantity(float(gpu[key]), unit) + label
    if gpu.get("links"):
        yield str(gpu["links"])
