"""asv's result files, written from Records, so that asv's pages, `asv show` and `asv compare` have every value.

A projection is never read as truth: it is written after a run or a merge, and again wherever it is missing or older
than the Records. Benchmarks of a plain asv suite have no Records; their rows stay as asv wrote them.
"""

from __future__ import annotations

import ast
import itertools
import json
import math
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hpml_plugins.errors import HpmlError
from hpml_plugins.model.record import Record
from hpml_plugins.store.declarations import DECLARATIONS, MAX_POINTS
from hpml_plugins.store.files import atomic_write, read_object, read_object_or_empty
from hpml_plugins.store.records import RECORDS, read_file, record_files

MACHINE = "machine.json"
#: asv's columns of a result file of format 2, in its order.
COLUMNS = (
    "result", "params", "version", "started_at", "duration", "stats_ci_99_a", "stats_ci_99_b", "stats_q_25",
    "stats_q_75", "stats_number", "stats_repeat", "samples", "profile",
)  # fmt: skip
FORMAT = 2

#: asv's name of a metric's benchmark → its row of a result file.
Rows = dict[str, list[Any]]


class _Entry(msgspec.Struct, frozen=True):
    """What the projection needs of a declared benchmark. params: the values of each parameter, as Python's repr."""

    version: str
    param_names: list[str]
    params: list[list[str]]


def asv_name(benchmark: str, metric: str) -> str:
    """asv's name of a metric of a benchmark."""
    return f"{benchmark}.track_{metric}"


def project(results: Path, *, machine: str = "*", repository: Path | None = None, force: bool = False) -> list[Path]:
    """Write asv's result files that are missing or older than their Records; returns those whose content changed.

    machine: only this one's.  repository: to ask for the dates of commits; where results/ is, when left out.
    force: compare every file with its Records, whatever its age.
    """
    declared = _declared_benchmarks(results)
    written = []
    for source in record_files(results):
        if machine in ("*", source.parent.parent.name) and (force or _is_stale(source)):
            by_target: dict[tuple[str, str], list[Record]] = {}
            for record in read_file(source):
                if record.commit:  # `hpml run --record` measures no commit
                    by_target.setdefault((record.commit, record.environment), []).append(record)
            for (commit, environment), records in by_target.items():
                target = source.parent.parent / f"{commit[:8]}-{environment}.json"
                if _write(target, records, declared, repository or results):
                    written.append(target)
    return written


def _is_stale(source: Path) -> bool:
    """Whether a file of Records has a commit whose result file is missing or older."""
    targets = list(source.parent.parent.glob(f"{source.stem}-*.json"))
    changed = source.stat().st_mtime_ns
    return source.stem != "uncommitted" and (not targets or any(path.stat().st_mtime_ns < changed for path in targets))


def _write(target: Path, records: Sequence[Record], declared: Mapping[str, _Entry], repository: Path) -> bool:
    """Write one result file. Returns whether its content changed; its time is brought up to date in any case."""
    before = read_object_or_empty(target)
    kept = before if is_result_file(before) else {}
    rows = project_rows(records, declared)
    ours = {record.benchmark for record in records}
    theirs = {
        name: row for name, row in (kept.get("results") or {}).items() if name.partition(".track_")[0] not in ours
    }
    content = {
        **_head(target, records, kept, repository),
        "result_columns": list(COLUMNS),
        "results": dict(sorted({**theirs, **rows}.items())),
        "durations": kept.get("durations", {}),
        "version": FORMAT,
    }
    text = json.dumps(content)
    if target.is_file() and not target.is_symlink() and text == json.dumps(before):
        target.touch()
        return False
    if target.is_symlink():
        target.unlink()
    atomic_write(target, text.encode())
    return True


def project_rows(records: Iterable[Record], declared: Mapping[str, _Entry]) -> Rows:
    """asv's rows for the Records of one machine, commit and environment.

    Of several Records of a point the measured one that was started last counts; a point without any is failed (None)
    or skipped (NaN). asv's columns of spread (`ci_99` and the quartiles, which it prints behind ±) hold our interval,
    `MetricSamples.estimate`, so that all pages and commands show the same one.
    """
    by_benchmark: dict[str, list[Record]] = {}
    for record in records:
        by_benchmark.setdefault(record.benchmark, []).append(record)
    rows: Rows = {}
    for benchmark, found in by_benchmark.items():
        rows |= _rows_of_benchmark(benchmark, found, declared)
    return rows


def _rows_of_benchmark(benchmark: str, records: Sequence[Record], declared: Mapping[str, _Entry]) -> Rows:
    points = _points_of_one_version(records, declared.get(benchmark))
    metrics = list(dict.fromkeys(name for record in points.values() for name in record.metrics))
    if not metrics:
        return {}
    entry = declared.get(benchmark)
    version = next(iter(points.values())).version
    names, params = _grid(list(points.values()), entry if entry and entry.version == version else None)
    if math.prod(map(len, params)) > MAX_POINTS:
        return {}
    place = {values: number for number, values in enumerate(itertools.product(*params))}
    at = {place[tuple(repr(record.params[name]) for name in names)]: record for record in points.values()}
    started = max(record.started for record in points.values())
    duration = math.fsum(record.duration for record in points.values())
    rows = {}
    for number, metric in enumerate(metrics):
        # The time that a benchmark took is that of its first metric, or asv's sum would count it for each.
        spent = round(duration, 3) if number == 0 else None
        columns = _values(metric, [at.get(each) for each in range(len(place))])
        row = [columns[0], params, version, round(started * 1000), spent, *columns[1:]]
        while row and row[-1] is None:
            row.pop()
        rows[asv_name(benchmark, metric)] = row
    return rows


def _points_of_one_version(records: Sequence[Record], entry: _Entry | None) -> dict[str, Record]:
    """Point → its Record: of the declared version if there are any, else of the one measured last."""
    measured = [record for record in records if record.status == "ok"] or list(records)
    versions = {record.version for record in measured}
    version = entry.version if entry and entry.version in versions else max(measured, key=lambda r: r.started).version
    points: dict[str, Record] = {}
    for record in sorted(records, key=lambda record: (record.status == "ok", record.started)):
        if record.version == version:
            points[record.point] = record
    return points


def _grid(records: Sequence[Record], entry: _Entry | None) -> tuple[list[str], list[list[str]]]:
    """Names and values of the parameters: those declared, and those that Records have besides, in the order met."""
    own = list(records[0].params)
    declared = entry if entry and set(entry.param_names) == set(own) else None
    names = declared.param_names if declared else own
    values = {name: list(declared.params[at]) if declared else [] for at, name in enumerate(names)}
    for record in records:
        for name in names:
            if (spelling := repr(record.params[name])) not in values[name]:
                values[name].append(spelling)
    if not declared:
        values = {name: sorted(found, key=_sort_key) for name, found in values.items()}
    return names, [values[name] for name in names]


def _sort_key(spelling: str) -> tuple[int, float, str]:
    value = ast.literal_eval(spelling)
    return (0, float(value), spelling) if isinstance(value, int | float) else (1, 0.0, spelling)


def _values(metric: str, records: Sequence[Record | None]) -> list[Any]:
    """The columns of one metric: results, then asv's statistics; None for a column without any number."""
    results: list[float | None] = []
    low: list[float | None] = []
    high: list[float | None] = []
    counts: list[int | None] = []
    for record in records:
        samples = record.metrics.get(metric) if record else None
        if samples is None:
            results.append(None if record and record.status == "failed" else math.nan)
            estimate = None
        else:
            estimate = samples.estimate
            results.append(estimate.value)
        known = estimate is not None and estimate.low is not None
        low.append(estimate.low if known and estimate else None)
        high.append(estimate.high if known and estimate else None)
        counts.append(estimate.count if known and estimate else None)
    ones = [count and 1 for count in counts]
    columns: list[Any] = [results, low, high, low, high, ones, counts]
    return [None if column is None or all(each is None for each in column) else column for column in columns]


def _head(target: Path, records: Sequence[Record], kept: Mapping[str, Any], repository: Path) -> dict[str, Any]:
    """The file's own facts: as asv wrote them; else from machine.json and the Records."""
    newest = max(records, key=lambda record: record.started)
    python = str(newest.node.get("python", "")).rpartition(".")[0]
    machine = read_object_or_empty(target.parent / MACHINE)
    facts = {key: value for key, value in machine.items() if key != "version"} or {"machine": target.parent.name}
    return {
        "commit_hash": newest.commit,
        "env_name": newest.environment,
        "date": kept.get("date") or _commit_date(newest.commit, repository) or round(newest.started * 1000),
        "params": kept.get("params") or {**facts, "python": python},
        "python": kept.get("python") or python,
        "requirements": kept.get("requirements", {}),
        "env_vars": kept.get("env_vars", {}),
    }


def _commit_date(commit: str, repository: Path) -> int:
    """When it was committed, ms since 1970; 0 where git does not know."""
    command = ["git", "show", "-s", "--format=%ct", commit, "--"]
    try:
        done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=True)
        return int(done.stdout.split()[0]) * 1000
    except (OSError, subprocess.CalledProcessError, ValueError, IndexError):
        return 0


def _declared_benchmarks(results: Path) -> dict[str, _Entry]:
    """Our benchmarks of benchmarks.json by name: the metrics of one share their grid."""
    found = {}
    for entry in read_object_or_empty(results / DECLARATIONS).values():
        if isinstance(entry, dict) and isinstance(entry.get("benchmark"), str):
            try:
                found[entry["benchmark"]] = msgspec.convert(entry, _Entry)
            except msgspec.ValidationError:
                continue
    return found


def measured_here(machine: Path, result_file: str) -> set[str]:
    """The benchmarks that have Records at the commit of a result file. machine: the machine's folder."""
    return {record.benchmark for record in read_file(machine / RECORDS / f"{result_file[:8]}.jsonl")}


def join_results(
    measured: set[str], ours: Mapping[str, Any], theirs: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Two result files of one machine, commit and environment: of each benchmark the row that was started last.

    measured: benchmarks with Records, whose rows `project` writes; ours stay as they are.  Raises HpmlError for what is
    no result file, and for files of different commits or environments.
    """
    for each in (ours, theirs):
        if each and not is_result_file(each):
            raise HpmlError("not an asv result file")
    if not ours:
        return dict(theirs), []
    for key in ("commit_hash", "env_name", "result_columns"):
        if ours[key] != theirs[key]:
            raise HpmlError(f"{key} is {theirs[key]!r}, but {ours[key]!r} in the file to join it with")
    at = COLUMNS.index("started_at")

    def rank(row: list[Any]) -> tuple[float, str]:
        started = row[at] if len(row) > at and isinstance(row[at], int | float) else 0
        return started, json.dumps(row)

    rows = dict(ours["results"])
    for name, row in theirs["results"].items():
        if name not in rows or name.partition(".track_")[0] not in measured:
            rows[name] = max(rows.get(name, row), row, key=rank)
    head = max((ours, theirs), key=lambda each: json.dumps({key: each[key] for key in each if key != "results"}))
    return {**head, "results": dict(sorted(rows.items()))}, []


def is_result_file(found: Mapping[str, Any]) -> bool:
    results, columns = found.get("results"), found.get("result_columns")
    return (
        all(isinstance(found.get(key), str) for key in ("commit_hash", "env_name"))
        and isinstance(found.get("params"), dict)
        and isinstance(columns, list)
        and all(isinstance(column, str) for column in columns)
        and isinstance(results, dict)
        and all(_is_row(row, columns) for row in results.values())
    )


def _is_row(row: Any, columns: list[str]) -> bool:
    """Whether asv can take means of a row's values; text among them would end `asv publish`."""
    if not isinstance(row, list):
        return False
    values = dict(zip(columns, row, strict=False)).get("result")
    return values is None or (isinstance(values, list) and {*map(type, values)} <= {float, int, bool, type(None)})


def count_missing(results: Path) -> tuple[int, int]:
    """How many metric values of the measured points that Records hold are missing from asv's files, and of how many.

    A point's value is that of `project_rows`; a later Record of the same point at the same commit replaces it.
    """
    declared = _declared_benchmarks(results)
    total = missing = 0
    for source in record_files(results):
        groups: dict[tuple[str, str], list[Record]] = {}
        for record in read_file(source):
            if record.commit:
                groups.setdefault((record.commit, record.environment), []).append(record)
        for (commit, environment), records in groups.items():
            target = source.parent.parent / f"{commit[:8]}-{environment}.json"
            try:
                found = read_object(target)["results"]
            except HpmlError:
                found = {}
            for record in records:
                if record.status != "ok":
                    continue
                entry = declared.get(record.benchmark)
                for metric, samples in record.metrics.items():
                    total += 1
                    row = found.get(asv_name(record.benchmark, metric))
                    missing += not (row and _holds(row, record, entry, samples.estimate.value, records))
    return missing, total


def _holds(row: list[Any], record: Record, entry: _Entry | None, value: float, records: Sequence[Record]) -> bool:
    """Whether a row has this Record's value, or that of the same point measured later."""
    names = entry.param_names if entry and set(entry.param_names) == set(record.params) else list(record.params)
    try:
        place = 0
        for name, values in zip(names, row[1], strict=True):
            place = place * len(values) + values.index(repr(record.params[name]))
        found = row[0][place]
    except (ValueError, IndexError, TypeError):
        return False
    same = [each for each in records if each.point == record.point and each.status == "ok" and each is not record]
    later = [each for each in same if each.started >= record.started]
    return bool(row[2] == record.version and (found == value or (later and found is not None)))
