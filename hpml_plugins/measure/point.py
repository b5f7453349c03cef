"""Measure one point: requirements, isolation, checks of the result, and its Record."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from hpml_plugins import clocks
from hpml_plugins.errors import Failure, HpmlError, ResultError, Skipped, describe
from hpml_plugins.isolation import Fault, ProcessOutcome, Send, run_isolated
from hpml_plugins.measure.bench import Bench
from hpml_plugins.measure.libraries import describe_failure, end_compilers, package_versions
from hpml_plugins.measure.metrics import impossible_rates, to_metrics
from hpml_plugins.measure.sampling import SamplingPlan
from hpml_plugins.measure.session import Progress
from hpml_plugins.model.benchmark import Benchmark, Params
from hpml_plugins.model.node import Gpu, Node
from hpml_plugins.model.record import STACK, THROTTLED, MetricSamples, Record, Status
from hpml_plugins.model.serialization import decode, encode
from hpml_plugins.model.validation import abridge, bounded, cleaned
from hpml_plugins.node import CpuWatch, gpus_used, pin_devices, unmet

if TYPE_CHECKING:
    from hpml_plugins.measure.gpu_monitor import GpuMonitor, Seen
    from hpml_plugins.measure.telemetry import Telemetry

_DECODER = msgspec.json.Decoder(Record | tuple[str, float | None])
#: The fields of a Record that the caller knows; the process of the point supplies the others.
_ASKED = (
    "benchmark",
    "plugin",
    "version",
    "params",
    "machine",
    "commit",
    "environment",
    "run",
)
_SUPPLIED = (
    "status",
    "reason",
    "failure",
    "metrics",
    "series",
    "checks",
    "warnings",
    "noise",
    "data",
    "work",
    "packages",
)


@dataclass(frozen=True)
class Context:
    """Where and for what a point is measured; copied into its Record. Fields that do not apply are
    empty.

    watch: whether to monitor the GPUs.  plan: how long to sample, all rounds together.  rounds: the
    number of planned rounds; `measure_point` measures one.  scratch: a folder shared by the rounds
    of a point of this run, commit and environment.
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
    """Measure one round of a point in a new process and return its Record.

    Never raises an error of the benchmark.  timeout: s; by default the benchmark's.
    """
    clock = clocks.monotonic()
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
        # a plugin wrote to the pipe itself
        except (ValueError, RecursionError, ResultError) as error:
            unread.append(
                Fault(Failure.RESULT, f"it sent what cannot be read: {describe(error)}")
            )
            return
        if progress and not isinstance(received, Record):
            progress(*received)

    limit = timeout or benchmark.timeout
    deadline = clock + limit
    watched = gpus_used(benchmark, params, context.node) if context.watch else 0
    with _watch(context.node.gpus[:watched]) as monitor:
        telemetry = monitor.telemetry if monitor else None
        outcome = run_isolated(
            lambda send: _measure_here(
                benchmark, params, context, record, send, deadline, telemetry
            ),
            limit,
            on_message,
            monitor.check if monitor else lambda: "",
        )
        fault = _fault_of(outcome) or next(iter(unread), None) or _fault_of_answers(answers)
        measured = _failed(record, fault) if fault else answers[0]
        if outcome.left:
            measured.warnings.append("the benchmark left processes behind; they were ended")
        if monitor:
            measured = _with_what_was_seen(measured, monitor.finish())
    output = outcome.output if measured.status == "failed" else ""
    conditions = measured.conditions | others.conditions()
    done = replace(
        measured, output=output, conditions=conditions, duration=clocks.monotonic() - clock
    )
    return _storable(done, record)


def _watch(gpus: Sequence[Gpu]) -> AbstractContextManager[GpuMonitor | None]:
    """The monitor of these GPUs; without GPUs nothing is started or imported."""
    if not gpus:
        return nullcontext()
    from hpml_plugins.measure.gpu_monitor import GpuMonitor

    return GpuMonitor(gpus)


def _as_record(benchmark: Benchmark, asked: Record, sent: Record) -> Record:
    """The requested Record, with the results that the point supplied.

    Raises ResultError for a Record of anything else, and for metrics that are not declared this
    way.
    """
    for name in _ASKED:
        if getattr(sent, name) != getattr(asked, name):
            raise ResultError(f"a Record of another {name}")
    declared = {
        metric.name: (metric.unit, metric.direction) for metric in benchmark.metrics
    }
    for name, metric in sent.metrics.items():
        if declared.get(name) != (metric.unit, metric.direction):
            raise ResultError(
                f"metric {name[:100]!r} in {metric.unit[:100]!r}, which is not declared"
            )
    return replace(asked, **{name: getattr(sent, name) for name in _SUPPLIED})


def _fault_of(outcome: ProcessOutcome) -> Fault | None:
    if not outcome.fault:
        return None
    # the only watcher of a point's process is the GPU monitor
    kind = Failure.GPU if outcome.kind is Failure.STOPPED else outcome.kind
    return Fault(kind, outcome.fault)


def _fault_of_answers(answers: Sequence[Record]) -> Fault | None:
    if len(answers) > 1:
        text = f"it reported {len(answers)} times, so none of its results can be trusted"
        return Fault(Failure.RESULT, text)
    if answers:
        return None
    return Fault(Failure.EXIT, "ended with exit status 0 before it reported")


def _failed(record: Record, fault: Fault) -> Record:
    return replace(record, status="failed", failure=fault.kind, reason=fault.text)


def _storable(record: Record, asked: Record) -> Record:
    """The Record in a form that can be stored: texts abridged, and failed if its contents are not
    valid.

    asked: the same Record before anything was measured.
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
    telemetry: Telemetry | None,
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
        shared=context.scratch / record.point
        if context.scratch and context.rounds > 1
        else None,
    )
    if reordered:
        bench.collected.warnings.append(reordered)
    metrics: dict[str, MetricSamples] = {}
    status: Status = "failed"
    failure = Failure.NONE
    reason = ""
    try:
        if reasons := unmet(benchmark, params, context.node):
            bench.skip("; ".join(reasons))
        returned = benchmark.measure(bench, **params)
        if bench.failed_check:
            raise bench.failed_check
        metrics = to_metrics(benchmark, returned, bench.collected.work)
        status = "ok"
        bench.collected.warnings += impossible_rates(bench, metrics)
    except Skipped as skipped:
        status = "skipped"
        reason = skipped.what
    except (Exception, SystemExit) as error:
        if isinstance(error, SystemExit) and isinstance(error.code, int | None):
            raise  # the process ends with that status, which is its reason
        failure = error.failure if isinstance(error, HpmlError) else Failure.ERROR
        reason = describe_failure(error, benchmark.measure)
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
        decode(message)  # decode here, so that it cannot fail in the parent process
    except Exception as error:
        message = encode(_failed(record, _unstorable(error)))
    send(message)


def _with_what_was_seen(record: Record, seen: Seen) -> Record:
    """The Record with what the GPU monitor observed; failed if that invalidates it."""
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
    # What the benchmark itself reports of a lost card is usually some CUDA error.
    own = f" (the point said: {record.reason})" if record.reason else ""
    failed = _failed(record, Fault(Failure.GPU, f"{seen.fault}{own}"))
    return replace(failed, metrics={})


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
        started=clocks.wall_clock(),
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
