"""The benchmarks `harness_spread` and `harness_watcher`: repeatability of a point, and the cost of
monitoring the GPU."""

from __future__ import annotations

import statistics

from hpml_plugins import Bench, Benchmark, Metric, Requires, Samples
from hpml_plugins.model import MetricSamples
from hpml_plugins.plugins.harness.overhead import measure_inner

RUNS = 10
#: The first six throttle on an H200 (700 W), the others do not.
SPREAD_CASES = (
    "matmul_4096",
    "matmul_8192",
    "matmul_fp8_8192",
    "matmul_tf32_8192",
    "attention_2048",
    "matmul_2048",
    "matmul_float32_4096",
    "vecadd_100m",
)
ON_GPU = Requires(gpus=1, modules=("torch", "numba.cuda"))


def _step_time(bench: Bench, *, case: str) -> dict[str, Samples]:
    from hpml_plugins.plugins.harness.kernels import step_of

    return {"time": bench.time(step_of(case))}


def _measure(bench: Bench, case: str, *, watch: bool = True) -> MetricSamples:
    """The step's time, measured in a separate process."""
    time = [Metric("time", "s", "lower")]
    inner = Benchmark("inner", _step_time, time, grid={"case": [case]}, requires=Requires(gpus=1))
    return measure_inner(bench, inner, {"case": case}, watch=watch)["time"]


def measure_spread(bench: Bench, *, case: str) -> dict[str, float]:
    """Medians, and their coefficients of variation, of ten runs of one point, each in its own
    process."""
    runs = []
    for run in range(RUNS):
        bench.progress(f"run {run + 1} of {RUNS}", run / RUNS)
        runs.append(_measure(bench, case))
    times = Samples.of([statistics.median(run.samples) for run in runs], "s")
    boosts = Samples.of([statistics.median(run.boost or run.samples) for run in runs], "s")
    bench.series(
        "runs", {"time": times.values, "boost": boosts.values}, {"time": "s", "boost": "s"}
    )
    if unsettled := sum(run.info["stopped"] not in ("settled", "converged") for run in runs):
        bench.warn(f"{unsettled} of {RUNS} runs neither converged nor settled")
    return {
        "time": times.median,
        "boost": boosts.median,
        "time_variation": times.coefficient_of_variation,
        "boost_variation": boosts.coefficient_of_variation,
    }


SPREAD = Benchmark(
    "harness_spread",
    measure_spread,
    [
        Metric(
            "time",
            "s",
            "lower",
            "of one step: median over ten runs; sustained where the card throttles",
        ),
        Metric("boost", "s", "lower", "of one step before the card throttles"),
        Metric("time_variation", "1", "lower", "coefficient of variation over ten runs"),
        Metric("boost_variation", "1", "lower", "coefficient of variation over ten runs"),
    ],
    grid={"case": SPREAD_CASES},
    requires=ON_GPU,
    version="2",  # 1: the range of one regime
    timeout=300,
    description="How far the median of one point moves over ten runs.",
    rounds=1,
)


def measure_watcher(bench: Bench, *, case: str) -> dict[str, float]:
    """Median over pairs of (step's time monitored / not monitored) − 1; the order alternates
    between pairs."""
    ratios = []
    for pair in range(RUNS // 2):
        bench.progress(f"pair {pair + 1} of {RUNS // 2}", 2 * pair / RUNS)
        order = (True, False) if pair % 2 else (False, True)
        times = {
            watch: statistics.median(_measure(bench, case, watch=watch).samples) for watch in order
        }
        ratios.append(times[True] / times[False])
    return {"cost": statistics.median(ratios) - 1}


WATCHER = Benchmark(
    "harness_watcher",
    measure_watcher,
    [Metric("cost", "1", "lower", "share of the step's time")],
    # monitoring is needed to distinguish the regimes of a step that throttles; its cost is measured
    # on a step that does not
    grid={"case": ("vecadd_100m", "matmul_float32_4096")},
    requires=ON_GPU,
    timeout=300,
    description="What watching the GPU through NVML costs the step that is measured.",
    rounds=1,
)
