"""What the harness costs: a point by itself, a point through `asv run`, and the first kernel of a fresh process."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from hpml_plugins import Bench, Benchmark, HpmlError, Metric, Requires, Samples
from hpml_plugins.plugins.harness.asv_project import run_asv

POINTS = 20


def _nothing(bench: Bench) -> dict[str, float]:
    return {"zero": 0.0}


def measure_a_point(bench: Bench) -> dict[str, Samples]:
    """Time from asking for a point that does nothing to having its Record: two processes' worth of forking."""
    from hpml_plugins.testing import Context, measure_point

    nothing = Benchmark("nothing", _nothing, [Metric("zero", "s", "lower")])

    def step() -> None:
        record = measure_point(nothing, {}, Context(bench.node))
        if record.status != "ok":
            raise HpmlError(f"the empty point failed: {record.reason}")

    return {"overhead": bench.time(step, device="cpu")}


def measure_through_asv(bench: Bench, *, launch: str) -> Mapping[str, Any]:
    """Overhead per point of a real `asv run` whose points use torch and torchvision and do nothing.

    On a node with GPUs each point makes a CUDA context.  launch: asv's launch method; "spawn" may be added by the
    registry.  per_point: the whole command over its 20 points, start, discovery and the one import
    of torch included.  marginal: (20 points − 1 point) / 19, what one more point costs.
    """
    bench.progress(f"{POINTS} points by {launch}", 0.1)
    many = run_asv(POINTS, launch)
    bench.progress(f"1 point by {launch}", 0.8)
    one = run_asv(1, launch)
    bench.check(many.measured == POINTS and one.measured == 1, "asv did not measure every point")
    return {"per_point": many.seconds / POINTS, "marginal": (many.seconds - one.seconds) / (POINTS - 1)}


def _first_kernel(bench: Bench) -> dict[str, float]:
    started = time.perf_counter()
    import torch

    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    context = time.perf_counter() - started

    from hpml_plugins.plugins.harness.kernels import first_launch

    first_launch()
    return {"context": context, "first_kernel": time.perf_counter() - started}


def measure_first_kernel(bench: Bench) -> dict[str, Samples]:
    """CUDA context and a numba kernel's first launch, in processes of their own, the libraries imported before.

    first_kernel: s from the start to the finished kernel, the context included. The first process of all compiles;
    it is left out, since its compiled code is kept between processes.
    """
    from hpml_plugins.testing import Context, import_before_fork, measure_point

    import_before_fork(["torch", "numba.cuda"])  # as asv's fork server does
    metrics = [Metric("context", "s", "lower"), Metric("first_kernel", "s", "lower")]
    inner = Benchmark("first", _first_kernel, metrics, requires=Requires(gpus=1))
    found: dict[str, list[float]] = {"context": [], "first_kernel": []}
    for repetition in range(6):
        record = measure_point(inner, {}, Context(bench.node, watch=False))
        if record.status != "ok":
            raise HpmlError(f"the first kernel failed: {record.reason}")
        if repetition:
            for name, values in found.items():
                values += record.metrics[name].samples
    return {name: Samples.of(values, "s") for name, values in found.items()}


POINT = Benchmark(
    "harness_point",
    measure_a_point,
    [Metric("overhead", "s", "lower", "of an empty point")],
    description="Time to measure a point that does nothing, in a process of its own.",
    rounds=1,
)

ASV = Benchmark(
    "harness_asv",
    measure_through_asv,
    [
        Metric("per_point", "s", "lower", "the whole `asv run` over its points"),
        Metric("marginal", "s", "lower", "one more point"),
    ],
    grid={"launch": ["forkserver"]},
    requires=Requires(modules=("asv", "torch", "torchvision"), tools=("git",)),
    timeout=900,
    description="Overhead per point of `asv run` with torch and torchvision in use, 20 points that do nothing.",
    rounds=1,
)

FIRST_KERNEL = Benchmark(
    "harness_first_kernel",
    measure_first_kernel,
    [Metric("context", "s", "lower"), Metric("first_kernel", "s", "lower", "context included")],
    requires=Requires(gpus=1, modules=("torch", "numba.cuda")),
    timeout=120,
    description="CUDA context, and the first launch of a numba kernel in a fresh process.",
    rounds=1,
)
