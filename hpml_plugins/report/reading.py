"""One reading of all Records, from which every page of the site is made.

A line of the store is decoded into the few fields that pages need, and its numbers go into arrays: a million Records
take seconds and some hundred MB. Whoever needs a whole Record (plugins' figures, downloads) gets it from its file.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hpml_plugins.errors import describe
from hpml_plugins.host import Host
from hpml_plugins.model.formatting import format_point_texts
from hpml_plugins.model.record import MetricSamples, Record, Status, decode
from hpml_plugins.store import Damaged, read_object_or_empty, record_files
from hpml_plugins.store.asv_results import METRIC, direction_of, import_results, is_ours, unit_of
from hpml_plugins.store.projection import asv_name

#: asv's declarations, as benchmarks.json has them: asv's name → entry.
Declarations = Mapping[str, Mapping[str, Any]]

#: What one point of one commit came to. NOTHING: no Record.
NOTHING, SKIPPED, FAILED, OK = range(4)
STATUS: Mapping[Status, int] = {"skipped": SKIPPED, "failed": FAILED, "ok": OK}


@dataclass(frozen=True, order=True)
class Hardware:
    """What a column of a page stands for: a GPU type and how many, or a CPU.

    kind: 0 a GPU, 1 no GPU, 2 unknown; columns stand in this order.  cpu: told apart only where there is no GPU, for
    then the CPU is what computes.
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


def hardware_of(facts: Mapping[str, Any]) -> Hardware:
    """The hardware that asv's machine facts name (`gpu`, `num_gpu`, `cpu`)."""
    gpu, num_gpu, cpu = ("" if (value := facts.get(key)) is None else str(value).strip() for key in _FACTS)
    if not gpu or gpu == "unknown":
        return Hardware(2, "unknown", num_gpu)
    return Hardware(1, gpu, "", cpu) if gpu == "none" else Hardware(0, gpu, num_gpu)


_FACTS = ("gpu", "num_gpu", "cpu")


def _hardware_facts(record: Record) -> dict[str, str]:
    """The same facts as a Record's node has them; none where it does not tell."""
    if "gpus" not in record.node:
        return {}
    names = dict.fromkeys(str(gpu.get("name") or "unknown") for gpu in record.gpus)
    count = str(len(record.gpus)) if names else ""
    return {"gpu": " + ".join(names) or "none", "num_gpu": count, "cpu": str(record.node.get("cpu") or "")}


@dataclass(frozen=True, order=True)
class Machine:
    """A machine that has Records. facts: asv's machine.json."""

    hardware: Hardware
    name: str
    facts: Mapping[str, Any] = field(default_factory=dict, compare=False)


@dataclass
class Points:
    """The points of one benchmark: those declared, in asv's order, then others that Records have.

    labels: as `format_point` spells them.  texts: parameter → Python's repr, as asv spells it.  ids: each point's
    number among the points of all benchmarks.  version: of the benchmark; Records of others do not count.
    place: label → its index in these lists.
    """

    version: str
    labels: list[str] = field(default_factory=list)
    texts: list[dict[str, str]] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    place: dict[str, int] = field(default_factory=dict)

    def add(self, texts: dict[str, str], number: int) -> int:
        """The id of the point with these values; `number` becomes the id of a new one."""
        label = format_point_texts(texts)
        if label not in self.place:
            self.place[label] = len(self.labels)
            self.labels.append(label)
            self.texts.append(texts)
            self.ids.append(number)
        return self.ids[self.place[label]]


@dataclass(frozen=True)
class TrackedMetric:
    """One metric of one benchmark: a benchmark of asv's, and a group of rows on a page.

    name: asv's.  benchmark: ours; asv's name again where it is not ours.  metric, plugin: empty where it is not ours.
    direction: "lower", "higher", or "" where it is not known.  points: shared by all metrics of the benchmark.
    """

    name: str
    benchmark: str
    metric: str
    plugin: str
    unit: str
    direction: str
    heading: str
    points: Points = field(compare=False, repr=False)

    @property
    def title(self) -> str:
        """`vector_add · time`."""
        return f"{self.heading} · {self.metric}" if self.metric else self.heading

    @property
    def order(self) -> tuple[str, str, str]:
        """How groups are sorted."""
        return self.benchmark, self.metric, self.name


@dataclass
class Lines:
    """The numbers of one metric. values, low, high, status, started: machine × commit × point.

    values: NaN where there is none.  low, high: the interval of `MetricSamples.estimate`, NaN where there is none.
    started: Unix time, s.
    """

    values: np.ndarray
    low: np.ndarray
    high: np.ndarray
    status: np.ndarray
    started: np.ndarray


@dataclass(frozen=True)
class Outcome:
    """The current state of a point on a machine: by its newest commit, measured before skipped and failed."""

    status: Status
    reason: str
    warnings: tuple[str, ...]


@dataclass
class History:
    """Everything that was measured. commits: oldest first, with their dates, ms since 1970, and asv's revisions.

    lines: by asv's name, of the metrics that have Records.  outcomes: (machine, benchmark, point's label) → outcome.
    last: machine → its last Record.
    """

    machines: list[Machine] = field(default_factory=list)
    commits: list[str] = field(default_factory=list)
    dates: list[float] = field(default_factory=list)
    revisions: list[int] = field(default_factory=list)
    metrics: dict[str, TrackedMetric] = field(default_factory=dict)
    lines: dict[str, Lines] = field(default_factory=dict)
    outcomes: dict[tuple[str, str, str], Outcome] = field(default_factory=dict)
    last: dict[str, Record] = field(default_factory=dict)
    store: RecordIndex | None = None

    def hardware(self) -> list[Hardware]:
        """All hardware, in the order of columns."""
        return sorted({machine.hardware for machine in self.machines})


@dataclass
class RecordIndex:
    """Where the Records lie. table: a row a Record, columns: see _COLUMNS.  files: what `file` counts."""

    files: list[Path]
    table: np.ndarray
    points: list[tuple[str, str]]  # (benchmark, label) by the id of a point
    machines: list[str]

    def raw(self, rows: np.ndarray) -> dict[int, bytes]:
        """The lines of these rows as they are stored; imported results have none."""
        chosen = self.table[rows]
        found: dict[int, bytes] = {}
        order = np.lexsort((chosen[:, _OFFSET], chosen[:, _FILE]))
        for number, group in itertools.groupby(order.tolist(), key=lambda at: int(chosen[at, _FILE])):
            if number < 0:
                continue
            with self.files[number].open("rb") as file:
                for at in group:
                    file.seek(int(chosen[at, _OFFSET]))
                    found[int(rows[at])] = file.read(int(chosen[at, _LENGTH]))
        return found

    def current(self) -> list[Record]:
        """The Records that `store.current_records` would choose, without decoding the others."""
        measured = np.flatnonzero(self.table[:, _STATUS] == OK)
        rows = np.sort(self.newest(measured, self.table[measured, _COMMIT], self.table[measured, _STARTED]))
        records = [record for line in self.raw(rows).values() if (record := _decode(line))]
        return sorted(records, key=lambda record: (record.machine, record.benchmark))

    def newest(self, rows: np.ndarray, *rank: np.ndarray) -> np.ndarray:
        """Of these rows the last one of each machine and point, by the first of these ranks, then by the others."""
        order = rows[np.lexsort(rank[::-1])][::-1]
        keys = self.table[order, _MACHINE] * len(self.points) + self.table[order, _POINT]
        return order[np.unique(keys, return_index=True)[1]]

    def by_point(self, most: int) -> Iterator[tuple[tuple[str, str], list[bytes], int]]:
        """(benchmark, label), the newest lines of each point, oldest first, and how many Records it has in all."""
        stored = np.flatnonzero(self.table[:, _FILE] >= 0)
        order = stored[np.lexsort((self.table[stored, _STARTED], self.table[stored, _POINT]))].tolist()
        groups = [(p, list(rows)) for p, rows in itertools.groupby(order, key=lambda row: int(self.table[row, _POINT]))]
        lines = self.raw(np.array([row for _, rows in groups for row in rows[-most:]], int))
        for point, rows in groups:
            yield self.points[point], [lines[row] for row in rows[-most:]], len(rows)


_COLUMNS = 8
_MACHINE, _COMMIT, _POINT, _STATUS, _STARTED, _FILE, _OFFSET, _LENGTH = range(_COLUMNS)


def _decode(line: bytes) -> Record | None:
    try:
        return decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None  # the few fields that pages read are sound


def tracked_metrics(host: Host | None, declarations: Declarations) -> dict[str, TrackedMetric]:
    """asv's name → metric: what the loaded plugins declare, and what else asv's benchmarks.json has.

    An entry there of a plugin that loads here counts only where the plugin still declares the benchmark.
    """
    numbers = itertools.count()
    found: dict[str, TrackedMetric] = {}
    loaded = {plugin.entry.name for plugin in host.plugins if not plugin.error} if host else set()
    for benchmark in host.benchmarks() if host else ():
        grid = {name: [repr(value) for value in values] for name, values in benchmark.grid.items()}
        points = _declared_points(benchmark.version, grid, numbers)
        for metric in benchmark.metrics:
            name, where = asv_name(benchmark.name, metric.name), (benchmark.plugin.name, metric.unit, metric.direction)
            found[name] = TrackedMetric(name, benchmark.name, metric.name, *where, benchmark.name, points)
    shared: dict[str, Points] = {}
    for name, entry in declarations.items():
        ours = is_ours(entry)
        if name in found or (ours and entry.get("plugin") in loaded):
            continue
        title, metric_name = (str(entry["benchmark"]), str(entry["metric"])) if ours else (name, "")
        names = map(str, entry.get("param_names") or [])
        grid = {key: list(map(str, values)) for key, values in zip(names, entry.get("params") or [], strict=False)}
        if title not in shared:
            shared[title] = _declared_points(str(entry.get("version")), grid, numbers)
        plugin_name, direction = str(entry.get("plugin") or ""), direction_of(entry) or ""
        heading = title if ours else str(entry.get("pretty_name") or name)
        found[name] = TrackedMetric(
            name, title, metric_name, plugin_name, unit_of(entry), direction, heading, shared[title]
        )
    return found


def _declared_points(version: str, grid: Mapping[str, Sequence[str]], numbers: Iterator[int]) -> Points:
    points = Points(version)
    for values in itertools.product(*grid.values()):
        points.add(dict(zip(grid, values, strict=True)), next(numbers))
    return points


class _Line(msgspec.Struct, gc=False):
    """What is read of every Record."""

    benchmark: str
    version: str
    params: msgspec.Raw
    status: Status
    reason: str = ""
    metrics: dict[str, MetricSamples] = {}
    warnings: list[str] = []
    started: float = 0.0
    machine: str = ""
    commit: str = ""


_LINES = msgspec.json.Decoder(_Line)
_PARAMS = msgspec.json.Decoder(dict[str, str | int | float | bool])


@dataclass
class _Benchmark:
    """A benchmark while Records are read. metrics: name → its number.  known: params as they are stored → id."""

    points: Points
    metrics: dict[str, int] = field(default_factory=dict)
    known: dict[bytes, int] = field(default_factory=dict)


class _Reader:
    """Takes Records in, one after the other."""

    def __init__(self, metrics: Mapping[str, TrackedMetric], revisions: Mapping[str, int]) -> None:
        self.metrics = list(metrics.values())
        self.revisions = revisions
        self.benchmarks: dict[str, _Benchmark] = {}
        for place, metric in enumerate(self.metrics):
            made = self.benchmarks.setdefault(metric.benchmark, _Benchmark(metric.points))
            made.metrics[metric.metric or METRIC] = place
        self.count = 1 + max((number for each in self.benchmarks.values() for number in each.points.ids), default=-1)
        self.machines: dict[str, int] = {}
        self.records = array("d")  # rows of _COLUMNS
        self.values = array("d")  # record, metric, value, low, high
        self.remarks: dict[int, tuple[str, tuple[str, ...]]] = {}
        self.last: dict[str, tuple[float, int, int, int]] = {}
        self.files: list[Path] = []
        self._texts: dict[str, str] = {}

    def read(self, path: Path, on_damage: Callable[[Damaged], None]) -> None:
        """Take in a file of Records. The last line of a file that is being written is not yet one."""
        content = path.read_bytes()
        number, offset = len(self.files), 0
        self.files.append(path)
        lines = content.split(b"\n")
        unfinished = lines.pop()
        for place, line in enumerate(lines, 1):
            if line.strip():
                try:
                    self.take(_LINES.decode(line), number, offset, len(line))
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError) as error:
                    on_damage(Damaged(path, place, describe(error)))
            offset += len(line) + 1
        if unfinished.strip():
            on_damage(Damaged(path, len(lines) + 1, "no line break at its end"))

    def take(self, line: _Line, file: int, offset: int, length: int) -> None:
        """Take in one Record."""
        started = line.started
        if file >= 0 and started >= self.last.get(line.machine, (-np.inf,))[0]:
            self.last[line.machine] = started, file, offset, length
        benchmark = self.benchmarks.get(line.benchmark)
        if benchmark is None or line.version != benchmark.points.version:
            return
        encoded = bytes(line.params)
        point = benchmark.known.get(encoded)
        if point is None:
            point = benchmark.known[encoded] = self._point(benchmark.points, encoded)
        machine = self.machines.setdefault(line.machine, len(self.machines))
        row = len(self.records) // _COLUMNS
        revision = self.revisions.get(line.commit, -1)
        status = STATUS[line.status]
        self.records.extend((machine, revision, point, status, started, file, offset, length))
        if status == OK:
            for name, metric in line.metrics.items():
                place = benchmark.metrics.get(name)
                if place is not None:
                    found = metric.estimate
                    low = np.nan if found.low is None else found.low
                    high = np.nan if found.high is None else found.high
                    self.values.extend((row, place, found.value, low, high))
        if line.reason or line.warnings:
            known = self._texts
            self.remarks[row] = (
                known.setdefault(line.reason, line.reason),
                tuple(known.setdefault(each, each) for each in line.warnings),
            )

    def _point(self, points: Points, encoded: bytes) -> int:
        params = _PARAMS.decode(encoded)
        point = points.add({name: repr(value) for name, value in params.items()}, self.count)
        self.count += point == self.count
        return point


def read_history(
    results: Path,
    metrics: Mapping[str, TrackedMetric],
    declarations: Declarations,
    revisions: Mapping[str, int],
    dates: Mapping[str, float],
    on_damage: Callable[[Damaged], None],
) -> History:
    """All Records as one history.

    revisions: commit → its place in history; Records of other commits, or of none, are the oldest and in no line of
    the history.  metrics: see `tracked_metrics`; Records of other versions do not count.  declarations: asv's; results
    of benchmarks that are not ours are imported.  dates: of the commits, ms since 1970.
    """
    reader = _Reader(metrics, revisions)
    for path in record_files(results):
        reader.read(path, on_damage)
    for record in import_results(results, declarations):
        reader.take(_imported(record), -1, 0, 0)
    return _history(reader, results, revisions, dates)


def _imported(record: Record) -> _Line:
    return _Line(
        record.benchmark, record.version, msgspec.Raw(msgspec.json.encode(record.params)), record.status,
        record.reason, record.metrics, record.warnings, record.started, record.machine, record.commit,
    )  # fmt: skip


def _history(reader: _Reader, results: Path, revisions: Mapping[str, int], dates: Mapping[str, float]) -> History:
    table = np.frombuffer(reader.records).reshape(-1, _COLUMNS).copy()
    measured = table[:, _COMMIT] >= 0
    kept = sorted(set(table[measured, _COMMIT].astype(int).tolist()))
    by_revision = {revision: commit for commit, revision in revisions.items()}
    commits = [by_revision[revision] for revision in kept]
    last = {name: record for name, (_, *at) in reader.last.items() if (record := _read_record(reader.files, *at))}
    machines = _machines(results, {**reader.machines, **reader.last}, last)
    place = {machine.name: place for place, machine in enumerate(machines)}
    table[:, _MACHINE] = np.array([place[name] for name in reader.machines], float)[table[:, _MACHINE].astype(int)]
    index = RecordIndex(reader.files, table, _point_names(reader), [machine.name for machine in machines])
    metrics = {metric.name: metric for metric in reader.metrics}
    dated = [dates.get(commit, 0.0) for commit in commits]
    history = History(machines, commits, dated, kept, metrics, last=last, store=index)
    history.lines = dict(_lines(reader, table, measured, history))
    history.outcomes = dict(_outcomes(reader, index))
    return history


def _read_record(files: Sequence[Path], file: int, offset: int, length: int) -> Record | None:
    with files[file].open("rb") as opened:
        opened.seek(offset)
        return _decode(opened.read(length))


def _machines(results: Path, names: Iterable[str], last: Mapping[str, Record]) -> list[Machine]:
    """The machines in the order of pages."""
    stored = {path.parent.name: read_object_or_empty(path) for path in results.glob("*/machine.json")}
    found = []
    for name in names:
        facts = stored.get(name, {})
        hardware = hardware_of(facts if "gpu" in facts or name not in last else _hardware_facts(last[name]))
        found.append(Machine(hardware, name, facts))
    return sorted(found)


def _point_names(reader: _Reader) -> list[tuple[str, str]]:
    names = [("", "")] * reader.count
    for benchmark, each in reader.benchmarks.items():
        for number, label in zip(each.points.ids, each.points.labels, strict=True):
            names[number] = benchmark, label
    return names


def _lines(reader: _Reader, table: np.ndarray, measured: np.ndarray, history: History) -> Iterator[tuple[str, Lines]]:
    """Each metric's arrays. Of several Records of a point at a commit the measured one started last counts."""
    if not history.commits:
        return
    rows = np.flatnonzero(measured)
    rows = rows[np.lexsort((table[rows, _STARTED], table[rows, _STATUS] == OK))]
    column = np.searchsorted(history.revisions, table[:, _COMMIT])
    at = np.stack([table[:, _MACHINE], column, table[:, _POINT]]).astype(np.int64)
    chosen = np.full((len(history.machines), len(history.commits), reader.count), -1, np.int64)
    chosen[tuple(at[:, rows])] = rows  # of one place the last row stays
    status = np.where(chosen >= 0, table[chosen, _STATUS], NOTHING).astype(np.uint8)
    started = np.where(chosen >= 0, table[chosen, _STARTED], np.nan)
    values = np.frombuffer(reader.values).reshape(-1, 5)
    of = values[:, 0].astype(np.int64)
    counts = measured[of] & (chosen[tuple(at[:, of])] == of) & np.isfinite(values[:, 2])
    values, of = values[counts], of[counts]
    order = np.argsort(values[:, 1], kind="stable")
    bounds = np.searchsorted(values[order, 1], np.arange(len(reader.metrics) + 1))
    for number, metric in enumerate(reader.metrics):
        ids = metric.points.ids
        if not (of_metric := status[:, :, ids]).any():
            continue
        mine = order[bounds[number] : bounds[number + 1]]
        local = np.zeros(reader.count, np.int64)
        local[ids] = np.arange(len(ids))
        where = at[0, of[mine]], at[1, of[mine]], local[at[2, of[mine]]]
        numbers = np.full((3, *of_metric.shape), np.nan)
        for each, source in zip(numbers, (2, 3, 4), strict=True):
            each[where] = values[mine, source]
        # A Record that was measured and lacks this metric, or has an infinite one, has no number of it.
        of_metric = np.where((of_metric == OK) & np.isnan(numbers[0]), SKIPPED, of_metric)
        yield metric.name, Lines(numbers[0], numbers[1], numbers[2], of_metric, started[:, :, ids])


def _outcomes(reader: _Reader, index: RecordIndex) -> Iterator[tuple[tuple[str, str, str], Outcome]]:
    table = index.table
    everything = np.arange(len(table))
    status_of: dict[int, Status] = {code: status for status, code in STATUS.items()}
    for row in index.newest(everything, table[:, _COMMIT], table[:, _STATUS] == OK, table[:, _STARTED]).tolist():
        machine, point = index.machines[int(table[row, _MACHINE])], index.points[int(table[row, _POINT])]
        yield (machine, *point), Outcome(status_of[int(table[row, _STATUS])], *reader.remarks.get(row, ("", ())))
