"""Timing a step on the CPU: garbage collection off, short steps batched."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

from hpml_plugins.measuring.sampling import Plan, sample
from hpml_plugins.model.samples import Samples

#: A sample lasts at least this long, s: far above the clock's resolution (about 50 ns) and the loop's own cost.
SHORTEST_SAMPLE = 1e-4


def time_on_cpu(step: Callable[[], object], plan: Plan) -> Samples:
    """Samples of the wall time of one call of `step`, s."""
    step()  # first call: lazy imports, compilation, first touch
    batch = _batch(step)

    def take() -> float:
        started = time.perf_counter()
        for _ in range(batch):
            step()
        return (time.perf_counter() - started) / batch

    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        return sample(take, plan, timer="perf_counter", batch=batch)
    finally:
        if was_enabled:
            gc.enable()


def _batch(step: Callable[[], object]) -> int:
    """How many calls make one sample long enough; grown by doubling, which also warms the step up."""
    batch = 1
    while True:
        started = time.perf_counter()
        for _ in range(batch):
            step()
        elapsed = time.perf_counter() - started
        if elapsed >= SHORTEST_SAMPLE or batch >= 1 << 20:
            return batch
        batch *= 2
