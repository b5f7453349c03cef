"""Measure one point: requirements, isolation, checks of what came back, and the Record of all of it."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from hpml_plugins.errors import HpmlError, ResultError, Skipped, describe
from hpml_plugins.isolation.process import Outcome, Send, run_isolated
from hpml_plugins.measure.bench import Bench
from hpml_plugins.measure.compile_workers import end_compilers
from hpml_plugins.measure.gpu_faults import GpuLost
from hpml_plugins.measure.gpu_monitor import Seen, Watching
from hpml_plugins.measure.out_of_memory import out_of_gpu_memory
from hpml_plugins.measure.package_versions import package_versions
from hpml_plugins.measure.sampling import Plan
from hpml_plugins.model.benchmark import Benchmark, Params
from hpml_plugins.model.node import Node
from hpml_plugins.model.record import MetricSamples, Record, Series, Status
from hpml_plugins.model.samples import Samples
from hpml_plugins.model.units import unit
from hpml_plugins.node.needs import gpus_used, unmet

Progress = Callable[[str, float | None], None]


@dataclass(frozen=True)
class Context:
    """Where and for what a point is measured; copied into its Record. Empty where it does not apply.

    watch: whether the GPUs are watched meanwhile.  plan: how long to sample.
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
    plan: Plan = field(default_factory=Plan)


class _Answer(msgspec.Struct):
    """What the measuring process sends back."""

    status: Status
    reason: str = ""
    metrics: dict[str, MetricSamples] = {}
    series: dict[str, Series] = {}
    checks: list[str] = []
    warnings: list[str] = []
    packages: dict[str, str] = {}
    data: dict[str, dict[str, str | float]] = {}
    at: dict[str, list[float]] = {}
    energy: float = 0.0


def measure_point(
    benchmark: Benchmark,
    params: Params,
    context: Context,
    *,
    progress: Progress | None = None,
    timeout: float | None = None,
) -> Record:
    """Measure one point in a process of its own and return its Record. Never raises for what the benchmark does.

    timeout: s; the benchmark's own when left out.
    """
    started = time.time()
    clock = time.monotonic()
    if reasons := unmet(benchmark, params, context.node):
        return _record(benchmark, params, context, _Answer("skipped", "; ".join(reasons)), started, 0.0, "")

    answers: list[_Answer] = []
    warnings: list[str] = []

    def on_message(kind: str, payload: bytes) -> None:
        if kind == "answer":
            answers.append(msgspec.json.decode(payload, type=_Answer))
        elif kind == "warning":
            warnings.append(payload.decode())
        elif kind == "progress" and progress:
            text, share = msgspec.json.decode(payload)
            progress(text, share)

    watched = gpus_used(benchmark, params, context.node) if context.watch else 0
    watching = Watching(context.node.gpus[:watched])
    limit = timeout or benchmark.timeout
    deadline = clock + limit
    try:
        try:
            outcome = run_isolated(
                lambda send: _measure_here(benchmark, params, context, send, deadline),
                limit,
                on_message,
                watching.check,
            )
        except GpuLost as lost:
            answers, outcome = [], Outcome(lost.what, "")
        answer = answers[-1] if answers else _Answer("failed", outcome.fault or "reported nothing")
        answer.warnings += warnings
        _add_what_was_seen(answer, watching.finish(answer.at))
    finally:
        watching.end()
    output = outcome.output if answer.status == "failed" else ""
    return _record(benchmark, params, context, answer, started, time.monotonic() - clock, output)


def _measure_here(benchmark: Benchmark, params: Params, context: Context, send: Send, deadline: float) -> None:
    bench = Bench(
        context.node,
        params,
        gpus=gpus_used(benchmark, params, context.node),
        seed=context.seed,
        plan=context.plan,
        report=lambda text, share: send("progress", msgspec.json.encode((text, share))),
        deadline=deadline,
    )
    try:
        returned = benchmark.measure(bench, **params)
        answer = _Answer("ok", metrics=to_metrics(benchmark, returned))
        answer.at = {name: list(value.at) for name, value in returned.items() if isinstance(value, Samples)}
    except Skipped as skipped:
        answer = _Answer("skipped", skipped.what)
    except HpmlError as error:
        answer = _Answer("failed", error.what)
    except Exception as error:
        traceback.print_exc()
        answer = _Answer("failed", out_of_gpu_memory(error) or describe(error))
    end_compilers()
    answer.series, answer.checks, answer.warnings = bench.attached, bench.checks, bench.warnings
    answer.packages = package_versions()
    answer.data = bench.used_data
    send("answer", msgspec.json.encode(answer))


def to_metrics(benchmark: Benchmark, returned: object) -> dict[str, MetricSamples]:
    """Hold what `measure` returned against the declared metrics: all of them, no other, finite, of the right unit.

    Raises ResultError with the metric's name.
    """
    if not isinstance(returned, Mapping):
        raise ResultError(f"measure returned {type(returned).__name__}, not a mapping of metric names to samples")
    declared = {metric.name: metric for metric in benchmark.metrics}
    if unknown := [str(name) for name in returned if name not in declared]:
        raise ResultError(f"measure returned {', '.join(unknown)}, which are no metrics of {benchmark.name!r}")
    if missing := [name for name in declared if name not in returned]:
        raise ResultError(f"measure returned no {', '.join(missing)}")
    result = {}
    for name, metric in declared.items():
        value = returned[name]
        samples = value if isinstance(value, Samples) else _plain(name, value)
        if not samples.values:
            raise ResultError(f"metric {name!r} has no samples")
        if bad := [number for number in samples.values if not math.isfinite(number)]:
            raise ResultError(f"metric {name!r} is not finite: {bad[0]}")
        if samples.dimension and not samples.in_unit(unit(metric.unit)):
            raise ResultError(f"metric {name!r}: what was measured is not in {metric.unit}")
        result[name] = MetricSamples(metric.unit, metric.direction, list(samples.values), dict(samples.info))
    return result


def _add_what_was_seen(answer: _Answer, seen: Seen) -> None:
    answer.series = {**answer.series, **seen.series}
    answer.energy = seen.energy
    answer.warnings += seen.warnings
    if seen.fault and answer.status != "skipped" and seen.fault != answer.reason:
        # What the benchmark itself says of a lost card, if anything, is some error of CUDA's.
        said = f" (the point said: {answer.reason})" if answer.reason else ""
        answer.status, answer.reason, answer.metrics = "failed", f"{seen.fault}{said}", {}
    answer.metrics = {
        name: msgspec.structs.replace(metric, throttled=seen.throttled.get(name, []))
        for name, metric in answer.metrics.items()
    }


def _plain(name: str, value: object) -> Samples:
    try:
        return Samples((float(value),))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ResultError(f"metric {name!r} is a {type(value).__name__}, not Samples or a number") from None


def _record(
    benchmark: Benchmark,
    params: Params,
    context: Context,
    answer: _Answer,
    started: float,
    duration: float,
    output: str,
) -> Record:
    return Record(
        benchmark=benchmark.name,
        plugin=context.plugin,
        version=benchmark.version,
        params=dict(params),
        status=answer.status,
        reason=answer.reason,
        metrics=answer.metrics,
        series=answer.series,
        checks=answer.checks,
        warnings=answer.warnings,
        output=output,
        seed=context.seed,
        started=started,
        duration=duration,
        energy=answer.energy,
        machine=context.machine,
        commit=context.commit,
        environment=context.environment,
        run=context.run,
        node=msgspec.to_builtins(context.node),
        packages=answer.packages,
        source=dict(context.source),
        data=answer.data,
    )
