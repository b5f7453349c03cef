"""Timing a step on the CPU: garbage collection off, short steps batched, affinity recorded."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable

from hpml_plugins.measure.sampling import Plan, sample, warm_up
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
        warmed, stable = warm_up(take, plan)
        return sample(
            lambda: (take(),),
            plan,
            batch=batch,
            timer="perf_counter",
            affinity=affinity(),
            warm_up=warmed,
            warm="stable" if stable else "not stable",
        )
    finally:
        if was_enabled:
            gc.enable()


def affinity() -> str:
    """The CPUs that this process may run on, as Linux writes them: `0-3,8`."""
    if not hasattr(os, "sched_getaffinity"):
        return ""
    spans: list[list[int]] = []
    for cpu in sorted(os.sched_getaffinity(0)):
        if spans and cpu == spans[-1][1] + 1:
            spans[-1][1] = cpu
        else:
            spans.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def _batch(step: Callable[[], object]) -> int:
    """How many calls make one sample long enough; grown by doubling."""
    batch = 1
    while True:
        started = time.perf_counter()
        for _ in range(batch):
            step()
        elapsed = time.perf_counter() - started
        if elapsed >= SHORTEST_SAMPLE or batch >= 1 << 20:
            return batch
        batch *= 2
