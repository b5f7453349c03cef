"""Is a kernel's time its time? Held against Nsight Compute and against Triton's do_bench."""

from __future__ import annotations

from typing import Any

from hpml_plugins import Bench, Benchmark, Metric, Requires, Samples

CASES = ("vecadd_1m", "vecadd_10m", "vecadd_100m", "matmul_2048", "matmul_4096", "softmax_8192")


def measure(bench: Bench, *, case: str) -> dict[str, Any]:
    """Time one step hot and cold, by ncu with warm and with emptied caches, and by do_bench.

    error: hot over ncu with caches left alone, minus 1.  cold_error: cold over ncu with emptied caches, minus 1.
    do_bench_difference: dirty over do_bench, minus 1; do_bench leaves the L2 full of dirty lines, and so does "dirty".
    """
    from hpml_plugins.plugins.harness import ncu

    bench.progress("ncu", 0.1)
    truth = {cold: ncu.durations(case, cold=cold) for cold in (False, True)}

    from triton.testing import do_bench

    from hpml_plugins.plugins.harness.kernels import PROFILED, step_of

    step = step_of(case)
    bench.progress("events", 0.6)
    hot = bench.time(step, name="hot")
    cold = bench.time(step, cache="cold", name="cold")
    dirty = bench.time(step, cache="dirty", name="dirty")
    peer = do_bench(step, warmup=50, rep=500, return_mode="median") * 1e-3
    # A step may be several kernels: ncu gives each, the step is their sum.
    per_step = {cold: _median_step(values, PROFILED) for cold, values in truth.items()}
    return {
        "hot": hot,
        "cold": cold,
        "dirty": dirty,
        "ncu_hot": per_step[False],
        "ncu_cold": per_step[True],
        "do_bench": peer,
        "error": Samples((hot.median / per_step[False] - 1,)),
        "cold_error": Samples((cold.median / per_step[True] - 1,)),
        "do_bench_difference": Samples((dirty.median / peer - 1,)),
    }


def _median_step(durations: list[float], steps: int) -> float:
    import statistics

    kernels = len(durations) // steps
    return statistics.median(sum(durations[i * kernels : (i + 1) * kernels]) for i in range(steps))


FIDELITY = Benchmark(
    "harness_fidelity",
    measure,
    [
        Metric("hot", "s", "lower"),
        Metric("cold", "s", "lower"),
        Metric("dirty", "s", "lower"),
        Metric("ncu_hot", "s", "lower"),
        Metric("ncu_cold", "s", "lower"),
        Metric("do_bench", "s", "lower"),
        Metric("error", "1", None, "hot / ncu − 1"),
        Metric("cold_error", "1", None, "cold / ncu with emptied caches − 1"),
        Metric("do_bench_difference", "1", None, "dirty / do_bench − 1"),
    ],
    grid={"case": CASES},
    requires=Requires(gpus=1, modules=("torch", "numba.cuda", "triton"), tools=("ncu",)),
    timeout=300,
    description="Event timing of a kernel against ncu's gpu__time_duration and Triton's do_bench.",
    rounds=1,
)
