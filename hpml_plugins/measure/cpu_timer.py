"""Time a step with the wall clock: batches short steps, disables garbage collection, and measures
the core's rate."""

from __future__ import annotations

import gc
import itertools
import os
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hpml_plugins import clocks
from hpml_plugins.measure.sampling import SamplingPlan, sample, warm_up
from hpml_plugins.model.samples import Samples

#: A sample lasts at least this long, s: far above the clock's resolution (about 50 ns) and the
#: loop's own cost.
SHORTEST_SAMPLE = 1e-4
LARGEST_BATCH = 1 << 20
#: s between two measurements of the core's speed.
RATE_EVERY = 0.02
#: Iterations of the measuring loop, which take 1 % of that time.
ITERATIONS = 10_000
#: s that the first access to a page takes if the process has it already, so that Linux maps or
#: copies it.
PAGE_FAULT = 2e-6
#: s that the first access to a new page takes: a virtual machine may have to ask its host for it. A
#: huge page is one fault and 512 new pages.
NEW_PAGE = 1e-5
#: Share of a first call that these may be for it to say anything.
MOST_ON_MEMORY = 0.5


def time_on_cpu(
    step: Callable[[], object],
    plan: SamplingPlan,
    setup: Callable[[], object] | None = None,
) -> Samples:
    """Samples of the wall time of one call of `step`, s.

    setup: called before each call of the step, untimed; the step is then not batched.
    """
    info = first_call(step, setup)
    rates: list[float] = []
    due = 0.0

    def run(batch: int) -> float:
        nonlocal due
        if clocks.perf_counter() >= due:
            rates.append(core_rate())
            due = clocks.perf_counter() + RATE_EVERY
        if setup:
            setup()
        started = clocks.perf_counter()
        for _ in range(batch):
            step()
        return (clocks.perf_counter() - started) / batch

    with no_garbage_collection():
        samples = sample_wall_clock(
            run,
            plan,
            shortest=SHORTEST_SAMPLE,
            largest=1 if setup else LARGEST_BATCH,
            timer="perf_counter",
            affinity=affinity(),
            **info,
        )
    found = Samples.of(rates, "1/s")
    return samples.note(
        core_rate=found.median, core_variation=found.coefficient_of_variation
    )


def time_once(step: Callable[[], object]) -> Samples:
    """The wall time of one call of a step that was called before, s: for steps that take
    seconds."""
    started = clocks.perf_counter()
    step()
    seconds = clocks.perf_counter() - started
    return Samples.of([seconds], "s", timer="perf_counter", affinity=affinity(), batch=1)


def first_call(
    step: Callable[[], object], setup: Callable[[], object] | None = None
) -> dict[str, float]:
    """Call the step once. Returns `first_call` for the samples' info, s of CPU time.

    The first call may import, compile and touch memory, which later calls do not. Nothing is
    returned if code was loaded, or if first accesses to memory took a large part of the time: their
    cost depends on the machine and its load. A `first_call` much longer than the samples therefore
    means that later calls do less work, as when the step sorts its input in place.
    """
    if setup:
        setup()
    code = _loaded_code()
    memory_time = _memory_time()
    started = clocks.perf_counter()
    cpu_started = clocks.process_time()
    step()
    # the smaller: the wall time includes waiting, the CPU time adds up all threads
    seconds = min(clocks.perf_counter() - started, clocks.process_time() - cpu_started)
    on_memory = max(0.0, _memory_time() - memory_time)
    if on_memory > MOST_ON_MEMORY * seconds or _loaded_code() != code:
        return {}
    return {"first_call": seconds - on_memory}


def _loaded_code() -> tuple[int, int]:
    """The numbers of Python modules and of executable mappings, which compilers and libraries
    add."""
    mappings = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    return len(sys.modules), sum("x" in mapping.split()[1] for mapping in mappings)


def _memory_time() -> float:
    """s that this process may have spent on first accesses to memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    return NEW_PAGE * pages + PAGE_FAULT * faults


def core_rate() -> float:
    """Iterations of an empty Python loop per second, measured now.

    About half as many while another program runs on the core's other hyperthread. In a virtual
    machine that program may belong to another tenant, where no counter of the machine shows it.
    Latency-bound code is hardly affected.
    """
    started = clocks.perf_counter()
    for _ in itertools.repeat(None, ITERATIONS):
        pass
    return ITERATIONS / (clocks.perf_counter() - started)


def sample_wall_clock(
    run: Callable[[int], float],
    plan: SamplingPlan,
    *,
    shortest: float,
    largest: int,
    least_warm_up: float = 0.0,
    **info: str | float,
) -> Samples:
    """Samples of `run(batch)`, which returns seconds of one step; the batch is doubled until it
    lasts `shortest`."""
    batch = 1
    while batch < largest and run(batch) * batch < shortest:
        batch *= 2
    info |= warm_up(lambda: run(batch), plan, least=least_warm_up)
    return sample(lambda: (run(batch),), plan, info, batch=batch)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Collect garbage first, and disable collection while the block runs; nested, the outermost
    block decides."""
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
    """The CPUs that this process may run on, in Linux notation: `0-3,8`."""
    spans: list[list[int]] = []
    for cpu in sorted(os.sched_getaffinity(0)):
        if spans and cpu == spans[-1][-1] + 1:
            spans[-1].append(cpu)
        else:
            spans.append([cpu])
    ends = [dict.fromkeys((span[0], span[-1])) for span in spans]
    return ",".join("-".join(map(str, each)) for each in ends)
