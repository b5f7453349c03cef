"""The first page, `index.html`: which GPU for what, by how much and how sure, what changed, and what is missing."""

from __future__ import annotations

import itertools
import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from hpml_plugins.model import formatting
from hpml_plugins.model.benchmark import Benchmark
from hpml_plugins.model.variability import MARGIN, Difference, MeasuredValue, Values, compare_values, have_common_regime
from hpml_plugins.published import find_gpu
from hpml_plugins.report.hardware import Hardware
from hpml_plugins.report.reading import History, Machine, Outcome, TrackedMetric
from hpml_plugins.report.site.gpu_types import HEADLINE_UNITS, Matrix, headline_rank
from hpml_plugins.report.site.nodes import NodeCoverage
from hpml_plugins.report.site.page import day, history_link, write_data, write_page
from hpml_plugins.report.site.regressions import THRESHOLD, Change, MeasuredSeries

#: Rows of a comparison, and changes of each kind that are listed.
MOST_ROWS, MOST_CHANGES = 8, 3
#: How many of the readings before the newest say what was usual.
USUAL = 5
#: A machine is stale if its newest commit is at least this many commits, or days, older than the newest of all.
STALE_COMMITS, STALE_DAYS = 10, 30
#: A point counts as no longer measured if none of the machine's newest commits, as many as this, has it.
NEWEST_COMMITS = 5
#: Verdict → words. Every headline metric is a rate or a time.
WORDS = {
    "BETTER": "faster", "WORSE": "slower", "SAME": f"the same within {100 * MARGIN:g} %", "AMBIGUOUS": "cannot be told"
}  # fmt: skip
#: The folder of what the page's script reads.
FOLDER = "overview"
#: Published figures of a card: label, field of GpuType, unit.
PEAKS = (
    ("memory", "memory", "B"), ("bandwidth", "bandwidth", "B/s"), ("bf16", "bfloat16", "FLOP/s"),
    ("fp8", "fp8", "FLOP/s"), ("fp32", "float32", "FLOP/s"), ("power", "power", "W"),
)  # fmt: skip


@dataclass
class HeadlineRow:
    """One point of a headline metric.

    newest: number of a type → its newest Outcome with a value.  counts: likewise how many Records have one.  gpus: how
    many of all types are GPUs, which have the lowest numbers.
    """

    metric: TrackedMetric
    point: str
    gpus: int
    newest: dict[int, Outcome] = field(default_factory=dict)
    counts: Counter[int] = field(default_factory=Counter)

    @property
    def weight(self) -> tuple[int, float]:
        """For sorting: what most GPU types have comes first, then the largest: the highest rate, the longest time."""
        values = (outcome.readings[self.metric.metric].value for outcome in self.newest.values())
        return -sum(number < self.gpus for number in self.newest), -max(values)


@dataclass(frozen=True)
class Shift:
    """A change of one point of a metric on one machine, certain or suspected.  label: the point in words."""

    metric: TrackedMetric
    label: str
    machine: str
    change: Change

    @property
    def place(self) -> tuple[str, str, str]:
        """Metric, point and machine, by name."""
        return self.metric.name, self.label, self.machine


@dataclass(frozen=True)
class TypeCard:
    """A GPU type, with any number of GPUs per node, or a CPU.

    links: label → address on the page of GPU types.  peaks: label → text, published.  cards: distinct UUIDs of the
    GPUs that measured; 0 where no Record tells.
    """

    name: str
    kind: int
    links: dict[str, str]
    peaks: dict[str, str]
    source: str
    machines: int
    cards: int
    last: str
    commit: str


@dataclass(frozen=True)
class Gaps:
    """What is missing or stale on a machine.

    behind, days: commits and days between its newest commit and the newest of all.  stale: whether that is much.
    dropped: points that it measured before, and at none of its newest commits.  failed: points whose newest Record
    failed.
    """

    name: str
    anchor: str
    behind: int
    days: int
    stale: bool
    dropped: int
    failed: int


def write_overview(
    history: History, matrix: Matrix, series: Sequence[MeasuredSeries], nodes: Iterable[NodeCoverage],
    declared: Mapping[str, Benchmark], html_dir: Path, project: str,
) -> None:  # fmt: skip
    """Write `index.html` and the data of its script.

    matrix: of the page of GPU types, which shows the same two types first.  declared: the benchmarks of loaded plugins,
    by name.
    """
    types = [column.hardware for column in matrix.columns]
    rows = headline_rows(find_rows(history, types, declared), len(types))
    chosen = matrix.chosen
    pair = chosen if any(row.newest.keys() >= set(chosen) for row in rows) and len(chosen) > 1 else None
    shown: dict[str, Any] = {
        "types": [each.label for each in types],
        "rows": [_show(row, declared) for row in rows],
        "pair": pair,
        "words": {verdict[0].lower(): words for verdict, words in WORDS.items()},
        "most": MOST_ROWS,
    }
    write_data(html_dir, f"{FOLDER}/rows.js", shown)
    verdicts: dict[int, list[str]] = {}
    for base in range(len(types)):
        against = {other: compare_rows(rows, base, other) for other in range(len(types)) if other != base}
        write_data(html_dir, f"{FOLDER}/{base}.js", against)
        if pair and base == pair[0]:
            verdicts = dict(itertools.islice(against[pair[1]].items(), MOST_ROWS))
    groups: dict[str, list[int]] = {}
    for number in verdicts:
        groups.setdefault(shown["rows"][number]["title"], []).append(number)
    write_page(
        html_dir, "index.html", project=project, cards=find_cards(history), shown=shown, groups=groups,
        verdicts=verdicts, changes=_list_changes(history, series), gaps=find_gaps(history, nodes),
        commits=len(history.commits), machines=len(history.machines), newest_commits=NEWEST_COMMITS,
    )  # fmt: skip


def find_rows(history: History, types: Sequence[Hardware], declared: Mapping[str, Benchmark]) -> list[HeadlineRow]:
    """Every point of the headline metrics that has a value on two types, in the order in which it says most.

    Units take turns, then benchmarks, then points; see `HeadlineRow.weight` for the order within each. A benchmark that
    needs no GPU says nothing about the GPUs of a machine.
    """
    gpus = sum(each.kind == 0 for each in types)
    groups = []
    for metric in _headline_metrics(history):
        benchmark = declared.get(metric.benchmark.name)
        of_cpu = benchmark is not None and not benchmark.requires.gpus
        numbers = {
            machine.name: types.index(machine.hardware)
            for machine in history.machines
            if machine.hardware in types and not (of_cpu and machine.hardware.kind == 0)
        }
        groups += [rows] if (rows := _rows(metric, numbers, gpus)) else []
    places: Counter[str] = Counter()
    ranked: list[tuple[tuple[int, int, int], HeadlineRow]] = []
    for rows in sorted(groups, key=lambda rows: rows[0].weight):
        unit = rows[0].metric.unit
        ranked += [((turn, places[unit], HEADLINE_UNITS.index(unit)), row) for turn, row in enumerate(rows)]
        places[unit] += 1
    return [row for _, row in sorted(ranked, key=operator.itemgetter(0))]


def _headline_metrics(history: History) -> Iterator[TrackedMetric]:
    found: dict[str, list[TrackedMetric]] = {}
    for metric in history.metrics.values():
        if metric.direction and metric.unit in HEADLINE_UNITS:
            found.setdefault(metric.benchmark.name, []).append(metric)
    return (min(metrics, key=headline_rank) for metrics in found.values())


def _rows(metric: TrackedMetric, numbers: Mapping[str, int], gpus: int) -> list[HeadlineRow]:
    """The points of a metric that have a value on two types, by weight.  numbers: machine → number of its type."""
    found = {label: HeadlineRow(metric, label, gpus) for label in metric.benchmark.points}
    for (label, machine), line in metric.benchmark.lines.items():
        newest = next((outcome for outcome in reversed(line) if metric.metric in outcome.readings), None)
        if newest and machine in numbers:
            row, number = found[label], numbers[machine]
            row.newest[number] = max(row.newest.get(number, newest), newest, key=_when)
            outcomes = metric.benchmark.outcomes[label, machine]
            row.counts[number] += sum(metric.metric in outcome.readings for outcome in outcomes)
    return sorted((row for row in found.values() if len(row.newest) > 1), key=lambda row: row.weight)


def _when(outcome: Outcome) -> tuple[int, float]:
    return outcome.revision, outcome.started


def headline_rows(rows: Sequence[HeadlineRow], count: int) -> list[HeadlineRow]:
    """Those that are among the first MOST_ROWS of some two types.  count: of types."""
    left = Counter(dict.fromkeys(itertools.combinations(range(count), 2), MOST_ROWS))
    kept = []
    for row in rows:
        asking = [pair for pair in itertools.combinations(sorted(row.newest), 2) if left[pair]]
        left.subtract(asking)
        if asking:
            kept.append(row)
    return kept


def compare_rows(rows: Sequence[HeadlineRow], base: int, other: int) -> dict[int, list[str]]:
    """Number of a row → verdict on a type against the base: letter, ratio and interval; all rows asked at once."""
    shared = [number for number, row in enumerate(rows) if base in row.newest and other in row.newest]
    asked = [(rows[n].newest[base].readings, rows[n].newest[other].readings, rows[n].metric.metric) for n in shared]
    judged = zip(shared, asked, compare_values(asked), strict=True)
    return {number: _describe_verdict(found, a[name], b[name]) for number, (a, b, name), found in judged}


def _describe_verdict(found: Difference, base: MeasuredValue, other: MeasuredValue) -> list[str]:
    """Above 1 is better, whichever direction is."""
    letter, ratio = found.verdict[0].lower(), found.times
    if ratio is None:
        return [letter, "", found.reason]
    if found.low is None or found.high is None:
        why = "" if have_common_regime(base, other) else ": one side throttled"
        return [letter, f"{formatting.times(ratio)}×", f"no interval{why}"]
    low, high = (found.low, found.high) if found.direction == "higher" else (1 / found.high, 1 / found.low)
    return [letter, f"{formatting.times(ratio)}×", f"{formatting.times(low)} to {formatting.times(high)}"]


def _show(row: HeadlineRow, declared: Mapping[str, Benchmark]) -> dict[str, Any]:
    """A row as the page and its script show it: number of a type → value, and how it was measured."""
    benchmark, cells = declared.get(row.metric.benchmark.name), {}
    for number, outcome in row.newest.items():
        reading, count = outcome.readings[row.metric.metric], row.counts[number]
        records = f"{count} Record{'' if count == 1 else 's'}"
        facts = filter(None, [reading.regime, records, day(outcome.started * 1000)])
        cells[number] = [formatting.estimate(reading.estimate, row.metric.unit), ", ".join(facts)]
    return {
        "title": row.metric.title, "point": row.point, "about": benchmark.description if benchmark else "",
        "link": history_link(row.metric.name, row.point), "cells": cells,
    }  # fmt: skip


def find_cards(history: History) -> list[TypeCard]:
    """A card for each GPU type, then for what has no GPU."""
    grouped: dict[tuple[int, str, str], list[Machine]] = {}
    for machine in history.machines:
        grouped.setdefault((machine.hardware.kind, machine.hardware.gpu, machine.hardware.cpu), []).append(machine)
    outcomes: dict[str, list[list[Outcome]]] = {}
    for benchmark in history.benchmarks:
        for (_, name), found in benchmark.outcomes.items():
            outcomes.setdefault(name, []).append(found)
    return [
        _card(machines, history, [found for machine in machines for found in outcomes.get(machine.name, ())])
        for machines in grouped.values()
    ]


def _card(machines: Sequence[Machine], history: History, lines: Iterable[Sequence[Outcome]]) -> TypeCard:
    """The card of machines of one type.  lines: of each point on each of them every Record, oldest first."""
    first = machines[0].hardware
    known = find_gpu(first.gpu) if first.kind == 0 else None
    figures = [(label, getattr(known, name), unit) for label, name, unit in PEAKS] if known else []
    last: Outcome | None = None
    seen: set[str] = set()
    for line in lines:
        if measured := [outcome for outcome in line if outcome.readings]:
            last = max(last or measured[-1], measured[-1], key=_when)
            seen |= {next(iter(outcome.readings.values())).card for outcome in measured}
    column = history.columns.get(last.revision) if last else None
    return TypeCard(
        first.gpu if first.kind == 0 else first.label,
        first.kind,
        {each.hardware.label: f"gpus.html#base={quote(each.hardware.label, safe='')}" for each in machines},
        {label: formatting.quantity(value, unit) for label, value, unit in figures if value},
        known.source if known else "",
        len(machines),
        # A Record without GPUs tells its boot or its run instead; see `card_of`.
        len({card for cards in seen for card in cards.split(",") if card.startswith(("GPU-", "MIG-"))}),
        day(last.started * 1000) if last else "",
        "" if column is None else history.commits[column],
    )


def find_suspected(history: History, known: set[tuple[str, str, str]]) -> list[Shift]:
    """Newest values that differ from what was usual by more than THRESHOLD and the 95 % interval of the ratio.

    Each is one reading, which the next run may confirm or not. Usual is the median of the USUAL readings before.
    known: `Shift.place` of what is more than suspected.
    """
    asked: list[tuple[Values, Values, str]] = []
    shifts: list[Shift] = []
    for metric in history.measured:
        for (label, machine), line in metric.benchmark.lines.items() if metric.direction else ():
            measured = (outcome for outcome in reversed(line) if metric.metric in outcome.readings)
            recent = list(itertools.islice(measured, USUAL + 1))
            if len(recent) < 2 or (metric.name, label, machine) in known:
                continue
            newest, *before = (outcome.readings for outcome in recent)
            usual = sorted(before, key=lambda readings: readings[metric.metric].value)[len(before) // 2]
            old, new = usual[metric.metric].value, newest[metric.metric].value
            verdict = "worse" if (new > old) == (metric.direction == "lower") else "better"
            change = Change(recent[1].revision, recent[0].revision, old, new, verdict)
            asked.append((usual, newest, metric.metric))
            shifts.append(Shift(metric, label, machine, change))
    return [
        shift
        for shift, each in zip(shifts, compare_values(asked), strict=True)
        if each.ratio and abs(each.ratio - 1) > THRESHOLD and each.low and each.high and not each.low <= 1 <= each.high
    ]


def _list_changes(history: History, series: Sequence[MeasuredSeries]) -> list[dict[str, Any]]:
    """Open regressions, improvements that lasted, and suspected ones: how many, and the newest few in words."""
    worse = [Shift(each.metric, each.label, each.machine.name, change) for each in series for change in each.open]
    last = [
        Shift(each.metric, each.label, each.machine.name, change) for each in series for change in each.changes[-1:]
    ]
    better = [shift for shift in last if shift.change.verdict == "better"]
    suspected = find_suspected(history, {shift.place for shift in (*worse, *better)})
    kinds = {
        "open regression": worse,
        "suspected regression": [shift for shift in suspected if shift.change.verdict == "worse"],
        "improvement": better,
        "suspected improvement": [shift for shift in suspected if shift.change.verdict == "better"],
    }
    return [{"kind": kind, "count": len(found), "newest": _newest(found, history)} for kind, found in kinds.items()]


def _newest(shifts: Iterable[Shift], history: History) -> list[dict[str, str]]:
    """The newest MOST_CHANGES in words, the largest of each benchmark."""
    ordered = sorted(shifts, key=lambda shift: (-shift.change.first, -shift.change.size, shift.place))
    of_benchmark: dict[str, Shift] = {}
    for shift in ordered:
        of_benchmark.setdefault(shift.metric.benchmark.name, shift)
    found = []
    for shift in itertools.islice(of_benchmark.values(), MOST_CHANGES):
        column = history.columns[shift.change.first]
        found.append({
            "title": shift.metric.title, "point": shift.label, "machine": shift.machine,
            "link": history_link(shift.metric.name, shift.label), "change": shift.change.wording,
            "verdict": shift.change.verdict, "commit": history.commits[column][:8], "day": day(history.dates[column]),
        })  # fmt: skip
    return found


def find_gaps(history: History, nodes: Iterable[NodeCoverage]) -> list[Gaps]:
    """The machines on which something is missing or stale, those that are most commits behind first."""
    last = len(history.commits) - 1
    revision_of = {column: revision for revision, column in history.columns.items()}
    found = []
    for node in nodes:
        seen = sorted(history.columns_of(node.name))
        if not seen:
            continue
        behind, days = last - seen[-1], int((history.dates[last] - history.dates[seen[-1]]) / 86_400_000)
        stale = behind >= STALE_COMMITS or days >= STALE_DAYS
        since = revision_of[seen[-NEWEST_COMMITS:][0]]
        dropped = sum(
            line[-1].revision < since and any(outcome.status == "ok" for outcome in line)
            for benchmark in history.benchmarks
            for (_, machine), line in benchmark.lines.items()
            if machine == node.name and line
        )
        each = Gaps(node.name, node.anchor, behind, days, stale, dropped, node.total["failed"])
        if stale or dropped or each.failed:
            found.append(each)
    return sorted(found, key=lambda each: (-each.behind, -each.failed, -each.dropped, each.name))
