"""Timing a step by the wall clock: short steps batched; on the CPU no garbage collection, and a look at the core."""

from __future__ import annotations

import gc
import itertools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hpml_plugins.measure.sampling import SamplingPlan, sample, warm_up
from hpml_plugins.model.samples import Samples

#: A sample lasts at least this long, s: far above the clock's resolution (about 50 ns) and the loop's own cost.
SHORTEST_SAMPLE = 1e-4
LARGEST_BATCH = 1 << 20
#: The core's rate is looked at before the first sample and after so many seconds again; its turns take 1 % of them.
LOOK_EVERY, TURNS = 0.02, 10_000


def time_on_cpu(step: Callable[[], object], plan: SamplingPlan) -> Samples:
    """Samples of the wall time of one call of `step`, s."""
    step()  # first call: lazy imports, compilation, first touch
    rates: list[float] = []
    look_at = 0.0

    def run(batch: int) -> float:
        nonlocal look_at
        if time.perf_counter() >= look_at:
            rates.append(core_rate())
            look_at = time.perf_counter() + LOOK_EVERY
        started = time.perf_counter()
        for _ in range(batch):
            step()
        return (time.perf_counter() - started) / batch

    with no_garbage_collection():
        samples = sample_wall_clock(
            run, plan, shortest=SHORTEST_SAMPLE, largest=LARGEST_BATCH, timer="perf_counter", affinity=affinity()
        )
    looks = Samples.of(rates, "1/s")
    return samples.note(core_rate=looks.median, core_variation=looks.coefficient_of_variation)


def core_rate() -> float:
    """Turns of an empty loop in Python over the time they take now, 1/s.

    About half while another program runs on the core's other hyperthread. In a virtual machine that may be another
    tenant's, which no counter of the machine shows. A chain of dependent operations hardly slows down then.
    """
    started = time.perf_counter()
    for _ in itertools.repeat(None, TURNS):
        pass
    return TURNS / (time.perf_counter() - started)


def sample_wall_clock(
    run: Callable[[int], float],
    plan: SamplingPlan,
    *,
    shortest: float,
    largest: int,
    least_warm_up: float = 0.0,
    **info: str | float,
) -> Samples:
    """Samples of `run(batch)`, which gives seconds of one step; batches grow by doubling until one lasts `shortest`."""
    batch = 1
    while batch < largest and run(batch) * batch < shortest:
        batch *= 2
    info |= warm_up(lambda: run(batch), plan, least=least_warm_up)
    return sample(lambda: (run(batch),), plan, info, batch=batch)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Garbage is collected before, and not while the block runs; nested, the outermost block decides."""
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
    cpus = enumerate(sorted(os.sched_getaffinity(0)))
    spans = [[cpu for _, cpu in span] for _, span in itertools.groupby(cpus, lambda each: each[1] - each[0])]
    return ",".join(str(span[0]) if len(span) == 1 else f"{span[0]}-{span[-1]}" for span in spans)
