"""Reads all Records once, for every page of the site.

Of each Record only the few values that pages show are kept, and the position of its line: reading a
million Records takes seconds and some hundred MB. Only the current Record of a point is kept whole,
for the plugins' figures; downloads are read from the files.
"""

from __future__ import annotations

import bisect
import functools
import hashlib
import itertools
import math
import os
import sys
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import force_setattr, replace

from hpml_plugins.analysis.measured import MeasuredValue
from hpml_plugins.analysis.reference import BENCHMARK as REFERENCE
from hpml_plugins.analysis.reference import References
from hpml_plugins.analysis.variability import Place, fill_in_spreads, with_intervals
from hpml_plugins.errors import HpmlError
from hpml_plugins.host import Host
from hpml_plugins.model.benchmark import Params
from hpml_plugins.model.differences import unusual_conditions
from hpml_plugins.model.formatting import format_point_texts, unquoted
from hpml_plugins.model.record import Record, Status
from hpml_plugins.model.rounds import combine, group_rounds, join_rounds
from hpml_plugins.model.serialization import decode
from hpml_plugins.report.kept import READINGS, keep, kept_file, package_digest, read_kept
from hpml_plugins.report.shares import Roof
from hpml_plugins.store import (
    CommitOrder,
    Index,
    Standing,
    decode_file,
    describe_by_date,
    describe_outside,
    machine_folders,
    open_result,
    read_object_or_empty,
    record_files,
)
from hpml_plugins.store.asv_results import METRIC, Texts, import_results
from hpml_plugins.store.declarations import Declaration, read_declarations
from hpml_plugins.store.records import MAX_RECORDS, collector_paused

#: asv's name → its declaration in benchmarks.json.
Declarations = Mapping[str, Declaration]


@dataclass(frozen=True, order=True)
class Hardware:
    """The meaning of a column of a page: a GPU type and number, or a CPU.

    kind: 0 a GPU, 1 no GPU, 2 unknown; the sort order of columns.  cpu: distinguished only if there
    is no GPU, because the CPU then does the computing.
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
        """The GPU's name, or the CPU's if there is no GPU."""
        return self.cpu if self.kind == 1 else self.gpu

    @property
    def is_gpu(self) -> bool:
        """Whether it is a GPU type."""
        return self.kind == 0

    @property
    def count(self) -> int:
        """The number of GPUs; 0 if there is none or it is unknown."""
        # a damaged file may contain anything
        known = self.is_gpu and self.num_gpu.isdecimal() and len(self.num_gpu) <= 6
        return int(self.num_gpu) if known else 0


def hardware_of(facts: Mapping[str, Any]) -> Hardware:
    """The hardware named in asv's machine facts (`gpu`, `num_gpu`, `cpu`)."""
    gpu, num_gpu, cpu = (
        "" if (value := facts.get(key)) is None else str(value).strip()
        for key in ("gpu", "num_gpu", "cpu")
    )
    if not gpu or gpu == "unknown":
        return Hardware(2, "unknown", num_gpu)
    return Hardware(1, gpu, "", cpu) if gpu == "none" else Hardware(0, gpu, num_gpu)


def _stored_hardware(record: Record) -> Hardware:
    """The hardware of a Record's node; unknown if the Record does not name it."""
    if "gpus" not in record.node:
        return hardware_of({})
    facts = {
        "gpu": record.gpu_type,
        "num_gpu": len(record.gpus) or "",
        "cpu": record.node.get("cpu"),
    }
    return hardware_of(facts)


@dataclass(frozen=True, order=True)
class Machine:
    """A machine with Records. facts: asv's machine.json."""

    hardware: Hardware
    name: str
    facts: Mapping[str, Any] = field(default_factory=dict, compare=False)


class Outcome(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The part of a Record that is kept, under the Record's own names where it is not summarised.

    point: see `Record.point`.  readings: of each metric with a finite median.  host: identifies a
    boot of a host, "" if unknown.  conditions: see `unusual_conditions`.  offsets: where the line
    of each round begins in the file.

    The last two are not cached, but filled in by the reader. file: "" for an imported result.
    revision: the position of its commit in the history, -1 for an unpublished commit.
    """

    machine: str
    benchmark: str
    version: str
    params: Params
    point: str
    status: Status
    started: float
    duration: float
    commit: str
    environment: str
    of_stack: bool
    reason: str
    warnings: tuple[str, ...]
    conditions: tuple[str, ...]
    readings: dict[str, MeasuredValue]
    host: str
    offsets: tuple[int, ...]
    file: str = ""
    revision: int = -1

    @property
    def card(self) -> str:
        """The cards that measured it, see `card_of`; "" without a number."""
        return next((each.card for each in self.readings.values()), "")

    @classmethod
    def of(cls, record: Record, offsets: tuple[int, ...] = ()) -> Outcome:
        """What is kept of a Record."""
        values = MeasuredValue.all_of(record) if record.status == "ok" else {}
        found = {name: each for name, each in values.items() if math.isfinite(each.value)}
        return cls(
            machine=record.machine,
            benchmark=record.benchmark,
            version=record.version,
            params=record.params,
            point=record.point,
            status=record.status,
            started=record.started,
            duration=record.duration,
            commit=record.commit,
            environment=record.environment,
            of_stack=record.of_stack,
            reason=record.reason,
            warnings=tuple(record.remarks),
            conditions=tuple(unusual_conditions(record)),
            readings=found,
            host=str(record.node.get("boot") or ""),
            offsets=offsets,
        )


#: msgpack, unlike JSON, has infinite numbers.
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[Outcome])


def encode_for_digest(value: object) -> bytes:
    """A value as bytes, which differ if anything in it differs."""
    try:
        return _ENCODER.encode(value)
    except (OverflowError, UnicodeEncodeError):  # a number of more than 64 bits
        return repr(value).encode(errors="backslashreplace")


@dataclass
class TrackedBenchmark:
    """A benchmark, of a plugin or of a plain asv project, with its points and their outcomes.

    name: asv's for a plain asv project.  plugin: empty for a plain asv project.  file: its absolute
    path in the registry, as `hpml preview` writes it; else empty.  version: Records of other
    versions do not count.  first_metric: the first of its metrics, as named in Records.
    needs_gpu: also true if unknown.  terms: see `Benchmark.terms`.  parameters: as declared.
    points: label (as `format_point` writes it), unique to a point → parameter → Python's repr, as
    asv writes it; first the declared points, in asv's order, then others that have Records.
    declared: the labels of the declared points.  index: what is stored of each place, (label,
    machine).  current: place → the whole Record that represents it.
    """

    name: str
    plugin: str
    heading: str
    version: str
    index: Index[tuple[str, str], Outcome]
    first_metric: str = ""
    description: str = ""
    needs_gpu: bool = True
    terms: Mapping[str, str] = field(default_factory=dict)
    parameters: Sequence[str] = ()
    points: dict[str, Texts] = field(default_factory=dict)
    declared: set[str] = field(default_factory=set)
    current: dict[tuple[str, str], tuple[Outcome, Record]] = field(default_factory=dict)
    file: str = ""
    _digests: dict[tuple[str, str], bytes] = field(default_factory=dict, repr=False)

    def in_order(self, record: Record) -> Record:
        """The Record with its parameters in the order of the current declaration."""
        known = {
            name: record.params[name] for name in self.parameters if name in record.params
        }
        ordered = known | record.params
        same = list(ordered) == list(record.params)
        return record if same else replace(record, params=ordered)

    def digest(self, place: tuple[str, str]) -> bytes:
        """A digest of what is kept of all Records of a place, in the order of the index."""
        if place not in self._digests:
            stored = encode_for_digest(self.index.stored(place))
            self._digests[place] = hashlib.sha256(stored).digest()
        return self._digests[place]

    def explain(self, label: str) -> dict[str, str]:
        """The terms of a point: parameter or `parameter=value` → its meaning."""
        texts = self.points[label].items() if self.terms else ()
        found = [
            term for name, text in texts for term in (name, f"{name}={unquoted(text)}")
        ]
        return {term: self.terms[term] for term in found if term in self.terms}


@dataclass(frozen=True)
class TrackedMetric:
    """One metric of one benchmark: a benchmark in asv, and a group of rows on a page.

    name: asv's.  metric: its name in Records.  direction: "lower", "higher", or "" if neither is
    better or it is unknown.
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
        return (
            f"{self.benchmark.heading} · {self.metric}" if ours else self.benchmark.heading
        )

    def line(
        self, label: str, machine: str, branch: str = ""
    ) -> list[tuple[Outcome, MeasuredValue | None]]:
        """The current outcome and value of each published commit, oldest first; the value is None
        if there is none.

        branch: one of the history's branches; "" for the first.
        """
        return [
            (outcome, outcome.readings.get(self.metric))
            for outcome in self._outcomes(label, machine, branch)
        ]

    def judged(
        self, label: str, machine: str, branch: str = ""
    ) -> list[tuple[Outcome, MeasuredValue | None]]:
        """The line without commits placed by date alone, if git has placed others: a date alone
        does not justify a verdict."""
        return self.judged_part(self.line(label, machine, branch), branch)

    def newest_first(
        self, label: str, machine: str, branch: str = ""
    ) -> Iterator[tuple[Outcome, MeasuredValue | None]]:
        """The judged part of the line, from its end, for those who need a few."""
        if self.benchmark.index.order.by_date:
            yield from reversed(self.judged(label, machine, branch))
            return
        for outcome in reversed(self._outcomes(label, machine, branch)):
            yield outcome, outcome.readings.get(self.metric)

    def at(
        self, revisions: Iterable[int], label: str, machine: str, branch: str = ""
    ) -> list[Outcome | None]:
        """The outcomes of the line at some revisions; None where there is none."""
        outcomes = self._outcomes(label, machine, branch)
        found: list[Outcome | None] = []
        for revision in revisions:
            place = bisect.bisect_left(outcomes, revision, key=attrgetter("revision"))
            exists = place < len(outcomes) and outcomes[place].revision == revision
            found.append(outcomes[place] if exists else None)
        return found

    def _outcomes(self, label: str, machine: str, branch: str) -> Sequence[Outcome]:
        return self.benchmark.index.lines(branch).get((label, machine), ())

    def judged_part(
        self, line: list[tuple[Outcome, MeasuredValue | None]], branch: str
    ) -> list[tuple[Outcome, MeasuredValue | None]]:
        """The part of a line that is `judged`."""
        if not line or not self.benchmark.index.order.by_date:
            return line
        standing = self.benchmark.index.standing
        placed = [
            each for each in line if standing(each[0], branch) is not Standing.BY_DATE
        ]
        return placed or line


@dataclass
class History:
    """Everything that was measured. commits: those with Records, oldest first, with their dates, ms
    since 1970.

    columns: asv's revision of a commit → its index in `commits`.  metrics: by asv's name.  last:
    machine → its last Record.  roofs: machine → its measured roof.  benchmarks: by name.  order: of
    all commits, with the lines of the branches; pages show the first.  outside: commit → the number
    of its Records on no line of that branch.  by_date: the same for commits placed by their date
    alone.  references: the visits that measured the reference.
    """

    machines: list[Machine] = field(default_factory=list)
    commits: list[str] = field(default_factory=list)
    dates: list[float] = field(default_factory=list)
    columns: dict[int, int] = field(default_factory=dict)
    metrics: dict[str, TrackedMetric] = field(default_factory=dict)
    last: dict[str, Record] = field(default_factory=dict)
    roofs: dict[str, Roof] = field(default_factory=dict, repr=False)
    benchmarks: list[TrackedBenchmark] = field(default_factory=list, repr=False)
    order: CommitOrder = field(default_factory=lambda: CommitOrder.of({}), repr=False)
    outside: Counter[str] = field(default_factory=Counter)
    by_date: Counter[str] = field(default_factory=Counter)
    references: References = field(default_factory=References, repr=False)

    @property
    def branches(self) -> list[str]:
        """The branches that have a line; "" for commits of no repository."""
        return list(self.order.lines)

    @property
    def types(self) -> dict[Hardware, tuple[str, ...]]:
        """The types of hardware in the order of pages, each with its machines."""
        found: dict[Hardware, tuple[str, ...]] = {}
        for machine in sorted(self.machines, key=attrgetter("hardware")):
            found[machine.hardware] = (*found.get(machine.hardware, ()), machine.name)
        return found

    @functools.cached_property
    def own(self) -> frozenset[int]:
        """The revisions on the line of the first branch."""
        return frozenset(
            self.order[each]
            for each in self.order.lines[self.order.branch] & self.order.keys()
        )

    def commit_of(self, revision: int) -> str:
        """The full hash of the commit of a published revision."""
        return self.commits[self.columns[revision]]

    def date_of(self, revision: int) -> float:
        """Its date, ms since 1970."""
        return self.dates[self.columns[revision]]

    def outside_of(self, benchmarks: Container[str]) -> Counter[str]:
        """The number of Records of these benchmarks outside the line of the first branch, by
        commit."""
        found = Counter[str]()
        for benchmark in self.benchmarks:
            for place in benchmark.index if benchmark.name in benchmarks else ():
                outside = benchmark.index.outside(place)
                found.update(each.commit for each in outside if each.status == "ok")
        return found

    @property
    def left_out(self) -> list[str]:
        """The Records on no line of any branch, or placed only by date, in words; empty if there
        are none."""
        drawn = set(self.commits)
        nowhere = {
            commit: count for commit, count in self.outside.items() if commit not in drawn
        }
        return self._describe_left_out(nowhere, " or ".join(self.branches))

    @property
    def left_out_of_first(self) -> list[str]:
        """The same for the line of the first branch alone."""
        return self._describe_left_out(self.outside, self.branches[0])

    def _describe_left_out(self, outside: Mapping[str, int], branches: str) -> list[str]:
        found = (describe_outside(outside, branches), describe_by_date(self.by_date))
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
        """The metrics with Records of a published commit, in the order of pages."""
        return [
            metric
            for metric in self.ordered
            if any(metric.benchmark.index.lines().values())
        ]

    @functools.cached_property
    def seen(self) -> dict[str, set[int]]:
        """Machine → the indices of the commits for which it has Records."""
        found: dict[str, set[int]] = {}
        for benchmark in self.benchmarks:
            for (_, machine), line in benchmark.index.lines().items():
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

    def of_every_card(self, benchmarks: Container[str]) -> list[Record]:
        """The newest measured Record of each point of these benchmarks on each card (without GPUs,
        on each host), oldest first on a machine, with the same intervals."""
        chosen = []
        for benchmark in self.benchmarks:
            for place in benchmark.current if benchmark.name in benchmarks else ():
                for outcome in _newest_of_cards(benchmark.index.on_line(place)):
                    record = benchmark.in_order(stored_record(outcome))
                    chosen.append(with_intervals(record, outcome.readings))
        return sorted(chosen, key=lambda record: (record.machine, record.benchmark))


def _newest_of_cards(outcomes: Iterable[Outcome]) -> Iterable[Outcome]:
    """outcomes: of one point on one machine, in ascending order of rank."""
    newest: dict[str, Outcome] = {}
    for outcome in outcomes:
        if outcome.file and outcome.status == "ok":
            card = next((value.card for value in outcome.readings.values()), "")
            newest.pop(card, None)
            newest[card] = outcome
    return newest.values()


def stored_lines(outcomes: Iterable[Outcome]) -> Iterator[bytes]:
    """The stored lines of the rounds of these Records, without line breaks, in this order."""
    for path, of_file in itertools.groupby(outcomes, key=attrgetter("file")):
        with open_result(Path(path), MAX_RECORDS) as file:
            for offset in itertools.chain.from_iterable(each.offsets for each in of_file):
                file.seek(offset)
                yield file.readline().rstrip(b"\n")


def stored_record(outcome: Outcome) -> Record:
    """The whole Record."""
    (record,) = join_rounds(stored_rounds(outcome))
    return record


def stored_rounds(outcome: Outcome) -> list[Record]:
    """The Record of each of its rounds."""
    return list(map(decode, stored_lines([outcome])))


def _tracked_metrics(
    host: Host | None, declarations: Declarations, order: CommitOrder
) -> dict[str, TrackedMetric]:
    """asv's name → metric: those that the loaded plugins declare, and others in asv's
    benchmarks.json.

    An entry of a loaded plugin in that file counts only if the plugin still declares the benchmark.
    """
    if host:
        loaded = {plugin.entry.name for plugin in host.plugins if not plugin.error}
    else:
        loaded = set()
    declared = {each.name: each for each in (host.benchmarks() if host else ())}
    entries = {entry.name: entry for each in declared.values() for entry in each.entries()}
    for name, entry in declarations.items():
        if not (entry.is_ours and entry.plugin in loaded):
            entries.setdefault(name, entry)
    found: dict[str, TrackedMetric] = {}
    benchmarks: dict[str, TrackedBenchmark] = {}
    for name, entry in entries.items():
        title = entry.benchmark if entry.is_ours else name
        metric = entry.metric if entry.is_ours else METRIC
        if title not in benchmarks:
            heading = title if entry.is_ours else entry.pretty_name or name
            known = declared.get(title) if entry.is_ours else None
            more = (known.description, known.needs_gpu, known.terms) if known else ()
            points = {format_point_texts(texts): texts for texts in entry.points()}
            benchmarks[title] = TrackedBenchmark(
                title, entry.plugin, heading, entry.version, Index(order), metric, *more
            )
            if known and Path(known.plugin.path or "").is_absolute():
                benchmarks[title].file = str(known.plugin.path)
            benchmarks[title].parameters = entry.param_names
            benchmarks[title].points.update(points)
            benchmarks[title].declared.update(points)
        direction = entry.better or ""
        found[name] = TrackedMetric(
            name, benchmarks[title], metric, entry.symbol, direction
        )
    return found


def read_history(
    results: Path,
    host: Host | None,
    declarations: Mapping[str, Any],
    revisions: Mapping[str, int],
    dates: Mapping[str, float],
    on_damage: Callable[[str], None],
    *,
    keeps: bool = False,
) -> History:
    """Read all Records as one history.

    revisions: the order of commits, see `store.commit_order`; with a plain mapping, commit → place,
    all commits are on one line. Records without a commit, or with an unplaced one, count as the
    oldest and are on no line; those outside the line of the first branch are kept separately.
    host: the plugins, or None.  declarations: benchmarks.json; see `_tracked_metrics` for its
    precedence. Records of other benchmarks and versions are ignored. Results of foreign benchmarks
    are imported.  dates: of the commits, ms since 1970.  keeps: whether to cache what was read of a
    file in the user's cache.
    """
    order = CommitOrder.of(revisions)
    known = read_declarations(declarations)
    metrics = _tracked_metrics(host, known, order)
    benchmarks: dict[str, TrackedBenchmark] = {}
    directions = {}
    for metric in metrics.values():
        benchmarks[metric.benchmark.name] = metric.benchmark
        directions[metric.benchmark.name, metric.metric] = metric.direction or None
    references = References()
    newest: dict[str, Outcome] = {}
    for outcome, texts, record in read_stored(results, known, on_damage, keeps):
        force_setattr(outcome, "revision", order.get(outcome.commit, -1))
        if outcome.benchmark == REFERENCE:
            references.add(record or stored_record(outcome))
        latest = newest.get(outcome.machine, outcome)
        if outcome.file and outcome.started >= latest.started:
            newest[outcome.machine] = outcome
        benchmark = benchmarks.get(outcome.benchmark)
        if benchmark and outcome.version == benchmark.version:
            _declare_directions(outcome, benchmark, directions)
            _add(benchmark, texts, outcome)
    last = {machine: stored_record(outcome) for machine, outcome in newest.items()}
    for benchmark in benchmarks.values():
        _read_current(benchmark)
    fill_in_spreads(_points(benchmarks.values()), references)
    published: set[str] = set()
    current: dict[str, list[Record]] = {}
    by_date = Counter[str]()
    outside = Counter[str]()
    for benchmark in benchmarks.values():
        index = benchmark.index
        published |= _published_commits(index)
        for place in index:
            current.setdefault(place[1], [])
            for each in index.on_line(place):
                by_date[each.commit] += each.commit in order.by_date
            outside.update(each.commit for each in index.outside(place))
        for _, record in benchmark.current.values():
            current[record.machine].append(record)
    commits = sorted(published, key=lambda commit: (order[commit], commit))
    return History(
        _machines(results, {**current, **last}, last),
        commits,
        [dates.get(commit, 0.0) for commit in commits],
        {order[commit]: column for column, commit in enumerate(commits)},
        metrics,
        last,
        {name: Roof(records) for name, records in current.items()},
        [benchmarks[name] for name in sorted(benchmarks)],
        order,
        outside,
        +by_date,
        references,
    )


def _published_commits(index: Index[tuple[str, str], Outcome]) -> set[str]:
    """The commits on the line of any branch."""
    found = set()
    for branch in index.branches:
        for outcomes in index.lines(branch).values():
            found |= {outcome.commit for outcome in outcomes}
    return found


def _add(benchmark: TrackedBenchmark, texts: Texts | None, outcome: Outcome) -> None:
    """Add what was read of a Record to its point.

    texts: the parameters as asv's file has them; None if they come from the Record.
    """
    texts = texts or {name: repr(value) for name, value in outcome.params.items()}
    label = format_point_texts(texts)
    benchmark.points.setdefault(label, texts)
    benchmark.index.add((label, outcome.machine), outcome)


def _read_current(benchmark: TrackedBenchmark) -> None:
    """Read the whole Record that represents each place, except for imported results."""
    for place in benchmark.index:
        of_place = reversed(benchmark.index.on_line(place))
        measured = (each for each in of_place if each.file and each.status == "ok")
        if outcome := next(measured, None):
            benchmark.current[place] = outcome, benchmark.in_order(stored_record(outcome))


def _declare_directions(
    outcome: Outcome,
    benchmark: TrackedBenchmark,
    directions: Mapping[tuple[str, str], str | None],
) -> None:
    """Replace the directions stored when it was measured by the declared ones."""
    for name, value in outcome.readings.items():
        value.direction = directions.get((benchmark.name, name), value.direction)
        if value.boosted:
            value.boosted.direction = value.direction


def read_stored(
    results: Path, declarations: Declarations, on_damage: Callable[[str], None], keeps: bool
) -> Iterator[tuple[Outcome, Texts | None, Record | None]]:
    """What is kept of each Record, with the whole Record if it was read. Imported results have no
    file, but the point as asv writes it."""
    params: dict[tuple[str, ...], Params] = {}
    with collector_paused():
        for path in record_files(results, on_damage):
            for outcome, record in _read_file(path, on_damage, keeps):
                force_setattr(outcome, "file", str(path))
                _share(outcome, params)
                yield outcome, None, record
    for record, texts in import_results(results, declarations):
        outcome = Outcome.of(record)
        _share(outcome, params)
        yield outcome, texts, record


def _read_file(
    path: Path, on_damage: Callable[[str], None], keeps: bool
) -> Iterator[tuple[Outcome, Record | None]]:
    """What is kept of a file's Records, from the cache if the contents are unchanged.

    For 20,000 Records of three rounds (0.9 GB) this takes 2.5 instead of 38 s of one CPU. A damaged
    file is read again, so that the damage is reported.
    """
    before, digest = _contents(path) if keeps else (None, "")
    cache = kept_file(digest, READINGS) if digest else None
    if cache and (made := read_kept(cache)):
        with suppress(msgspec.MsgspecError, UnicodeDecodeError):
            for outcome in _DECODER.decode(made):
                yield outcome, None
            return
    damage: list[str] = []
    found = []
    for rounds in group_rounds(decode_file(path, decode, damage.append)):
        record = combine([record for _, record in rounds])
        found.append((Outcome.of(record, tuple(offset for offset, _ in rounds)), record))
    for text in damage:
        on_damage(text)
    # readers modify the readings
    if cache and not damage and _contents(path) == (before, digest):
        with suppress(OverflowError):  # a parameter of more than 64 bits
            keep(cache, _ENCODER.encode([outcome for outcome, _ in found]))
    yield from found


def _contents(path: Path) -> tuple[tuple[int, int] | None, str]:
    """The size of a file, B, its modification time, ns, and a cache key of its contents; an empty
    key if it cannot be read."""
    try:
        with open_result(path, MAX_RECORDS) as file:
            found = hashlib.blake2b()
            for part in iter(lambda: file.read(1 << 20), b""):
                found.update(part)
            status = os.fstat(file.fileno())
    except (FileNotFoundError, HpmlError):
        return None, ""
    # a Record counts only in the folder of its machine and the file of its commit
    for part in (package_digest(), path.parent.parent.name.encode(), path.name.encode()):
        found.update(hashlib.sha256(part).digest())
    return (status.st_size, status.st_mtime_ns), found.hexdigest()


#: Texts of a reading and of an outcome that most Records share.
_TEXTS_OF_READING = ("code", "card", "hardware", "run")
_TEXTS_OF_OUTCOME = (
    "machine",
    "benchmark",
    "version",
    "point",
    "commit",
    "environment",
    "reason",
    "host",
)


def _share(outcome: Outcome, params: dict[tuple[str, ...], Params]) -> None:
    """Keep one copy of each text, of the start and of a point's parameters.  params: those of the
    Records before, which are extended.

    Modified in place, because nobody else uses it yet and there may be a million Records.
    """
    for name in _TEXTS_OF_OUTCOME:
        force_setattr(outcome, name, sys.intern(getattr(outcome, name)))
    for name in ("warnings", "conditions"):
        if texts := getattr(outcome, name):
            force_setattr(outcome, name, tuple(map(sys.intern, texts)))
    known = params.setdefault((outcome.point, *outcome.params), outcome.params)
    force_setattr(outcome, "params", known)
    readings = outcome.readings
    for metric in list(readings):
        reading = readings[sys.intern(metric)] = readings.pop(metric)
        for value in (reading, reading.boosted) if reading.boosted else (reading,):
            value.started = outcome.started
            for name in _TEXTS_OF_READING:
                setattr(value, name, sys.intern(getattr(value, name)))


def _points(
    benchmarks: Iterable[TrackedBenchmark],
) -> Iterator[tuple[Place, list[MeasuredValue]]]:
    """The readings of each metric of each point on each machine.

    The variation of a value is estimated from all of its runs, including those outside the line.
    """
    for benchmark in benchmarks:
        for place in benchmark.index:
            label, _ = place
            outcomes = benchmark.index.stored(place)
            for name in dict.fromkeys(
                name for outcome in outcomes for name in outcome.readings
            ):
                found = [
                    outcome.readings[name]
                    for outcome in outcomes
                    if name in outcome.readings
                ]
                yield Place(benchmark.name, label, name), found


def _machines(
    results: Path, names: Iterable[str], last: Mapping[str, Record]
) -> list[Machine]:
    """The machines in the order of pages."""
    stored = {
        folder.name: read_object_or_empty(folder / "machine.json")
        for folder in machine_folders(results)
    }
    found = []
    for name in names:
        facts = stored.get(name, {})
        is_described = "gpu" in facts or name not in last
        found.append(
            Machine(
                hardware_of(facts) if is_described else _stored_hardware(last[name]),
                name,
                facts,
            )
        )
    return sorted(found)
