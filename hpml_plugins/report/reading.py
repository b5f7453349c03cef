"""One reading of all Records, from which every page of the site is made.

Of each Record the few values that pages show are kept, and where its line is: a million Records
take seconds and some hundred MB. Only the current Record of a point is kept whole, for plugins'
figures; downloads come from the files.
"""

from __future__ import annotations

import functools
import itertools
import math
import sys
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from hpml_plugins.analysis.measured import MeasuredValue
from hpml_plugins.analysis.reference import References
from hpml_plugins.analysis.variability import Place, fill_in_spreads, with_intervals
from hpml_plugins.host import Host
from hpml_plugins.model.formatting import format_point, format_point_texts, unquoted
from hpml_plugins.model.record import Record, Status
from hpml_plugins.model.roof import Roof
from hpml_plugins.model.rounds import combine, group_rounds, join_rounds
from hpml_plugins.model.serialization import decode
from hpml_plugins.store import (
    CommitOrder,
    Line,
    Standing,
    decode_file,
    describe_by_date,
    describe_outside,
    machine_folders,
    open_result,
    read_object_or_empty,
    record_files,
)
from hpml_plugins.store.asv_results import METRIC, direction_of, import_results, is_ours, unit_of
from hpml_plugins.store.projection import asv_name
from hpml_plugins.store.records import MAX_RECORDS

#: asv's declarations, as benchmarks.json has them: asv's name → entry.
Declarations = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, order=True)
class Hardware:
    """What a column of a page stands for: a GPU type and how many, or a CPU.

    kind: 0 a GPU, 1 no GPU, 2 unknown; columns stand in this order.  cpu: told apart only where
    there is no GPU, for then the CPU is what computes.
    """

    kind: int
    gpu: str
    num_gpu: str
    cpu: str = ""

    @property
    def label(self) -> str:
        """`NVIDIA H200 ×2`, `no GPU (CPU name)` or `unknown`."""
        if self.kind == 1:
            return f"no GPU ({self.cpu or 'unknown CPU'})"
        return f"{self.gpu} ×{self.num_gpu}" if self.num_gpu else self.gpu

    @property
    def name(self) -> str:
        """The GPU's name, or the CPU's where there is no GPU."""
        return self.cpu if self.kind == 1 else self.gpu

    @property
    def count(self) -> int:
        """How many GPUs; 0 where there is none or the number is not known."""
        # a damaged file may say any
        known = self.kind == 0 and self.num_gpu.isdecimal() and len(self.num_gpu) <= 6
        return int(self.num_gpu) if known else 0


def hardware_of(facts: Mapping[str, Any]) -> Hardware:
    """The hardware that asv's machine facts name (`gpu`, `num_gpu`, `cpu`)."""
    gpu, num_gpu, cpu = (
        "" if (value := facts.get(key)) is None else str(value).strip()
        for key in ("gpu", "num_gpu", "cpu")
    )
    if not gpu or gpu == "unknown":
        return Hardware(2, "unknown", num_gpu)
    return Hardware(1, gpu, "", cpu) if gpu == "none" else Hardware(0, gpu, num_gpu)


def _stored_hardware(record: Record) -> Hardware:
    """The same as a Record's node has it; unknown where it does not tell."""
    if "gpus" not in record.node:
        return hardware_of({})
    names = dict.fromkeys(str(gpu.get("name") or "unknown") for gpu in record.gpus)
    count = len(record.gpus) if names else ""
    return hardware_of(
        {"gpu": " + ".join(names) or "none", "num_gpu": count, "cpu": record.node.get("cpu")}
    )


@dataclass(frozen=True, order=True)
class Machine:
    """A machine that has Records. facts: asv's machine.json."""

    hardware: Hardware
    name: str
    facts: Mapping[str, Any] = field(default_factory=dict, compare=False)


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """What pages keep of a Record.

    revision: its commit's place in history, -1 where the commit is not published.  started: Unix
    time, s.  readings: of each metric whose median is finite.  file, offsets: where the line of
    each round begins; no file for an imported result.  code: SHA-256 of the plugin's files, empty
    where it is not known.  environment: the Record's. duration: s, of all rounds.  commit: in full,
    "" for none.  standing: of the commit, to the line of the branch that pages are about.
    of_stack: whether it was measured with other packages than the node's own.
    """

    revision: int
    status: Status
    started: float
    reason: str
    warnings: tuple[str, ...]
    readings: dict[str, MeasuredValue]
    file: str
    offsets: tuple[int, ...]
    code: str = ""
    environment: str = ""
    duration: float = 0.0
    commit: str = ""
    standing: Standing = Standing.OWN
    of_stack: bool = False

    @property
    def rank(self) -> tuple[bool, Standing, int, bool, float]:
        """Of several the highest counts.

        With the node's own packages, of a commit of the branch's line before others, of the newest
        commit, measured before skipped and failed, started last.
        """
        return not self.of_stack, self.standing, self.revision, self.status == "ok", self.started


@dataclass
class TrackedBenchmark:
    """A benchmark, ours or of a plain asv project: its points, and what became of them.

    name: asv's where it is not ours.  plugin: empty where it is not ours.  version: Records of
    others do not count. first_metric: asv's name of its first.  needs_gpu: true also where it is
    not known.  terms: see `Benchmark.terms`. points: label, as `format_point` spells it → parameter
    → Python's repr, as asv spells it; those declared, in asv's order, then others that Records
    have.  declared: the labels of the former.  outcomes: (label, machine) → every Record, ascending
    by rank, but for those outside the line of the first branch.  outside: likewise → those. lines:
    (label, machine) → the one that counts of each published commit of that line, oldest first.
    branches: the name of each further branch → its lines.
    current: (label, machine) → the stored Record of the highest rank that was measured, whole.
    """

    name: str
    plugin: str
    heading: str
    version: str
    first_metric: str = ""
    description: str = ""
    needs_gpu: bool = True
    terms: Mapping[str, str] = field(default_factory=dict)
    points: dict[str, dict[str, str]] = field(default_factory=dict)
    declared: set[str] = field(default_factory=set)
    outcomes: dict[tuple[str, str], list[Outcome]] = field(default_factory=dict)
    outside: dict[tuple[str, str], list[Outcome]] = field(default_factory=dict)
    lines: dict[tuple[str, str], list[Outcome]] = field(default_factory=dict)
    branches: dict[str, dict[tuple[str, str], list[Outcome]]] = field(default_factory=dict)
    current: dict[tuple[str, str], tuple[Outcome, Record]] = field(default_factory=dict)

    def stored(self, label: str, machine: str) -> list[Outcome]:
        """Every Record of a point on a machine, also those outside the line of the first branch."""
        place = label, machine
        return [*self.outcomes.get(place, ()), *self.outside.get(place, ())]

    def explain(self, label: str) -> dict[str, str]:
        """The terms of a point: parameter or `parameter=value` → what it means."""
        texts = self.points[label].items() if self.terms else ()
        found = [term for name, text in texts for term in (name, f"{name}={unquoted(text)}")]
        return {term: self.terms[term] for term in found if term in self.terms}


@dataclass(frozen=True)
class TrackedMetric:
    """One metric of one benchmark: a benchmark of asv's, and a group of rows on a page.

    name: asv's.  metric: its name in Records.  direction: "lower", "higher", or "" where neither is
    better or it is not known.
    """

    name: str
    benchmark: TrackedBenchmark = field(repr=False)
    metric: str
    unit: str
    direction: str

    @property
    def title(self) -> str:
        """`vector_add · time`."""
        ours = self.name != self.benchmark.name
        return f"{self.benchmark.heading} · {self.metric}" if ours else self.benchmark.heading

    def line(
        self, label: str, machine: str, branch: str = ""
    ) -> list[tuple[Outcome, MeasuredValue | None]]:
        """What counts of each published commit, oldest first, with the number; None where there is
        none.

        branch: one of `benchmark.branches`; "" for the first.
        """
        lines = self.benchmark.branches.get(branch, {}) if branch else self.benchmark.lines
        return [
            (outcome, outcome.readings.get(self.metric))
            for outcome in lines.get((label, machine), ())
        ]

    def judged(
        self, label: str, machine: str, branch: str = ""
    ) -> list[tuple[Outcome, MeasuredValue | None]]:
        """The line without what only dates place, where git has placed others: no verdict rests on
        a date alone."""
        line = self.line(label, machine, branch)
        placed = [each for each in line if each[0].standing is not Standing.BY_DATE]
        return placed or line


@dataclass
class History:
    """Everything that was measured. commits: those with Records, oldest first, with their dates, ms
    since 1970.

    columns: asv's revision of a commit → its place in `commits`.  metrics: by asv's name.  last:
    machine → its last Record.  roofs: machine → its measured roof.  benchmarks: by name.  branches:
    those whose lines there are, the one that pages are about first; "" for commits of no
    repository.  outside: commit → how many Records of it are on no line of that branch.  by_date:
    likewise of commits that are placed by their date alone.  own: the revisions that are on its
    line.
    """

    machines: list[Machine] = field(default_factory=list)
    commits: list[str] = field(default_factory=list)
    dates: list[float] = field(default_factory=list)
    columns: dict[int, int] = field(default_factory=dict)
    metrics: dict[str, TrackedMetric] = field(default_factory=dict)
    last: dict[str, Record] = field(default_factory=dict)
    roofs: dict[str, Roof] = field(default_factory=dict, repr=False)
    benchmarks: list[TrackedBenchmark] = field(default_factory=list, repr=False)
    branches: Sequence[str] = ("",)
    outside: Counter[str] = field(default_factory=Counter)
    by_date: Counter[str] = field(default_factory=Counter)
    own: Container[int] = frozenset()

    def outside_of(self, benchmarks: Container[str]) -> Counter[str]:
        """How many Records of these benchmarks are outside the line of the first branch: commit →
        Records."""
        return Counter(
            outcome.commit
            for benchmark in self.benchmarks
            if benchmark.name in benchmarks
            for outcomes in benchmark.outside.values()
            for outcome in outcomes
            if outcome.status == "ok"
        )

    @property
    def left_out(self) -> list[str]:
        """What is on no line of any branch, or only by its date, in words; empty where there is no
        such thing."""
        drawn = {
            outcome.commit
            for benchmark in self.benchmarks
            for lines in benchmark.branches.values()
            for line in lines.values()
            for outcome in line
        }
        nowhere = {commit: count for commit, count in self.outside.items() if commit not in drawn}
        found = [
            describe_outside(nowhere, " or ".join(self.branches)),
            describe_by_date(self.by_date),
        ]
        return [text for text in found if text]

    @property
    def left_out_of_first(self) -> list[str]:
        """The same of the line of the first branch alone."""
        found = [describe_outside(self.outside, self.branches[0]), describe_by_date(self.by_date)]
        return [text for text in found if text]

    @property
    def ordered(self) -> list[TrackedMetric]:
        """All metrics in the order of pages."""
        return sorted(
            self.metrics.values(),
            key=lambda metric: (metric.benchmark.name, metric.metric, metric.name),
        )

    @property
    def measured(self) -> list[TrackedMetric]:
        """The metrics of which a published commit has Records, in the order of pages."""
        return [metric for metric in self.ordered if any(metric.benchmark.lines.values())]

    @functools.cached_property
    def seen(self) -> dict[str, set[int]]:
        """Machine → the places of the commits of which it has Records."""
        found: dict[str, set[int]] = {}
        for benchmark in self.benchmarks:
            for (_, machine), line in benchmark.lines.items():
                found.setdefault(machine, set()).update(
                    self.columns[outcome.revision] for outcome in line
                )
        return found

    def current(self) -> list[Record]:
        """The Records that `store.current_records` would choose, with intervals for the next run on
        another card."""
        chosen = [
            with_intervals(record, outcome.readings)
            for benchmark in self.benchmarks
            for outcome, record in benchmark.current.values()
        ]
        return sorted(chosen, key=lambda record: (record.machine, record.benchmark))


def stored_lines(outcomes: Iterable[Outcome]) -> Iterator[bytes]:
    """The lines of the rounds of these Records as they are stored, without line breaks, in this
    order."""
    for outcome in outcomes:
        with open_result(Path(outcome.file), MAX_RECORDS) as file:
            for offset in outcome.offsets:
                file.seek(offset)
                yield file.readline().rstrip(b"\n")


def stored_record(outcome: Outcome) -> Record:
    """The whole Record."""
    (record,) = join_rounds(map(decode, stored_lines([outcome])))
    return record


def _tracked_metrics(host: Host | None, declarations: Declarations) -> dict[str, TrackedMetric]:
    """asv's name → metric: what the loaded plugins declare, and what else asv's benchmarks.json
    has.

    An entry there of a plugin that loads here counts only where the plugin still declares the
    benchmark.
    """
    loaded = {plugin.entry.name for plugin in host.plugins if not plugin.error} if host else set()
    declared = {each.name: each for each in (host.benchmarks() if host else ())}
    entries: dict[str, Mapping[str, Any]] = {
        asv_name(each.name, metric.name): {
            "benchmark": each.name,
            "metric": metric.name,
            "plugin": each.plugin.name,
            "version": each.version,
            "si_unit": metric.unit,
            "direction": metric.direction,
            "param_names": list(each.grid),
            "params": [[repr(value) for value in values] for values in each.grid.values()],
        }
        for each in declared.values()
        for metric in each.metrics
    }
    for name, entry in declarations.items():
        if not (is_ours(entry) and entry.get("plugin") in loaded):
            entries.setdefault(name, entry)
    found: dict[str, TrackedMetric] = {}
    benchmarks: dict[str, TrackedBenchmark] = {}
    for name, entry in entries.items():
        ours = is_ours(entry)
        title, metric_name = (
            (str(entry["benchmark"]), str(entry["metric"])) if ours else (name, METRIC)
        )
        if title not in benchmarks:
            heading = title if ours else str(entry.get("pretty_name") or name)
            plugin, version = str(entry.get("plugin") or ""), str(entry.get("version"))
            names = list(map(str, entry.get("param_names") or []))
            grid = [list(map(str, values)) for values in entry.get("params") or []]
            known = declared.get(title) if ours else None
            more = (known.description, known.needs_gpu, known.terms) if known else ()
            benchmarks[title] = TrackedBenchmark(title, plugin, heading, version, name, *more)
            for values in itertools.product(*grid):
                texts = dict(zip(names, values, strict=False))
                benchmarks[title].points.setdefault(format_point_texts(texts), texts)
            benchmarks[title].declared.update(benchmarks[title].points)
        found[name] = TrackedMetric(
            name, benchmarks[title], metric_name, unit_of(entry), direction_of(entry) or ""
        )
    return found


def read_history(
    results: Path,
    host: Host | None,
    declarations: Declarations,
    revisions: Mapping[str, int],
    dates: Mapping[str, float],
    on_damage: Callable[[str], None],
) -> History:
    """All Records as one history.

    revisions: the order of commits, see `store.commit_order`; of a plain mapping, commit → place,
    all commits are on one line. Records of no commit, or of one without a place, are the oldest and
    in no line of the history; those outside the line of the first branch are kept apart.
    host, declarations: see `_tracked_metrics`; Records of other benchmarks and versions do not
    count. Results of benchmarks that are not ours are imported.  dates: of the commits, ms since
    1970.
    """
    metrics = _tracked_metrics(host, declarations)
    benchmarks = {metric.benchmark.name: metric.benchmark for metric in metrics.values()}
    directions = {
        (metric.benchmark.name, metric.metric): metric.direction or None
        for metric in metrics.values()
    }
    last: dict[str, Record] = {}
    order = CommitOrder.of(revisions)
    references = References()
    for record, file, offsets in _stored(results, declarations, on_damage):
        references.add(record)
        standing = order.standing(record.commit)
        outcome = _outcome(record, order.get(record.commit, -1), standing, file, offsets)
        if file and (record.machine not in last or record.started >= last[record.machine].started):
            last[record.machine] = record
        benchmark = benchmarks.get(record.benchmark)
        if benchmark and record.version == benchmark.version:
            _declare_directions(outcome, benchmark, directions)
            _add(benchmark, outcome, record)
    for benchmark in benchmarks.values():
        _draw_lines(benchmark, order)
    fill_in_spreads(_points(benchmarks.values()), references)
    published = set(itertools.chain.from_iterable(map(_revisions, benchmarks.values())))
    commits = sorted(
        (revision, commit) for commit, revision in order.items() if revision in published
    )
    places = itertools.chain.from_iterable(
        (*each.outcomes, *each.outside) for each in benchmarks.values()
    )
    names = dict.fromkeys(machine for _, machine in places)
    current = [
        (place, record)
        for each in benchmarks.values()
        for place, (_, record) in each.current.items()
    ]
    stored = _count_records(each.outcomes for each in benchmarks.values())
    return History(
        _machines(results, {**names, **last}, last),
        [commit for _, commit in commits],
        [dates.get(commit, 0.0) for _, commit in commits],
        {revision: column for column, (revision, _) in enumerate(commits)},
        metrics,
        last,
        {name: Roof(record for place, record in current if place[1] == name) for name in names},
        [benchmarks[name] for name in sorted(benchmarks)],
        [line.branch for line in order.lines],
        _count_records(each.outside for each in benchmarks.values()),
        Counter({commit: count for commit, count in stored.items() if commit in order.by_date}),
        frozenset(order[commit] for commit in order.lines[0].own if commit in order),
    )


def _add(benchmark: TrackedBenchmark, outcome: Outcome, record: Record) -> None:
    """Keep what a Record gave among the others of its point, and the Record where it is the current
    one."""
    label = format_point(record.params)
    if label not in benchmark.points:
        benchmark.points[label] = {name: repr(value) for name, value in record.params.items()}
    place = label, record.machine
    if outcome.standing is Standing.OUTSIDE:
        benchmark.outside.setdefault(place, []).append(outcome)
        return
    benchmark.outcomes.setdefault(place, []).append(outcome)
    before = benchmark.current.get(place)
    if (
        outcome.file
        and record.status == "ok"
        and (before is None or outcome.rank >= before[0].rank)
    ):
        benchmark.current[place] = outcome, record


def _draw_lines(benchmark: TrackedBenchmark, order: CommitOrder) -> None:
    """Sort all that a benchmark gave, and choose what is on the line of each branch."""
    for outcomes in (*benchmark.outcomes.values(), *benchmark.outside.values()):
        outcomes.sort(key=lambda outcome: outcome.rank)
    benchmark.lines = {place: _line(outcomes) for place, outcomes in benchmark.outcomes.items()}
    benchmark.branches = {
        line.branch: _branch_lines(benchmark, order, line) for line in order.lines[1:]
    }


def _count_records(places: Iterable[Mapping[tuple[str, str], list[Outcome]]]) -> Counter[str]:
    """Commit → how many Records of it there are."""
    return Counter(
        outcome.commit for place in places for outcomes in place.values() for outcome in outcomes
    )


def _line(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """What counts of each published commit, oldest first.  outcomes: of one point on one machine,
    by rank."""
    ranked = list(outcomes)
    own = [each for each in ranked if not each.of_stack] or ranked
    of_commit = {outcome.revision: outcome for outcome in own if outcome.revision >= 0}
    return [of_commit[revision] for revision in sorted(of_commit)]


def _branch_lines(
    benchmark: TrackedBenchmark, order: CommitOrder, line: Line
) -> dict[tuple[str, str], list[Outcome]]:
    """The lines of another branch than the first, of the points that were measured at a commit of
    its own.

    A line has what both branches went through too, so that there is something to compare with.
    """
    found: dict[tuple[str, str], list[Outcome]] = {}
    for place, outside in benchmark.outside.items():
        stored = [*benchmark.outcomes.get(place, ()), *outside]
        own = [
            msgspec.structs.replace(each, standing=order.standing(each.commit, line))
            for each in stored
        ]
        own = sorted(
            (each for each in own if each.standing > Standing.UNPLACED), key=lambda each: each.rank
        )
        if any(
            each.standing is Standing.OWN
            for each in own
            if order.standing(each.commit) is Standing.OUTSIDE
        ):
            found[place] = _line(own)
    return found


def _revisions(benchmark: TrackedBenchmark) -> Iterator[int]:
    """The places of the commits of all lines of a benchmark."""
    for lines in (benchmark.lines, *benchmark.branches.values()):
        for line in lines.values():
            yield from (outcome.revision for outcome in line)


def _declare_directions(
    outcome: Outcome, benchmark: TrackedBenchmark, directions: Mapping[tuple[str, str], str | None]
) -> None:
    """What is declared counts, not what was when it was measured."""
    for name, value in outcome.readings.items():
        value.direction = directions.get((benchmark.name, name), value.direction)
        if value.boosted:
            value.boosted.direction = value.direction


def _stored(
    results: Path, declarations: Declarations, on_damage: Callable[[str], None]
) -> Iterator[tuple[Record, str, tuple[int, ...]]]:
    """Each Record, with the file and the offsets of the lines of its rounds; imported results have
    no file."""
    for path in record_files(results, on_damage):
        for rounds in group_rounds(decode_file(path, decode, on_damage)):
            yield (
                combine([record for _, record in rounds]),
                str(path),
                tuple(offset for offset, _ in rounds),
            )
    for record in import_results(results, declarations):
        yield record, "", ()


def _points(benchmarks: Iterable[TrackedBenchmark]) -> Iterator[tuple[Place, list[MeasuredValue]]]:
    """The readings of each metric of each point on each machine.

    How far a value moves is known from all of its runs, also from those outside the line.
    """
    for benchmark in benchmarks:
        for place in dict.fromkeys((*benchmark.outcomes, *benchmark.outside)):
            label = place[0]
            outcomes = [*benchmark.outcomes.get(place, ()), *benchmark.outside.get(place, ())]
            for name in dict.fromkeys(name for outcome in outcomes for name in outcome.readings):
                found = [outcome.readings[name] for outcome in outcomes if name in outcome.readings]
                yield Place(benchmark.name, label, name), found


def _outcome(
    record: Record, revision: int, standing: Standing, file: str, offsets: tuple[int, ...]
) -> Outcome:
    found = (
        {name: MeasuredValue.of(record, name) for name in record.metrics}
        if record.status == "ok"
        else {}
    )
    finite = {name: each for name, each in found.items() if math.isfinite(each.value)}
    # Texts come again in most Records of a benchmark: one copy of each is kept.
    reason, warnings = sys.intern(record.reason), tuple(map(sys.intern, record.warnings))
    code, stack = sys.intern(record.source.get("sha256", "")), sys.intern(record.environment)
    first = revision, record.status, record.started, reason, warnings, finite, file, offsets
    commit = sys.intern(record.commit)
    return Outcome(*first, code, stack, record.duration, commit, standing, record.of_stack)


def _machines(results: Path, names: Iterable[str], last: Mapping[str, Record]) -> list[Machine]:
    """The machines in the order of pages."""
    stored = {
        folder.name: read_object_or_empty(folder / "machine.json")
        for folder in machine_folders(results)
    }
    found = []
    for name in names:
        facts = stored.get(name, {})
        told = "gpu" in facts or name not in last
        found.append(
            Machine(hardware_of(facts) if told else _stored_hardware(last[name]), name, facts)
        )
    return sorted(found)
