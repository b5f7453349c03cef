"""asv's result files, generated from Records, so that asv's pages, `asv show` and `asv compare`
have every value.

A projection is never read back as data: it is written after a run or a merge, and again if it is
missing or older than the Records. Benchmarks of a plain asv suite have no Records; their rows are
kept as asv wrote them.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from hpml_plugins.errors import HpmlError, Unwritable, describe
from hpml_plugins.git import GitRefused, ask_git
from hpml_plugins.model.formatting import counted
from hpml_plugins.model.record import Estimate, Record
from hpml_plugins.store.asv_results import is_result_file, rows_without
from hpml_plugins.store.declarations import (
    DECLARATIONS,
    MAX_POINTS,
    VERSION_KEY,
    Declaration,
    asv_name,
    keep_declared,
    sorted_values,
    valid_declarations,
)
from hpml_plugins.store.files import (
    OnDamage,
    atomic_write,
    format_json,
    path_in,
    read_object_or_empty,
)
from hpml_plugins.store.index import Index
from hpml_plugins.store.locks import lock_declarations
from hpml_plugins.store.records import RECORDS, UNCOMMITTED, read_file, record_files
from hpml_plugins.terminal import warn

MACHINE = "machine.json"
#: asv's columns of a result file of format 2, in its order.
COLUMNS = (
    "result",
    "params",
    "version",
    "started_at",
    "duration",
    "stats_ci_99_a",
    "stats_ci_99_b",
    "stats_q_25",
    "stats_q_75",
    "stats_number",
    "stats_repeat",
    "samples",
    "profile",
)
FORMAT = 2
#: The longest environment name that asv uses in file names; longer ones are replaced by their
#: MD5.
_LONGEST_ENVIRONMENT = 127
#: Exceptions that unexpected data may raise. Unwritable and GitRefused are not caused by data.
_FAULTS = (HpmlError, ValueError, TypeError, LookupError, ArithmeticError)

#: asv's name of a metric's benchmark → its row of a result file.
Rows = dict[str, list[Any]]


def project(
    results: Path, *, machine: str = "*", force: bool = False, on_damage: OnDamage = warn
) -> list[Path]:
    """Write asv's result files that are missing or older than their Records; returns those whose
    content changed.

    machine: limit to this one.  force: compare every file with its Records, whatever its age.
    on_damage: receives a line for each Record that asv's files have to omit; the rest is written.
    Raises Unwritable, GitRefused and OSError.
    """
    declared = _declared_benchmarks(results)
    written = []
    files = itertools.groupby(record_files(results), key=lambda path: path.parent.parent)
    for folder, sources in files:
        if machine not in ("*", folder.name):
            continue
        known = _times_of_results(folder)
        for source in [each for each in sources if force or _is_stale(each, known)]:
            for target, records in _by_result_file(source, on_damage).items():
                if _write_what_can_be(target, records, declared, on_damage):
                    written.append(target)
    return written


def _by_result_file(source: Path, on_damage: OnDamage = warn) -> dict[Path, list[Record]]:
    """asv's result file of a commit and environment → the Records from which it is written."""
    found: dict[Path, list[Record]] = {}
    # lines that are not Records are reported by the code that shows the rest
    for record in read_file(source):
        if not record.commit:  # `hpml run --record` has no commit
            continue
        try:
            target = result_file(source.parent.parent, record.commit, record.environment)
        except HpmlError as error:
            on_damage(f"{source}: {error}; not in asv's files")
        else:
            found.setdefault(target, []).append(record)
    return found


def result_file(machine: Path, commit: str, environment: str) -> Path:
    """The path of asv's results for a machine, commit and environment, in the machine's folder.

    Raises HpmlError if that would not be a file in this folder.
    """
    if len(environment) > _LONGEST_ENVIRONMENT:  # as in asv's `results.get_filename`
        environment = (
            f"env-{hashlib.md5(environment.encode(), usedforsecurity=False).hexdigest()}"
        )
    return path_in(machine, f"{commit[:8]}-{environment}.json")


def _write_what_can_be(
    target: Path,
    records: Sequence[Record],
    declared: Mapping[str, Declaration],
    on_damage: OnDamage,
) -> bool:
    """Write a result file without the Records that cannot be written, which are reported."""
    try:
        return _write(target, records, declared, on_damage)
    except (Unwritable, GitRefused):
        raise
    except _FAULTS:
        sound = [
            record for record in records if _is_sound(record, declared, on_damage, target)
        ]
    if len(sound) == len(records):  # each could be written alone
        on_damage(
            f"{target}: {counted(len(records), 'Record')} cannot be written together; the file is"
            " as it was"
        )
        return False
    return _write_what_can_be(target, sound, declared, on_damage) if sound else False


def _is_sound(
    record: Record, declared: Mapping[str, Declaration], on_damage: OnDamage, target: Path
) -> bool:
    """Whether a Record alone can be written into asv's files; the reason if not is passed to
    `on_damage`."""
    try:
        json.dumps(project_rows([record], declared, on_damage))
    except _FAULTS as error:
        about = f"the Record of {record.benchmark} {dict(record.params)}"
        on_damage(f"{target}: {about} is left out: {describe(error)}")
        return False
    return True


def _times_of_results(machine: Path) -> dict[str, list[int]]:
    """The abbreviated hash of a commit → when its result files were written, ns."""
    found: dict[str, list[int]] = {}
    for path in machine.glob("*-*.json"):
        commit, _, _ = path.name.partition("-")
        found.setdefault(commit, []).append(path.lstat().st_mtime_ns)
    return found


def _is_stale(source: Path, written: Mapping[str, Sequence[int]]) -> bool:
    """Whether a file of Records has a commit whose result file is missing or older.  written: see
    `_times_of_results`."""
    if source.stem == UNCOMMITTED:
        return False
    times = written.get(source.stem)
    return not times or min(times) < source.lstat().st_mtime_ns


def _write(
    target: Path,
    records: Sequence[Record],
    declared: Mapping[str, Declaration],
    on_damage: OnDamage,
) -> bool:
    """Write one result file. Returns whether its content changed; its time stamp is always
    updated."""
    before = read_object_or_empty(target)
    kept = before if is_result_file(before) else {}
    rows = project_rows(records, declared, lambda line: on_damage(f"{target}: {line}"))
    ours = {record.benchmark for record in records}
    theirs = rows_without(kept.get("results") or {}, ours)
    content = {
        **_head(target, records, kept),
        "result_columns": list(COLUMNS),
        "results": dict(sorted({**theirs, **rows}.items())),
        "durations": kept.get("durations", {}),
        "version": FORMAT,
    }
    text = json.dumps(content)
    if text == json.dumps(before):
        target.touch()
        return False
    atomic_write(target, text.encode())
    return True


def project_rows(
    records: Iterable[Record],
    declared: Mapping[str, Declaration],
    on_damage: OnDamage,
) -> Rows:
    """asv's rows for the Records of one machine, commit and environment.

    Of several Records of a point one counts, see `Index`; a point without a measured one is failed
    (None) or skipped (NaN). asv's columns of spread (`ci_99` and the quartiles, which it prints
    after ±) contain our interval, `MetricSamples.estimate`, so that all pages and commands show the
    same one.
    """
    by_benchmark: dict[str, list[Record]] = {}
    for record in records:
        by_benchmark.setdefault(record.benchmark, []).append(record)
    rows: Rows = {}
    for benchmark, found in by_benchmark.items():
        rows |= _rows_of_benchmark(benchmark, found, declared.get(benchmark), on_damage)
    return rows


def _rows_of_benchmark(
    benchmark: str,
    records: Sequence[Record],
    declared: Declaration | None,
    on_damage: OnDamage,
) -> Rows:
    same_version = _points_of_one_version(records, declared)
    points = _points_of_one_grid(same_version, declared)
    if odd := len(same_version) - len(points):
        on_damage(
            f"{counted(odd, 'Record')} of {benchmark} with other parameters than the rest; left out"
        )
    metrics = list(dict.fromkeys(name for record in points for name in record.metrics))
    if not metrics:
        return {}
    names, params = _grid(points, declared)
    if (size := math.prod(map(len, params))) > MAX_POINTS:
        on_damage(
            f"the grid of {benchmark} has {size:.3g} points, and asv's files hold {MAX_POINTS:,};"
            " left out"
        )
        return {}
    at = {}
    for record in points:
        values = tuple(repr(record.params[name]) for name in names)
        at[values] = record
    in_order = [at.get(values) for values in itertools.product(*params)]
    started = max(record.started for record in points)
    duration = math.fsum(record.duration for record in points)
    rows = {}
    for number, metric in enumerate(metrics):
        # The duration is only assigned to the first metric, because asv adds up all metrics.
        spent = round(duration, 3) if number == 0 else None
        results, *statistics = _values(metric, in_order)
        row = [
            results,
            params,
            points[0].version,
            round(started * 1000),
            spent,
            *statistics,
        ]
        while row and row[-1] is None:
            row.pop()
        rows[asv_name(benchmark, metric)] = row
    return rows


def _points_of_one_version(
    records: Sequence[Record], declared: Declaration | None
) -> list[Record]:
    """The Record of each point: of the declared version if there are any, else of the one measured
    last."""
    ordered = sorted(records, key=lambda record: (record.status == "ok", record.started))
    versions = [record.version for record in ordered if record.status == "ok"] or [
        ordered[-1].version
    ]
    version = (
        declared.version if declared and declared.version in versions else versions[-1]
    )
    index = Index[str, Record]({})
    for record in ordered:
        if record.version == version:
            index.add(record.point, record)
    return list(filter(None, map(index.newest, index)))


def _points_of_one_grid(
    records: Sequence[Record], declared: Declaration | None
) -> list[Record]:
    """The Records with the same parameters: the declared ones if any Record has them, else those of
    most Records.

    asv's table of a benchmark has one set of parameters. All valid Records of one version have the
    same.
    """
    grids = [frozenset(record.params) for record in records]
    chosen = frozenset(declared.param_names) if declared else None
    if chosen not in grids:
        (chosen, _), *_ = Counter(sorted(grids, key=sorted)).most_common(1)
    return [record for record in records if record.params.keys() == chosen]


def _grid(
    records: Sequence[Record], declared: Declaration | None
) -> tuple[list[str], list[list[str]]]:
    """Names and values of the parameters: the declared ones, then others found in Records, in that
    order."""
    first = records[0]
    same = (
        declared
        and declared.version == first.version
        and set(declared.param_names) == set(first.params)
    )
    names = declared.param_names if declared and same else list(first.params)
    grid = []
    for number, name in enumerate(names):
        met = dict.fromkeys(repr(record.params[name]) for record in records)
        if declared and same:
            grid.append(list(dict.fromkeys([*declared.params[number], *met])))
        else:
            grid.append(sorted_values(met))
    return names, grid


def _values(metric: str, records: Sequence[Record | None]) -> list[Any]:
    """The columns of one metric: results, then asv's statistics; None for a column without any
    number."""
    results: list[float | None] = []
    bounded: list[Estimate | None] = []
    for record in records:
        if record and metric in record.metrics:
            found = record.metrics[metric].estimate
            results.append(found.value)
            bounded.append(found if found.low is not None else None)
        else:
            results.append(None if record and record.status == "failed" else math.nan)
            bounded.append(None)
    if not any(bounded):
        return [results, *[None] * 6]
    low = [each and each.low for each in bounded]
    high = [each and each.high for each in bounded]
    ones = [each and 1 for each in bounded]
    counts = [each and each.count for each in bounded]
    return [results, low, high, low, high, ones, counts]


def _head(
    target: Path, records: Sequence[Record], kept: Mapping[str, Any]
) -> dict[str, Any]:
    """The metadata of the file: as asv wrote it, else from machine.json and the Records."""
    newest = max(records, key=lambda record: record.started)
    python = str(newest.node.get("python", "")).rpartition(".")[0]
    machine = read_object_or_empty(target.parent / MACHINE)
    facts = {key: value for key, value in machine.items() if key != "version"} or {
        "machine": target.parent.name
    }
    return {
        "commit_hash": newest.commit,
        "env_name": newest.environment,
        "date": (
            kept.get("date")
            or _commit_date(newest.commit, target.parent)
            or round(newest.started * 1000)
        ),
        "params": kept.get("params") or {**facts, "python": python},
        "python": kept.get("python") or python,
        "requirements": kept.get("requirements", {}),
        "env_vars": kept.get("env_vars", {}),
    }


def _commit_date(commit: str, folder: Path) -> int:
    """The commit's date, ms since 1970; 0 if the folder's git repository lacks it."""
    found = ask_git(folder, "show", "-s", "--format=%ct", commit, "--").split()
    return int(found[0]) * 1000 if found and found[0].isdigit() else 0


def _declared_benchmarks(results: Path) -> dict[str, Declaration]:
    """The plugins' benchmarks of benchmarks.json by name: the metrics of one share their grid."""
    found = valid_declarations(read_object_or_empty(results / DECLARATIONS)).values()
    return {
        declaration.benchmark: declaration for declaration in found if declaration.benchmark
    }


def measured_here(machine: Path, named: str) -> set[str]:
    """The benchmarks that have Records at a commit. named: its hash, or the name of its result
    file.

    machine: the machine's folder.
    """
    return {
        record.benchmark
        for record in read_file(path_in(machine, RECORDS, f"{named[:8]}.jsonl"))
    }


def save_declarations(results: Path, declarations: Iterable[Declaration]) -> None:
    """Add declarations to benchmarks.json that are in no registry; existing ones are kept."""
    add_entries(results, {each.name: msgspec.to_builtins(each) for each in declarations})


def add_entries(results: Path, entries: Mapping[str, Any]) -> None:
    """Add entries of any origin to benchmarks.json; existing ones are kept."""
    path = results / DECLARATIONS
    with lock_declarations(results):
        joined = keep_declared({VERSION_KEY: FORMAT, **entries}, read_object_or_empty(path))
        atomic_write(path, format_json(joined))
