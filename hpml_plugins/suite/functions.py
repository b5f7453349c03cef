"""The generated asv benchmarks, one `track_` function for each metric, and the Record that each of them reads."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from hpml_plugins.errors import DefinitionError, HpmlError, Unwritable
from hpml_plugins.host import Declared, Offers, load_plugin, load_sources
from hpml_plugins.isolation import end_with_parent
from hpml_plugins.measure import Context, SamplingPlan, import_before_fork, measure_point, shared
from hpml_plugins.model.benchmark import Benchmark, Metric, Params
from hpml_plugins.model.record import Record, Status, decode, encode, point_key
from hpml_plugins.model.units import unit
from hpml_plugins.node import data_used
from hpml_plugins.store import append_record, read_file, record_file
from hpml_plugins.suite.declaration import Suite, load_suite

#: asv formats these two by itself and leaves "unit" away; anything else it shows as a number and the unit's text.
_ASV_UNITS = {"s": "seconds", "B": "bytes", "1": "unit"}
#: What asv waits beyond a benchmark's own timeout, s: ours must end the point first, to say why.
GRACE = 30.0
#: In a run's temporary folder: why a Record could not be stored, for asv's own process, which then ends.
UNWRITABLE = "unwritable"

TrackFunction = Callable[..., Any]


def track_functions(root: Path) -> dict[str, TrackFunction]:
    """Name in the module → function, for every metric of every declared benchmark. root: the project's folder."""
    suite = load_suite(root)
    if sys.argv[1:2] == ["run_server"]:
        import_before_fork(shared(module for declared in suite.benchmarks for module in declared.modules))
    functions = [_function(suite, declared, metric) for declared in suite.benchmarks for metric in declared.metrics]
    return {f"track_{number}": function for number, function in enumerate(functions)}


def _function(suite: Suite, declared: Declared, metric: Metric) -> TrackFunction:
    def track(*values: Any) -> Any:
        end_with_parent()  # of asv's fork server, which forked this process
        params = dict(zip(declared.grid, values, strict=True))
        try:
            record = record_of(suite, declared, params)
        except Unwritable as error:
            _fail(str(error))
        return to_asv(record, metric.name)

    name = f"{declared.benchmark}.track_{metric.name}"
    attributes = {
        "__name__": f"track_{metric.name}",
        "benchmark_name": name,
        "unit": _ASV_UNITS.get(metric.unit, str(unit(metric.unit))),
        "version": declared.version,
        "timeout": declared.timeout + GRACE,
        # asv shows this as the benchmark's code, and would otherwise read the source of the generated function
        "pretty_source": f"# plugin {declared.plugin.name}\n# {declared.description}".rstrip("# "),
        "plugin": declared.plugin.name,
        "benchmark": declared.benchmark,
        "metric": metric.name,
        "direction": metric.direction,
        "si_unit": metric.unit,
    }
    if declared.grid:
        attributes["params"] = list(declared.grid.values())
        attributes["param_names"] = list(declared.grid)
    for key, value in attributes.items():
        setattr(track, key, value)
    return track


def to_asv(record: Record | None, metric: str) -> Any:
    """A metric of a Record as asv wants it: samples, so that its median and interval are real; NaN for skipped.

    A failed point ends this process with status 1 and its reason, which is how asv records a failure.
    """
    if record is None:
        return math.nan
    if record.status == "skipped":
        print(f"skipped: {record.reason}", file=sys.stderr)
        return math.nan
    if record.status == "failed":
        _fail(record.reason)  # what it printed is in the Record
    samples = record.metrics[metric].samples
    # asv's interval of a single sample is infinite: a count that was counted once is a plain number
    return samples[0] if len(samples) == 1 else {"samples": samples, "number": 1}


def _fail(reason: str) -> NoReturn:
    print(f"failed: {reason}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)  # an exception would put asv_runner's traceback in front of the reason


@dataclass(frozen=True)
class _Run:
    """The part of a run that one process sees: the suite, and the commit and environment that asv's variables name."""

    suite: Suite
    commit: str = ""
    environment: str = ""

    @classmethod
    def of(cls, suite: Suite) -> _Run:
        return cls(suite, os.environ.get("ASV_COMMIT", ""), os.environ.get("ASV_ENV_NAME", ""))

    @property
    def scratch(self) -> Path:
        """The run's temporary folder for this commit and environment."""
        return Path(self.suite.scratch, self.commit or "here", self.environment or "here")

    @property
    def record_file(self) -> Path:
        """Where Records of this commit are stored."""
        return record_file(self.suite.results, self.suite.machine, self.commit)


def record_of(suite: Suite, declared: Declared, params: Params) -> Record | None:
    """The Record of this point in this run; measured now if no metric asked before. None: never measured.

    A point outside the run's profile is not measured: its newest stored Record is given instead, so that a quick run
    does not wipe what a full one found. With --skip-existing a stored Record of this commit is given too: asv saves
    its results when a commit is done, and what an interrupted run had measured by then is in the Records alone.
    """
    run = _Run.of(suite)
    key = point_key(declared.benchmark, declared.version, params)
    if not declared.is_chosen(params):
        return _stored(run, key)
    if not suite.scratch:
        return _measure(run, declared, params)
    finished = run.scratch / f"{key}.json"
    if finished.exists():
        return decode(finished.read_bytes())
    if suite.reuse and (stored := _stored(run, key)) and stored.status in suite.reuse:
        return stored
    started = finished.with_suffix(".started")
    if started.exists():
        reason = "its process was ended before it could report (by asv's timeout, or from outside)"
        record = _without_measuring(run, declared, params, "failed", reason)
    else:
        started.parent.mkdir(parents=True, exist_ok=True)
        started.touch()
        record = _measure(run, declared, params)
    if suite.keep:
        try:
            append_record(run.record_file, record)
        except Unwritable as error:
            Path(suite.scratch, UNWRITABLE).write_text(str(error), encoding="utf-8")
            raise
    partial = finished.with_suffix(".partial")
    partial.write_bytes(encode(record))
    partial.replace(finished)
    return record


def _stored(run: _Run, key: str) -> Record | None:
    """The newest Record of this point that was stored at this commit and environment before the run.

    The first process of a run to ask reads the file of Records and leaves each point's in a file of its own: reading
    all of it for each of many points would take longer the more of them there are.
    """
    if not run.suite.scratch:
        return _read_stored(run).get(key)
    folder = run.scratch / "stored"
    if not folder.exists():
        partial = folder.with_suffix(".partial")
        partial.mkdir(parents=True, exist_ok=True)
        for point, record in _read_stored(run).items():
            (partial / point).write_bytes(encode(record))
        partial.replace(folder)
    file = folder / key
    return decode(file.read_bytes()) if file.exists() else None


def _read_stored(run: _Run) -> dict[str, Record]:
    records = read_file(run.record_file)
    return {record.point: record for record in records if record.environment == run.environment}


def _measure(run: _Run, declared: Declared, params: Params) -> Record:
    folder = Path(run.suite.folder)
    plugin = load_plugin(declared.plugin, folder)
    try:
        if plugin.error:
            raise plugin.error
        benchmark = _at_this_commit(declared, plugin.benchmarks)
    except HpmlError as error:
        return _without_measuring(run, declared, params, "skipped", f"not available at this commit: {error}")
    try:
        offers = msgspec.convert(run.suite.offers, Offers)
    except msgspec.ValidationError:
        offers = Offers()  # of a newer suite, in another form
    context = Context(
        plan=SamplingPlan().but(precision=declared.precision, budget=declared.budget),
        node=run.suite.node,
        plugin=declared.plugin.name,
        source=plugin.source,
        machine=run.suite.machine,
        commit=run.commit,
        environment=run.environment,
        run=run.suite.run,
    )
    with offers.in_force(load_sources(offers, folder, data_used(benchmark, params), plugin)):
        return measure_point(benchmark, params, context, timeout=declared.timeout)


def _at_this_commit(declared: Declared, offered: tuple[Benchmark, ...]) -> Benchmark:
    """The commit's own benchmark, where it is the declared one: same version, grid keys and metrics."""
    for benchmark in offered:
        if benchmark.name == declared.benchmark:
            break
    else:
        raise DefinitionError(f"its plugin offers no {declared.benchmark!r}")
    if benchmark.version != declared.version:
        raise DefinitionError(f"it has version {benchmark.version}, the registry's is {declared.version}")
    metrics = {metric.name for metric in benchmark.metrics}
    if set(benchmark.grid) != set(declared.grid) or not {metric.name for metric in declared.metrics} <= metrics:
        raise DefinitionError("its parameters or metrics differ")
    return benchmark


def _without_measuring(run: _Run, declared: Declared, params: Params, status: Status, reason: str) -> Record:
    return Record(
        benchmark=declared.benchmark,
        plugin=declared.plugin.name,
        version=declared.version,
        params=params,
        status=status,
        reason=reason,
        started=time.time(),
        machine=run.suite.machine,
        commit=run.commit,
        environment=run.environment,
        run=run.suite.run,
    )
