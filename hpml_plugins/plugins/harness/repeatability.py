"""Does the same point give the same number again, and does watching the GPU change it?"""

from __future__ import annotations

import statistics

from hpml_plugins import Bench, Benchmark, HpmlError, Metric, Requires, Samples

RUNS = 10


def _step_time(bench: Bench, *, case: str) -> dict[str, Samples]:
    from hpml_plugins.plugins.harness.kernels import step_of

    return {"time": bench.time(step_of(case))}


def _median(bench: Bench, case: str, *, watch: bool) -> float:
    from hpml_plugins.testing import Context, measure_point

    inner = Benchmark(
        "inner", _step_time, [Metric("time", "s", "lower")], grid={"case": [case]}, requires=Requires(gpus=1)
    )
    record = measure_point(inner, {"case": case}, Context(bench.node, watch=watch))
    if record.status != "ok":
        raise HpmlError(f"the inner point failed: {record.reason}")
    return statistics.median(record.metrics["time"].samples)


def measure_spread(bench: Bench, *, case: str) -> dict[str, float]:
    """(largest − smallest) / median of the medians of ten runs of one point, each in a process of its own."""
    medians = []
    for run in range(RUNS):
        bench.progress(f"run {run + 1} of {RUNS}", run / RUNS)
        medians.append(_median(bench, case, watch=True))
    bench.series("medians", {"run": list(range(RUNS)), "time": medians}, {"run": "1", "time": "s"})
    return {"spread": (max(medians) - min(medians)) / statistics.median(medians)}


def measure_watcher(bench: Bench, *, case: str) -> dict[str, float]:
    """Median over pairs of (step's time watched / not watched) − 1; which goes first changes from pair to pair."""
    ratios = []
    for pair in range(RUNS // 2):
        bench.progress(f"pair {pair + 1} of {RUNS // 2}", 2 * pair / RUNS)
        order = (True, False) if pair % 2 else (False, True)
        times = {watch: _median(bench, case, watch=watch) for watch in order}
        ratios.append(times[True] / times[False])
    return {"cost": statistics.median(ratios) - 1}


CASES = ("vecadd_100m", "matmul_4096")
ON_GPU = Requires(gpus=1, modules=("torch", "numba.cuda"))

SPREAD = Benchmark(
    "harness_spread",
    measure_spread,
    [Metric("spread", "1", "lower", "of the medians of ten runs")],
    grid={"case": CASES},
    requires=ON_GPU,
    timeout=300,
    description="How far the median of one point moves over ten runs.",
)
WATCHER = Benchmark(
    "harness_watcher",
    measure_watcher,
    [Metric("cost", "1", "lower", "share of the step's time")],
    grid={"case": CASES},
    requires=ON_GPU,
    timeout=300,
    description="What watching the GPU through NVML costs the step that is measured.",
)
