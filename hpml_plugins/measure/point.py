"""Measure one point: requirements, isolation, checks of what came back, and the Record of all of
it."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from msgspec.structs import replace

from hpml_plugins.errors import CheckFailed, ResultError, Skipped, TimedOut, describe
from hpml_plugins.isolation import Fault, ProcessOutcome, Send, run_isolated
from hpml_plugins.measure.bench import Bench
from hpml_plugins.measure.gpu_monitor import GpuMonitor, Seen
from hpml_plugins.measure.libraries import describe_failure, end_compilers, package_versions
from hpml_plugins.measure.sampling import SamplingPlan
from hpml_plugins.measure.session import Progress
from hpml_plugins.measure.telemetry import Telemetry
from hpml_plugins.model.benchmark import Benchmark, Metric, Params
from hpml_plugins.model.failure import Failure
from hpml_plugins.model.node import Node
from hpml_plugins.model.record import STACK, THROTTLED, MetricSamples, Record, Status
from hpml_plugins.model.samples import Samples, as_number
from hpml_plugins.model.serialization import decode, encode
from hpml_plugins.model.units import unit
from hpml_plugins.model.validation import abridge, bounded, cleaned, is_unresolved
from hpml_plugins.model.work import DeclaredWork, Limit
from hpml_plugins.node import CpuWatch, gpus_used, pin_devices, unmet
from hpml_plugins.published import PRECISIONS

#: A share of the published peak above which a number is doubted: peaks hold at the highest clock,
#: and timers are noisy.
HIGHEST_SHARE = 1.05
_DECODER = msgspec.json.Decoder(Record | tuple[str, float | None])
#: What a Record is about, which those know who asked for it; and what the process of the point
#: supplies.
_ASKED = ("benchmark", "plugin", "version", "params", "machine", "commit", "environment", "run")
_SUPPLIED = (
    "status",
    "reason",
    "failure",
    "metrics",
    "series",
    "checks",
    "warnings",
    "data",
    "work",
    "packages",
)


@dataclass(frozen=True)
class Context:
    """Where and for what a point is measured; copied into its Record. Empty where it does not
    apply.

    watch: whether the GPUs are watched meanwhile.  plan: how long to sample, all rounds together.
    rounds: how many there will be; `measure_point` measures one.  scratch: a folder for what the
    rounds of a point share, of this run, commit and environment.
    """

    node: Node
    plugin: str = ""
    source: Mapping[str, str] = field(default_factory=dict)
    machine: str = ""
    commit: str = ""
    environment: str = ""
    run: str = ""
    seed: int = 0
    watch: bool = True
    plan: SamplingPlan = field(default_factory=SamplingPlan)
    rounds: int = 1
    scratch: Path | None = None


def measure_point(
    benchmark: Benchmark,
    params: Params,
    context: Context,
    *,
    progress: Progress | None = None,
    timeout: float | None = None,
) -> Record:
    """Measure one round of a point in a process of its own and return its Record.

    Never raises for what the benchmark does.  timeout: s; the benchmark's own when left out.
    """
    clock = time.monotonic()
    record = unmeasured(benchmark.name, benchmark.version, params, context)
    if reasons := unmet(benchmark, params, context.node, ask=False):
        return replace(record, status="skipped", reason="; ".join(reasons))

    answers: list[Record] = []
    unread: list[Fault] = []
    others = CpuWatch()

    def on_message(message: bytes) -> None:
        try:
            received = _DECODER.decode(message)
            if isinstance(received, Record):
                answers.append(_as_record(benchmark, record, received))
        # what a plugin wrote into the pipe itself
        except (ValueError, RecursionError, ResultError) as error:
            unread.append(Fault(Failure.RESULT, f"it sent what cannot be read: {describe(error)}"))
            return
        if progress and not isinstance(received, Record):
            progress(*received)

    limit = timeout or benchmark.timeout
    deadline = clock + limit
    watched = gpus_used(benchmark, params, context.node) if context.watch else 0
    monitor = GpuMonitor(context.node.gpus[:watched])
    try:
        outcome = run_isolated(
            lambda send: _measure_here(
                benchmark, params, context, record, send, deadline, monitor.telemetry
            ),
            limit,
            on_message,
            monitor.check,
        )
        fault = _fault_of(outcome) or next(iter(unread), None) or _fault_of_answers(answers)
        measured = _failed(record, fault) if fault else answers[0]
        if outcome.left:
            measured.warnings.append("the benchmark left processes behind; they were ended")
        measured = _with_what_was_seen(measured, monitor.finish())
    finally:
        monitor.end()
    output = outcome.output if measured.status == "failed" else ""
    conditions = measured.conditions | others.conditions()
    done = replace(
        measured, output=output, conditions=conditions, duration=time.monotonic() - clock
    )
    return _storable(done, record)


def _as_record(benchmark: Benchmark, asked: Record, sent: Record) -> Record:
    """The Record that was asked for, with what the point supplied.

    Raises ResultError for a Record of anything else, and for metrics that are not declared so.
    """
    for name in _ASKED:
        if getattr(sent, name) != getattr(asked, name):
            raise ResultError(f"a Record of another {name}")
    declared = {metric.name: (metric.unit, metric.direction) for metric in benchmark.metrics}
    for name, metric in sent.metrics.items():
        if declared.get(name) != (metric.unit, metric.direction):
            raise ResultError(
                f"metric {name[:100]!r} in {metric.unit[:100]!r}, which is not declared"
            )
    return replace(asked, **{name: getattr(sent, name) for name in _SUPPLIED})


def _fault_of(outcome: ProcessOutcome) -> Fault | None:
    if not outcome.fault:
        return None
    # what watches the process of a point watches its GPUs
    kind = Failure.GPU if outcome.kind is Failure.STOPPED else outcome.kind
    return Fault(kind, outcome.fault)


def _fault_of_answers(answers: Sequence[Record]) -> Fault | None:
    if len(answers) > 1:
        text = f"it reported {len(answers)} times, so that none of its results can be believed"
        return Fault(Failure.RESULT, text)
    return None if answers else Fault(Failure.EXIT, "ended with exit status 0 before it reported")


def _failed(record: Record, fault: Fault) -> Record:
    return replace(record, status="failed", failure=fault.kind, reason=fault.text)


def _storable(record: Record, asked: Record) -> Record:
    """The Record as it can be stored: with bounded texts, and failed where what it says is not to
    be believed.

    asked: the same, as it was before anything was measured.
    """
    found = bounded(cleaned(record))
    try:
        decode(encode(found))
    except ValueError as error:
        return _failed(asked, _unstorable(error))
    return found


def _unstorable(error: Exception) -> Fault:
    return Fault(Failure.RESULT, abridge(f"its result cannot be stored: {describe(error)}"))


def _measure_here(
    benchmark: Benchmark,
    params: Params,
    context: Context,
    record: Record,
    send: Send,
    deadline: float,
    telemetry: Telemetry,
) -> None:
    reordered = pin_devices(context.node, os.environ)
    bench = Bench(
        context.node,
        params,
        gpus=gpus_used(benchmark, params, context.node),
        seed=context.seed,
        plan=context.plan.in_rounds(context.rounds),
        report=lambda text, share: send(msgspec.json.encode((text, share))),
        deadline=deadline,
        telemetry=telemetry,
        shared=context.scratch / record.point if context.scratch and context.rounds > 1 else None,
    )
    bench.collected.warnings += [reordered] if reordered else []
    metrics: dict[str, MetricSamples] = {}
    status: Status = "failed"
    failure = Failure.NONE
    reason = ""
    try:
        if reasons := unmet(benchmark, params, context.node):
            bench.skip("; ".join(reasons))
        returned = benchmark.measure(bench, **params)
        metrics, status = to_metrics(benchmark, returned, bench.collected.work), "ok"
        bench.collected.warnings += _impossible_rates(bench, metrics)
    except Skipped as skipped:
        status, reason = "skipped", skipped.what
    except Exception as error:
        failure, reason = _failure_of(error), describe_failure(error)
    end_compilers()
    try:
        measured = replace(
            record,
            status=status,
            reason=reason,
            failure=failure,
            metrics=metrics,
            packages=package_versions(),
            **vars(bench.collected),
        )
        message = encode(bounded(measured))
        decode(message)  # as the calling process will: what fails must fail here
    except Exception as error:
        message = encode(_failed(record, _unstorable(error)))
    send(message)


def _failure_of(error: Exception) -> Failure:
    """The kind of an exception that `measure` ended with."""
    kinds = {
        CheckFailed: Failure.CHECK,
        TimedOut: Failure.TIMEOUT,
        ResultError: Failure.RESULT,
    }
    return next((kind for each, kind in kinds.items() if isinstance(error, each)), Failure.ERROR)


def to_metrics(
    benchmark: Benchmark, returned: object, works: Mapping[str, DeclaredWork] | None = None
) -> dict[str, MetricSamples]:
    """Hold what `measure` returned against the declared metrics: all of them, no other, finite, of
    the right unit.

    works: declared work by the metric that times it; rates that were not returned follow from it. A
    metric that was returned as None is not known on this node, and left out.
    Raises ResultError with the metric's name.
    """
    if not isinstance(returned, Mapping):
        raise ResultError(
            f"measure returned {type(returned).__name__}, not a mapping of metric names to samples"
        )
    declared = {metric.name: metric for metric in benchmark.metrics}
    if unknown := [str(name) for name in returned if name not in declared]:
        raise ResultError(
            f"measure returned {', '.join(unknown)}, which are no metrics of {benchmark.name!r}"
        )
    returned = {**_rates(benchmark, returned, works or {}), **returned}
    if missing := [name for name in declared if name not in returned]:
        raise ResultError(f"measure returned no {', '.join(missing)}")
    result = {}
    for name, metric in declared.items():
        value = returned[name]
        if value is None:
            continue
        samples = _as_samples(name, value)
        if not samples.values:
            raise ResultError(f"metric {name!r} has no samples")
        _check_values(metric, samples)
        if is_unresolved(metric.unit, metric.direction, samples.values):
            raise ResultError(
                f"metric {name!r} is 0 s in each sample: no timer resolved it; time more work at"
                " once"
            )
        if samples.unit not in ("", metric.unit):
            raise ResultError(
                f"metric {name!r}: what was measured is in {samples.unit}, not in {metric.unit}"
            )
        values, boost = list(samples.values), list(samples.boost)
        result[name] = MetricSamples(
            metric.unit, metric.direction, values, dict(samples.info), boost=boost
        )
    if not result:
        raise ResultError(
            "measure returned None for every metric; skip the point with the reason instead"
            " (bench.skip)"
        )
    return result


def _check_values(metric: Metric, samples: Samples) -> None:
    """Raise ResultError for a value that is not finite or not possible."""
    low, high = metric.bounds
    for number in samples.values + samples.boost:
        if not math.isfinite(number):
            raise ResultError(f"metric {metric.name!r} is not finite: {number}")
        if not low <= number <= high:
            bounds = f"from {low:g} to {high:g}" if high < math.inf else f"{low:g} or more"
            value = f"{number:g} {unit(metric.unit).label}".rstrip()
            raise ResultError(f"metric {metric.name!r} is {value}; possible is {bounds}")


def _rates(
    benchmark: Benchmark, returned: Mapping[str, object], works: Mapping[str, DeclaredWork]
) -> dict[str, object]:
    """Declared metrics that were not returned and are work over time. Raises ResultError for work
    of no time."""
    found: dict[str, object] = {}
    for of, work in works.items():
        if returned.get(of) is None:
            raise ResultError(f"work is declared of {of!r}, which measure did not return")
        time = _as_samples(of, returned[of])
        for metric in benchmark.metrics:
            if metric.name not in returned and (amount := work.amount(metric.unit)):
                found[metric.name] = (amount / time).note(work=of)
    return found


def _impossible_rates(bench: Bench, metrics: Mapping[str, MetricSamples]) -> Iterator[str]:
    """A warning for each rate above the published peak of the point's GPUs."""
    if not bench.gpus or not (peaks := bench.peaks):
        return
    limits = {
        of: (work, Limit(peaks.peak(work.dtype), peaks.bandwidth))
        for of, work in bench.collected.work.items()
    }
    for of, (work, limit) in limits.items():
        share = work.share(metrics[of].median, limit) if of in metrics else None
        if share and share > HIGHEST_SHARE:
            cause = "the data stay in a cache, or " if work.bytes else ""
            yield (
                f"{of}: the work is {share:.3g} times what {peaks.name} can do: {cause}work or time"
                " is wrong"
            )
    highest = (
        max((peaks.peak(dtype) or 0.0 for dtype in PRECISIONS if dtype != "int8"), default=0.0)
        * bench.gpus
    )
    for name, metric in metrics.items():
        if metric.unit == "FLOP/s" and metric.median > HIGHEST_SHARE * highest > 0:
            yield (
                f"{name}: {metric.median / highest:.3g} times the highest published peak of"
                f" {peaks.name}"
            )


def _with_what_was_seen(record: Record, seen: Seen) -> Record:
    """The Record with what the GPUs did meanwhile; failed where that spoilt it."""
    warnings = record.warnings + seen.warnings
    in_two_regimes = any(metric.regime for metric in record.metrics.values())
    throttled = "" if in_two_regimes else seen.throttled
    if throttled:
        warnings.append(f"{THROTTLED} while this was measured: {throttled}")
    record = replace(
        record,
        series={**record.series, **seen.series},
        energy=seen.energy,
        warnings=warnings,
        throttled=throttled,
        conditions={**record.conditions, **seen.conditions},
    )
    if not seen.fault or record.status == "skipped" or seen.fault == record.reason:
        return record
    # What the benchmark itself says of a lost card, if anything, is some error of CUDA's.
    own = f" (the point said: {record.reason})" if record.reason else ""
    failed = _failed(record, Fault(Failure.GPU, f"{seen.fault}{own}"))
    return replace(failed, metrics={})


def _as_samples(name: str, value: object) -> Samples:
    try:
        return value if isinstance(value, Samples) else Samples((as_number(value, ""),))
    except ResultError:
        raise ResultError(
            f"metric {name!r} is a {type(value).__name__}, not Samples or a number"
        ) from None


def unmeasured(
    benchmark: str,
    version: str,
    params: Params,
    context: Context,
    status: Status = "failed",
    reason: str = "",
) -> Record:
    """The Record of a point that has not reported, or never will."""
    return Record(
        benchmark=benchmark,
        plugin=context.plugin,
        version=version,
        params=dict(params),
        status=status,
        reason=reason,
        seed=context.seed,
        started=time.time(),
        machine=context.machine,
        commit=context.commit,
        environment=context.environment,
        run=context.run,
        node=msgspec.to_builtins(context.node),
        source=dict(context.source),
        conditions={"cores": float(context.node.num_cpu)},
        planned_rounds=context.rounds,
        of_stack=context.environment.startswith(STACK),
    )
