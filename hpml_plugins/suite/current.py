"""The Record of the current run for a point: the first metric to ask measures, the others read."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hpml_plugins.errors import DefinitionError, HpmlError, Unwritable
from hpml_plugins.host import load_plugin
from hpml_plugins.host.offers import Offers, data_sources
from hpml_plugins.measure import Context, SamplingPlan, measure_point
from hpml_plugins.model.benchmark import Benchmark, Params
from hpml_plugins.model.record import Record, decode, encode, point_key
from hpml_plugins.node import data_used
from hpml_plugins.store import append_record, read_file, record_file
from hpml_plugins.suite.declaration import Declared, Suite

#: In a run's temporary folder: why a Record could not be stored, for asv's own process, which then ends.
UNWRITABLE = "unwritable"


@dataclass(frozen=True)
class _Place:
    """Where asv runs us: the commit and the environment, as it says in its variables."""

    commit: str = ""
    environment: str = ""

    @classmethod
    def here(cls) -> _Place:
        return cls(os.environ.get("ASV_COMMIT", ""), os.environ.get("ASV_ENV_NAME", ""))


def record_of(suite: Suite, declared: Declared, params: Params) -> Record | None:
    """The Record of this point in this run; measured now if nobody asked before. None: never measured.

    A point outside the run's profile is not measured: its newest stored Record is given instead, so that a quick run
    does not wipe what a full one found. With --skip-existing a stored Record of this commit is given too: asv saves
    its results when a commit is done, and what an interrupted run had measured by then is in the Records alone.
    """
    place = _Place.here()
    key = point_key(declared.benchmark, declared.version, params)
    if not declared.is_chosen(params):
        return _stored(suite, place, key)
    if not suite.scratch:
        return _measure(suite, declared, params, place)
    folder = Path(suite.scratch, place.commit or "here", place.environment or "here")
    if suite.reuse:
        _take_stored(suite, place, folder)
    finished = folder / f"{key}.json"
    if finished.exists():
        return decode(finished.read_bytes())
    started = finished.with_suffix(".started")
    if started.exists():
        reason = "its process was ended before it could report (by asv's timeout, or from outside)"
        record = _without_measuring(suite, declared, params, place, "failed", reason)
    else:
        started.parent.mkdir(parents=True, exist_ok=True)
        started.touch()
        record = _measure(suite, declared, params, place)
    if suite.keep:
        try:
            append_record(record_file(suite.results, suite.machine, place.commit), record)
        except Unwritable as error:
            Path(suite.scratch, UNWRITABLE).write_text(str(error), encoding="utf-8")
            raise
    _finish(finished, record)
    return record


def _finish(finished: Path, record: Record) -> None:
    partial = finished.with_suffix(".partial")
    partial.write_bytes(encode(record))
    partial.replace(finished)


def _take_stored(suite: Suite, place: _Place, folder: Path) -> None:
    """Let what is stored and may be used again count as finished. Once a run: a look at all of it for each of many
    points would take longer the more are there."""
    taken = folder / ".stored"
    if taken.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, Record] = {}
    for record in read_file(record_file(suite.results, suite.machine, place.commit)):
        if record.environment == place.environment:
            found[record.point] = record
    for point, record in found.items():
        if record.status in suite.reuse:
            _finish(folder / f"{point}.json", record)
    taken.touch()


def _measure(suite: Suite, declared: Declared, params: Params, place: _Place) -> Record:
    plugin = load_plugin(declared.plugin.entry, Path(suite.folder))
    try:
        if plugin.error:
            raise plugin.error
        benchmark = _at_this_commit(declared, plugin.benchmarks)
    except HpmlError as error:
        return _without_measuring(suite, declared, params, place, "skipped", f"not available at this commit: {error}")
    offers = _offers(suite)
    sources = data_sources(plugin, data_used(benchmark, params), offers, Path(suite.folder))
    context = _context(suite, declared, place, plugin.source)
    with offers.in_force(sources):
        return measure_point(benchmark, params, context, timeout=declared.timeout)


def _offers(suite: Suite) -> Offers:
    try:
        return msgspec.convert(suite.offers, Offers)
    except msgspec.ValidationError:
        return Offers()  # a newer suite's, of another shape


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


def _stored(suite: Suite, place: _Place, key: str) -> Record | None:
    newest = None
    for record in read_file(record_file(suite.results, suite.machine, place.commit)):
        if record.point == key and record.environment == place.environment:
            newest = record
    return newest


def _without_measuring(
    suite: Suite, declared: Declared, params: Params, place: _Place, status: str, reason: str
) -> Record:
    return Record(
        benchmark=declared.benchmark,
        plugin=declared.plugin.name,
        version=declared.version,
        params=params,
        status=status,  # type: ignore[arg-type]
        reason=reason,
        started=time.time(),
        machine=suite.machine,
        commit=place.commit,
        environment=place.environment,
        run=suite.run,
    )


def _context(suite: Suite, declared: Declared, place: _Place, source: dict[str, str]) -> Context:
    return Context(
        plan=SamplingPlan().but(precision=declared.precision, budget=declared.budget),
        node=suite.node,
        plugin=declared.plugin.name,
        source=source,
        machine=suite.machine,
        commit=place.commit,
        environment=place.environment,
        run=suite.run,
    )
