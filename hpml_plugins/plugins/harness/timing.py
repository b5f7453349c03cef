"""The benchmarks of timing: the clocks' resolution, a kernel's time by ncu and do_bench, and known
slow-downs.

Resolution: `harness_timer`, `harness_gpu_timer`. Accuracy: `harness_fidelity`, `harness_slowdown`;
for the latter, `tests/measurement_tables.py power` reports how often a comparison finds the
slow-down.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import time
from typing import Any

from hpml_plugins import Bench, Benchmark, Metric, Requires, Samples, count_kernels

CASES = ("vecadd_1m", "vecadd_10m", "vecadd_100m", "matmul_2048", "matmul_4096", "softmax_8192")
#: How often a step runs between the profiler's start and stop.
PROFILED = 10
DURATION = "gpu__time_duration.sum"
#: s of sampling a slowed kernel, all rounds together: enough for kernels that do not throttle.
SLOWDOWN_BUDGET = 1.0


CLOCK_METRICS = (
    Metric("resolution", "s", "lower", "smallest difference between two readings that is not zero"),
    Metric("empty", "s", "lower", "what timing a step that does nothing reads"),
)


def measure_cpu(bench: Bench) -> dict[str, Samples]:
    """perf_counter: its step, and the harness's own loop per call."""
    steps = []
    for _ in range(1000):
        first = now = time.perf_counter()
        while now == first:
            now = time.perf_counter()
        steps.append(now - first)
    return {
        "resolution": Samples.of([min(steps)], "s"),
        "empty": bench.time(lambda: None, device="cpu"),
    }


def measure_gpu(bench: Bench) -> dict[str, Samples]:
    """CUDA events: their step, and the time between two of them around an empty kernel."""
    import torch

    torch.cuda.init()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2000)]
    torch.cuda._sleep(10_000_000)
    for event in events:
        event.record()
    torch.cuda.synchronize()
    seconds = (
        float(before.elapsed_time(after)) * 1e-3 for before, after in itertools.pairwise(events)
    )
    ordered = sorted({round(each, 12) for each in seconds})
    gaps = [b - a for a, b in itertools.pairwise(ordered)] or ordered
    one = torch.zeros(1, device="cuda")
    return {
        "resolution": Samples.of([min(gaps)], "s"),
        "empty": bench.time(lambda: one.add_(1), cache="cold"),
    }


TIMER = Benchmark(
    "harness_timer",
    measure_cpu,
    CLOCK_METRICS,
    description="Resolution of the CPU's clock, and the timer's own cost.",
)
GPU_TIMER = Benchmark(
    "harness_gpu_timer",
    measure_gpu,
    CLOCK_METRICS,
    requires=Requires(gpus=1, modules=("torch",)),
    description="Resolution of CUDA events, and what timing a kernel on one element reads.",
)


def measure_fidelity(bench: Bench, *, case: str) -> dict[str, Any]:
    """Time one step by events, by ncu with warm and with emptied caches, and by do_bench, which
    leaves the L2 dirty."""
    bench.progress("ncu", 0.1)
    ncu = {f"ncu_{cache}": time_by_ncu(case, cold=cache == "cold") for cache in ("hot", "cold")}

    from triton.testing import do_bench

    from hpml_plugins.plugins.harness.kernels import step_of

    step = step_of(case)
    bench.progress("events", 0.6)
    times = {cache: bench.time(step, cache=cache, name=cache) for cache in ("hot", "cold", "dirty")}
    peer = do_bench(step, warmup=50, rep=500, return_mode="median") * 1e-3
    alone = statistics.median(times["hot"].boost or times["hot"].values)
    return {
        **times,
        **ncu,
        "do_bench": peer,
        "error": alone / ncu["ncu_hot"] - 1,
        "cold_error": times["cold"].median / ncu["ncu_cold"] - 1,
        "do_bench_difference": times["dirty"].median / peer - 1,
    }


def time_by_ncu(case: str, *, cold: bool) -> float:
    """Median time of a step by ncu, s: the sum of its kernels.  cold: with caches emptied before
    each kernel."""
    kernels = "hpml_plugins.plugins.harness.kernels"
    program = [sys.executable, "-m", kernels, case, str(PROFILED)]
    durations = [
        kernel.counters[DURATION] for kernel in count_kernels(program, [DURATION], cold=cold)
    ]
    count = len(durations) // PROFILED
    steps = (durations[step * count : (step + 1) * count] for step in range(PROFILED))
    return statistics.median(map(sum, steps))


FIDELITY = Benchmark(
    "harness_fidelity",
    measure_fidelity,
    [
        *(
            Metric(name, "s", "lower")
            for name in ("hot", "cold", "dirty", "ncu_hot", "ncu_cold", "do_bench")
        ),
        Metric(
            "error",
            "1",
            None,
            "hot (boost if the card throttles: ncu's kernels run one at a time) / ncu − 1",
        ),
        Metric("cold_error", "1", None, "cold / ncu with emptied caches − 1"),
        Metric("do_bench_difference", "1", None, "dirty / do_bench − 1"),
    ],
    grid={"case": CASES},
    requires=Requires(gpus=1, modules=("torch", "numba.cuda", "triton"), tools=("ncu",)),
    timeout=300,
    version="2",
    description="Event timing of a kernel against ncu's gpu__time_duration and Triton's do_bench.",
    rounds=1,
)


def measure_slowdown(bench: Bench, *, kernel: str, slowdown: int) -> dict[str, Samples]:
    """Time a kernel, see `kernels.slowed_step`, whose loop has `slowdown` % more iterations."""
    from hpml_plugins.plugins.harness.kernels import slowed_step

    step = slowed_step(kernel, slowdown, bench.seed)
    step.run()
    error = step.error(bench.result(step.result()))
    bench.check(
        error <= step.tolerance, f"{kernel}: the result differs from the exact one by {error:.1e}"
    )
    return {"time": bench.time(step.run, budget=SLOWDOWN_BUDGET)}


SLOWDOWN = Benchmark(
    "harness_slowdown",
    measure_slowdown,
    [Metric("time", "s", "lower", "of one launch")],
    grid={"kernel": ("registers", "memory", "products"), "slowdown": (0, 2, 5, 10)},
    requires=Requires(gpus=1, gpu_memory=12e9, modules=("torch", "numba.cuda")),
    timeout=60,
    description=(
        "Kernels whose loop is longer by 0, 2, 5 or 10 %: a slow-down that a comparison of two runs"
        " must find."
    ),
)
