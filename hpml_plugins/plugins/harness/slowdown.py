"""Kernels made slower by a known share: `tests/measurement_tables.py power` tells how often a comparison finds it."""

from __future__ import annotations

from hpml_plugins import Bench, Benchmark, Metric, Requires, Samples

#: s of sampling, all rounds together: enough for kernels that are not throttled.
BUDGET = 1.0


def measure(bench: Bench, *, kernel: str, slowdown: int) -> dict[str, Samples]:
    """Time a kernel whose loop has `slowdown` % more iterations.

    kernel: see `slowed_kernels.slowed_step`.
    """
    from hpml_plugins.plugins.harness.slowed_kernels import slowed_step

    step = slowed_step(kernel, slowdown, bench.seed)
    step.run()
    error = step.error(bench.result(step.result()))
    bench.check(error <= step.tolerance, f"{kernel}: the result differs from the exact one by {error:.1e}")
    return {"time": bench.time(step.run, budget=BUDGET)}


SLOWDOWN = Benchmark(
    "harness_slowdown",
    measure,
    [Metric("time", "s", "lower", "of one launch")],
    grid={"kernel": ("registers", "memory", "products"), "slowdown": (0, 2, 5, 10)},
    requires=Requires(gpus=1, gpu_memory=12e9, modules=("torch", "numba.cuda")),
    version="1",
    timeout=60,
    description="Kernels whose loop is longer by 0, 2, 5 or 10 %: a slow-down that a comparison of two runs must find.",
)
