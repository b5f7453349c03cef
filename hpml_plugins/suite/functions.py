"""The generated asv benchmarks: one `track_` function for each metric, which measures a point and
stores its Record."""

from __future__ import annotations

import functools
import math
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from hpml_plugins.errors import DefinitionError, HpmlError, Unwritable
from hpml_plugins.host import Declared, Offers, load_plugin, load_sources
from hpml_plugins.isolation import end_with_parent
from hpml_plugins.measure import (
    Context,
    SamplingPlan,
    import_before_fork,
    measure_point,
    unmeasured,
)
from hpml_plugins.measure.session import Progress
from hpml_plugins.model.benchmark import Benchmark, Params
from hpml_plugins.model.data_source import use_sources
from hpml_plugins.model.record import Record
from hpml_plugins.model.reference import REFERENCE
from hpml_plugins.model.rounds import combine
from hpml_plugins.model.serialization import encode, shorten
from hpml_plugins.node import data_used
from hpml_plugins.store import append_record, atomic_write, read_file, record_file
from hpml_plugins.suite.declaration import PACKAGE_VARIABLE, Suite, load_suite

if TYPE_CHECKING:
    from hpml_plugins.store.declarations import Declaration

#: What asv waits beyond a benchmark's own timeout, s: ours must end the point first, to say why.
GRACE = 30.0
#: In a run's temporary folder: why a Record could not be stored, for asv's own process, which then
#: ends.
UNWRITABLE = "unwritable"

#: Attributes of a function that asv copies into its entry of benchmarks.json.
_TOLD = ("unit", "version", "plugin", "benchmark", "metric", "si_unit")

TrackFunction = Callable[..., Any]
#: `hpml run` measures all points from one process; each of asv's measures one.
_load_once = functools.cache(load_plugin)


def track_functions(root: Path) -> dict[str, TrackFunction]:
    """Name in the module → function, for every metric of every declared benchmark. root: the
    project's folder."""
    suite = load_suite(root)
    if sys.argv[1:2] == ["run_server"]:
        import_before_fork(module for declared in suite.benchmarks for module in declared.modules)
    functions = [
        _function(suite, declared, entry)
        for declared in suite.benchmarks
        for entry in declared.entries()
    ]
    return {f"track_{number}": function for number, function in enumerate(functions)}


def _function(suite: Suite, declared: Declared, entry: Declaration) -> TrackFunction:
    def track(*values: Any) -> Any:
        end_with_parent()  # of asv's fork server, which forked this process
        params = dict(zip(declared.grid, values, strict=True))
        try:
            record = record_of(suite, declared, params)
        except Unwritable as error:
            _fail(str(error))
        return to_asv(record, entry.metric)

    told = {name: getattr(entry, name) for name in _TOLD}
    attributes = {
        **told,
        "__name__": f"track_{entry.metric}",
        "benchmark_name": entry.name,
        "timeout": declared.timeout + GRACE,
        # asv shows this as the benchmark's code, and would otherwise read the source of the
        # generated function
        "pretty_source": entry.code,
        "direction": "none" if entry.name in suite.unranked else entry.direction,
    }
    if declared.grid:
        attributes["params"] = list(declared.grid.values())
        attributes["param_names"] = list(declared.grid)
    for key, value in attributes.items():
        setattr(track, key, value)
    return track


def to_asv(record: Record, metric: str) -> Any:
    """A metric of a Record as asv wants it: samples, so that its median and interval are real; NaN
    for skipped.

    A failed point ends this process with status 1 and its reason, which is how asv records a
    failure.
    """
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


def record_of(
    suite: Suite, declared: Declared, params: Params, progress: Progress | None = None
) -> Record:
    """The Record of this point, measured now.

    One round is measured and stored. With --skip-existing a complete Record of an earlier run, of
    this commit and environment, is given instead; one that was interrupted on this node gets
    another round, and is given with it.
    """
    commit, environment = os.environ.get("ASV_COMMIT", ""), os.environ.get("ASV_ENV_NAME", "")
    context = _context(suite, declared, commit, environment)
    point = declared.key(params)
    file = record_file(suite.results, suite.machine, commit)
    # The reference tells of this visit to the card; an earlier one does not.
    reuses = suite.reuse and declared.benchmark != REFERENCE
    before = _stored(suite, file, point, environment) if reuses else None
    if before and before.is_complete:
        record = before
    else:
        again = replace(context, run=before.run) if before else context
        record = shorten(_measure(suite, declared, params, again, progress))
        _store(suite, file, record)
        record = combine([before, record]) if before else record
    scratch = _scratch(suite, commit, environment)
    # for what asv's own process prints
    atomic_write(scratch / f"{point}.json", encode(record), durable=False)
    return record


def skip_point(
    suite: Suite,
    declared: Declared,
    params: Params,
    reason: str,
    commit: str = "",
    environment: str = "",
) -> Record:
    """The Record of a point that this node lacks something for, stored without starting a process.

    reason: see `Declared.unmet`.  With --skip-existing a stored one is given. Raises Unwritable
    where it cannot be stored.
    """
    file = record_file(suite.results, suite.machine, commit)
    before = _stored(suite, file, declared.key(params), environment) if suite.reuse else None
    if before and before.is_complete:
        return before
    context = _context(suite, declared, commit, environment)
    record = unmeasured(declared.benchmark, declared.version, params, context, "skipped", reason)
    _store(suite, file, record)
    return record


def _scratch(suite: Suite, commit: str, environment: str) -> Path:
    """The folder that the rounds of a commit's points share."""
    return Path(suite.scratch, commit or "here", environment or "here")


def _context(suite: Suite, declared: Declared, commit: str, environment: str) -> Context:
    return Context(
        plan=SamplingPlan().but(precision=declared.precision, budget=declared.budget),
        rounds=declared.rounds,
        node=suite.node,
        plugin=declared.plugin.name,
        machine=suite.machine,
        commit=commit,
        environment=environment,
        run=suite.run,
        scratch=_scratch(suite, commit, environment),
    )


def _store(suite: Suite, file: Path, record: Record) -> None:
    """Append a Record where this run stores any. Raises Unwritable, and leaves the reason for asv's
    own process."""
    if not suite.keep:
        return
    try:
        append_record(file, record)
    except Unwritable as error:
        Path(suite.scratch, UNWRITABLE).write_text(str(error), encoding="utf-8")
        raise


def _stored(suite: Suite, file: Path, point: str, environment: str) -> Record | None:
    """The Record of an earlier run that stands for this point, or that this run completes; None for
    a new one.

    A retracted Record counts as not measured.
    """
    stored = [each for each in read_file(file) if each.status != "retracted"]
    found = [each for each in stored if (each.point, each.environment) == (point, environment)]
    if not found or found[-1].run == suite.run:
        return None
    if found[-1].is_complete:
        return found[-1] if found[-1].status in suite.reuse else None
    cards, boot = [gpu.get("uuid") for gpu in found[-1].gpus], found[-1].node.get("boot")
    same_node = boot and boot == suite.node.boot and cards == [gpu.uuid for gpu in suite.node.gpus]
    return found[-1] if same_node else None


def _measure(
    suite: Suite, declared: Declared, params: Params, context: Context, progress: Progress | None
) -> Record:
    folder = Path(suite.folder)
    plugin = _load_once(declared.plugin, folder)
    try:
        if plugin.error:
            raise plugin.error
        benchmark = _at_this_commit(declared, plugin.benchmarks)
    except HpmlError as error:
        reason = f"not available at this commit: {error}"
        return unmeasured(declared.benchmark, declared.version, params, context, "skipped", reason)
    try:
        offers = msgspec.convert(suite.offers, Offers)
    except msgspec.ValidationError:
        offers = Offers()  # of a newer suite, in another form
    # a value may name a data set, and need not
    named = [*data_used(benchmark, params), *map(str, params.values())]
    package = os.environ.get(PACKAGE_VARIABLE)
    with use_sources(load_sources(offers, folder, named, plugin)):
        context = replace(
            context, source={**plugin.source, **({"package": package} if package else {})}
        )
        return measure_point(
            benchmark, params, context, progress=progress, timeout=declared.timeout
        )


def _at_this_commit(declared: Declared, offered: tuple[Benchmark, ...]) -> Benchmark:
    """The commit's own benchmark, where it is the declared one: same version, grid keys and
    metrics."""
    benchmark = next((each for each in offered if each.name == declared.benchmark), None)
    if benchmark is None:
        raise DefinitionError(f"its plugin offers no {declared.benchmark!r}", "")
    if benchmark.version != declared.version:
        raise DefinitionError(
            f"it has version {benchmark.version}, the registry's is {declared.version}", ""
        )
    metrics = {metric.name for metric in benchmark.metrics}
    if (
        set(benchmark.grid) != set(declared.grid)
        or not {metric.name for metric in declared.metrics} <= metrics
    ):
        raise DefinitionError("its parameters or metrics differ", "")
    return benchmark
