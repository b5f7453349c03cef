"""Timing a step on the GPU: CUDA events on the current stream around a batch of calls."""

from __future__ import annotations

import time
from collections.abc import Callable

from hpml_plugins.measuring.sampling import Plan, sample
from hpml_plugins.model.samples import Samples

#: A batch lasts at least this long, s, so that the gap before its first launch is a small part of it.
SHORTEST_SAMPLE = 2e-3
LARGEST_BATCH = 1000


def time_on_gpu(step: Callable[[], object], plan: Plan) -> Samples:
    """Samples of the GPU's time for one call of `step`, s. The step need not synchronise."""
    import torch

    def take_batch(batch: int) -> float:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(batch):
            step()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3 / batch

    step()
    torch.cuda.synchronize()
    started = time.perf_counter()
    batch, seconds = 1, take_batch(1)
    while seconds * batch < SHORTEST_SAMPLE and batch < LARGEST_BATCH:
        batch *= 2
        seconds = take_batch(batch)
    while time.perf_counter() - started < 0.05:  # clocks rise within tens of milliseconds of load
        take_batch(batch)
    return sample(lambda: take_batch(batch), plan, timer="cuda events", batch=batch)
