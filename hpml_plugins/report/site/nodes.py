"""Each machine as facts, and its coverage: what was measured there, what was skipped or failed, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hpml_plugins.model import formatting as display
from hpml_plugins.model.record import Record
from hpml_plugins.report.site.cells import day, history_link
from hpml_plugins.report.site.history import FAILED, LEFT_OUT, OK, Benchmarks, History
from hpml_plugins.report.site.matrix import point_names
from hpml_plugins.report.site.record_files import spelled
from hpml_plugins.store import read_object_or_empty

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
    plugin: str
    link: str
    measured: int
    skipped: int
    failed: int
    missing: int
    reasons: tuple[Reason, ...]
    more_warnings: int = 0


@dataclass(frozen=True)
class Machine:
    """A machine of the page. facts: name → text."""

    name: str
    anchor: str
    facts: tuple[tuple[str, str], ...]
    last: str
    commits: int
    coverage: tuple[Coverage, ...]

    def total(self, status: str) -> int:
        """How many points ended so."""
        return sum(getattr(each, status) for each in self.coverage)


def machines(
    results: Path, history: History, benchmarks: Benchmarks, records: Iterable[Record], revisions: Mapping[str, int]
) -> list[Machine]:
    """Every machine with results or Records, by name."""
    newest: dict[tuple[str, str, str], Record] = {}
    last_record: dict[str, Record] = {}
    for record in records:
        key = record.machine, record.benchmark, spelled(record)
        if key not in newest or _age(record, revisions) >= _age(newest[key], revisions):
            newest[key] = record
        if record.machine not in last_record or record.started >= last_record[record.machine].started:
            last_record[record.machine] = record
    names = sorted({place.machine for place in history.places} | set(last_record))
    one_each: dict[str, str] = {}
    for name, benchmark in benchmarks.items():
        one_each.setdefault(str(benchmark.get("benchmark") or name), name)
    made = []
    for number, machine in enumerate(names):
        rows = [row for row, place in enumerate(history.places) if place.machine == machine]
        seen = _commits(history, rows)
        coverage = [
            _coverage(machine, title, name, benchmarks[name], history, rows, newest)
            for title, name in sorted(one_each.items())
        ]
        facts = tuple(_facts(results / machine / "machine.json", last_record.get(machine)))
        last = day(history.dates[int(seen[-1])]) if len(seen) else ""
        made.append(Machine(machine, f"machine-{number}", facts, last, len(seen), tuple(coverage)))
    return made


def _coverage(
    machine: str,
    title: str,
    name: str,
    benchmark: Mapping[str, Any],
    history: History,
    rows: list[int],
    newest: Mapping[tuple[str, str, str], Record],
) -> Coverage:
    lines = history.lines.get(name)
    counts = dict.fromkeys(("measured", "skipped", "failed", "missing"), 0)
    reasons: dict[tuple[str, str], list[str]] = {}
    for index, point in enumerate(point_names(benchmark)):
        record = newest.get((machine, title, point))
        if record is not None:
            status, reason = str(record.status), record.reason
        else:
            codes = lines.status[rows, :, index] if lines is not None and rows else np.zeros((0, 0), np.uint8)
            status, reason = _by_asv(codes)
        key = {"ok": "measured", "": "missing"}.get(status, status)
        counts[key] += 1
        if key in ("skipped", "failed"):
            reasons.setdefault((key, reason or "no reason recorded"), []).append(point or "one point")
        elif record is not None:
            for warning in dict.fromkeys(record.warnings):
                reasons.setdefault(("warning", warning), []).append(point or "one point")
    shown, left_out = _most(reasons)
    return Coverage(
        title,
        str(benchmark.get("plugin") or ""),
        history_link(name, ""),
        counts["measured"],
        counts["skipped"],
        counts["failed"],
        counts["missing"],
        tuple(Reason(status, reason, tuple(points)) for (status, reason), points in shown),
        left_out,
    )


def _most(reasons: Mapping[tuple[str, str], list[str]]) -> tuple[list[tuple[tuple[str, str], list[str]]], int]:
    """Every reason why there is no number, the warnings of most points, and how many warnings are left out."""
    warnings = [each for each in reasons.items() if each[0][0] == "warning"]
    warnings.sort(key=lambda each: -len(each[1]))
    why_not = [each for each in reasons.items() if each[0][0] != "warning"]
    return [*why_not, *warnings[:MOST_WARNINGS]], len(warnings[MOST_WARNINGS:])


def _by_asv(codes: np.ndarray) -> tuple[str, str]:
    """What asv's results say of a point for which there is no Record. codes: place × commit."""
    said = np.flatnonzero((codes >= FAILED).any(axis=0))
    if len(said):
        return ("ok", "") if (codes[:, said[-1]] == OK).any() else ("failed", "no Record of it: see asv's output")
    return ("skipped", "left out of every run") if (codes == LEFT_OUT).any() else ("", "")


def _commits(history: History, rows: list[int]) -> np.ndarray:
    found = [(lines.status[rows] >= FAILED).any(axis=(0, 2)) for lines in history.lines.values()]
    return np.flatnonzero(np.any(found, axis=0)) if found and rows else np.zeros(0, int)


def _facts(path: Path, record: Record | None) -> Iterable[tuple[str, str]]:
    """What asv's machine.json says, then what the newest Record knows better."""
    known = read_object_or_empty(path)
    yield from ((str(key), str(value)) for key, value in sorted(known.items()) if key not in ("version", "machine"))
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
            yield display.quantity(float(gpu[key]), unit) + label
    if gpu.get("links"):
        yield str(gpu["links"])


def _age(record: Record, revisions: Mapping[str, int]) -> tuple[int, float]:
    return revisions.get(record.commit, -1), record.started
