"""Timing a step by the wall clock: short steps batched; on the CPU no garbage collection, and the
core's rate."""

from __future__ import annotations

import gc
import itertools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hpml_plugins.measure.sampling import SamplingPlan, sample, warm_up
from hpml_plugins.model.samples import Samples

#: A sample lasts at least this long, s: far above the clock's resolution (about 50 ns) and the
#: loop's own cost.
SHORTEST_SAMPLE = 1e-4
LARGEST_BATCH = 1 << 20
#: s between two measurements of the core's rate, and iterations of the loop that measures it: 1 %
#: of that time.
RATE_EVERY, ITERATIONS = 0.02, 10_000


def time_on_cpu(step: Callable[[], object], plan: SamplingPlan) -> Samples:
    """Samples of the wall time of one call of `step`, s."""
    step()  # first call: lazy imports, compilation, first touch
    rates: list[float] = []
    due = 0.0

    def run(batch: int) -> float:
        nonlocal due
        if time.perf_counter() >= due:
            rates.append(core_rate())
            due = time.perf_counter() + RATE_EVERY
        started = time.perf_counter()
        for _ in range(batch):
            step()
        return (time.perf_counter() - started) / batch

    with no_garbage_collection():
        samples = sample_wall_clock(
            run,
            plan,
            shortest=SHORTEST_SAMPLE,
            largest=LARGEST_BATCH,
            timer="perf_counter",
            affinity=affinity(),
        )
    found = Samples.of(rates, "1/s")
    return samples.note(core_rate=found.median, core_variation=found.coefficient_of_variation)


def core_rate() -> float:
    """Iterations of an empty Python loop per second, measured now.

    About half as many while another program runs on the core's other hyperthread. In a virtual
    machine that program may belong to another tenant, and no counter of the machine shows it.
    Latency-bound code is hardly affected.
    """
    started = time.perf_counter()
    for _ in itertools.repeat(None, ITERATIONS):
        pass
    return ITERATIONS / (time.perf_counter() - started)


def sample_wall_clock(
    run: Callable[[int], float],
    plan: SamplingPlan,
    *,
    shortest: float,
    largest: int,
    least_warm_up: float = 0.0,
    **info: str | float,
) -> Samples:
    """Samples of `run(batch)`, which gives seconds of one step; batches grow by doubling until one
    lasts `shortest`."""
    batch = 1
    while batch < largest and run(batch) * batch < shortest:
        batch *= 2
    info |= warm_up(lambda: run(batch), plan, least=least_warm_up)
    return sample(lambda: (run(batch),), plan, info, batch=batch)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Garbage is collected before, and not while the block runs; nested, the outermost block
    decides."""
    if not gc.isenabled():
        yield
        return
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def affinity() -> str:
    """The CPUs that this process may run on, as Linux writes them: `0-3,8`."""
    spans: list[list[int]] = []
    for cpu in sorted(os.sched_getaffinity(0)):
        if spans and cpu == spans[-1][-1] + 1:
            spans[-1].append(cpu)
        else:
            spans.append([cpu])
    return ",".join(str(span[0]) if len(span) == 1 else f"{span[0]}-{span[-1]}" for span in spans)
