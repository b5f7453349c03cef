"""How finely the clocks can tell two moments apart, and what timing nothing reads."""

from __future__ import annotations

import itertools
import time

from hpml_plugins import Bench, Benchmark, Metric, Requires, Samples

METRICS = (
    Metric("resolution", "s", "lower", "smallest difference between two readings that is not zero"),
    Metric("empty", "s", "lower", "what timing a step that does nothing reads"),
)


def _nothing() -> None:
    return None


def measure_cpu(bench: Bench) -> dict[str, Samples]:
    """perf_counter: its step, and the harness's own loop per call."""
    steps = []
    for _ in range(1000):
        first = now = time.perf_counter()
        while now == first:
            now = time.perf_counter()
        steps.append(now - first)
    return {"resolution": Samples.of([min(steps)], "s"), "empty": bench.time(_nothing, device="cpu")}


def measure_gpu(bench: Bench) -> dict[str, Samples]:
    """CUDA events: their step, and what stands between two of them with an empty kernel between."""
    import torch

    torch.cuda.init()
    readings = set()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2000)]
    torch.cuda._sleep(10_000_000)
    for event in events:
        event.record()
    torch.cuda.synchronize()
    for before, after in itertools.pairwise(events):
        readings.add(round(float(before.elapsed_time(after)) * 1e-3, 12))
    ordered = sorted(readings)
    gaps = [b - a for a, b in itertools.pairwise(ordered)] or ordered
    one = torch.zeros(1, device="cuda")
    return {"resolution": Samples.of([min(gaps)], "s"), "empty": bench.time(lambda: one.add_(1), cache="cold")}


TIMER = Benchmark(
    "harness_timer", measure_cpu, METRICS, description="Resolution of the CPU's clock, and the timer's own cost."
)
GPU_TIMER = Benchmark(
    "harness_gpu_timer",
    measure_gpu,
    METRICS,
    requires=Requires(gpus=1, modules=("torch",)),
    description="Resolution of CUDA events, and what timing a kernel on one element reads.",
)
