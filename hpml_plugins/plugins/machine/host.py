"""The benchmarks of the host: `machine_triad`, its memory over threads, and `machine_core`, one
core."""

from __future__ import annotations

import mmap
from typing import Any

from hpml_plugins import Bench, Benchmark, Metric, Requires, Samples

#: Elements of float64 in each of three arrays: 256 MiB, more than the caches of most CPUs together.
ELEMENTS = 1 << 25
SCALAR = 3.0
#: Dependent multiply-adds of one call.
CHAIN = 1_000_000
#: Calls of a Python function in one call of the step.
PYTHON_CALLS = 10_000
PAGE = 4096
#: Pages of one mapping: 16 MiB.
PAGES = 4096
#: s of warming up in a round, and of sampling in all rounds together.
WARM_UP, BUDGET = 0.1, 0.3


def triad_bytes(elements: int) -> int:
    """B that a triad of float64 reads and writes: 24 per element; reads by the cache before a write
    are not counted.

    Source: McCalpin, STREAM, "Counting Bytes and FLOPS".
    """
    return 24 * elements


def thread_counts(most: int) -> list[int]:
    """1, 2, 4, … and `most`: of 6 threads 1, 2, 4, 6."""
    return [*(1 << power for power in range(most.bit_length()) if 1 << power < most), most]


def compiled(function: Any, **options: Any) -> Any:
    """The function, compiled by numba; its code is cached between processes if there is a folder
    for it."""
    import numba

    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:
        return numba.njit(**options)(function)


def compile_triad() -> tuple[Any, Any]:
    """`fill(a, value)`, and `triad(a, b, c, scalar)`: a = b + scalar · c, both on numba's
    threads."""
    import numba

    def fill(a: Any, value: float) -> None:
        for i in numba.prange(a.size):
            a[i] = value

    def triad(a: Any, b: Any, c: Any, scalar: float) -> None:
        for i in numba.prange(a.size):
            a[i] = b[i] + scalar * c[i]

    return compiled(fill, parallel=True), compiled(triad, parallel=True)


def measure_triad(bench: Bench) -> dict[str, Samples]:
    """Bandwidth of a = b + 3 c over numbers of threads; each array is first written by the threads
    that read it."""
    import numba
    import numpy as np

    if bench.node.ram < 6 * 8 * ELEMENTS:
        bench.skip("three arrays of 256 MiB are more than half of this node's memory")
    fill, triad = compile_triad()
    a, b, c = (np.empty(ELEMENTS) for _ in range(3))
    most = numba.config.NUMBA_NUM_THREADS
    numba.set_num_threads(most)
    # the first touch, by which Linux places the pages
    for array, value in ((a, 0.0), (b, 1.0), (c, 2.0)):
        fill(array, value)
    found: dict[int, Samples] = {}
    counts = thread_counts(most)
    for number, threads in enumerate(counts):
        bench.progress(f"{threads} threads", number / len(counts))
        numba.set_num_threads(threads)
        a[::PAGE] = 0.0
        triad(a, b, c, SCALAR)
        bench.check(
            bool((bench.result(a) == 1.0 + 2.0 * SCALAR).all()),
            f"{threads} threads: the triad differs",
        )
        time = bench.time(lambda: triad(a, b, c, SCALAR), budget=BUDGET, name=f"{threads} threads")
        found[threads] = (triad_bytes(ELEMENTS) / time).note(threads=threads)
    units = {"bandwidth": "B/s"}
    medians = [each.median for each in found.values()]
    bench.series(
        "threads", {"threads": [float(each) for each in found], "bandwidth": medians}, units
    )
    return {"bandwidth": found[most], "one_thread": found[1]}


def compile_chain() -> Any:
    """`chain(x, factor, addend, count)`: x ← factor · x + addend, `count` times, each dependent on
    the previous one."""

    def chain(x: float, factor: float, addend: float, count: int) -> float:
        for _ in range(count):
            x = factor * x + addend
        return x

    return compiled(chain, fastmath={"contract"})


def count_calls(calls: int) -> int:
    """Call a Python function `calls` times; returns the sum of its results."""

    def add(total: int, one: int) -> int:
        return total + one

    total = 0
    for _ in range(calls):
        total = add(total, 1)
    return total


def touch_pages(pages: int) -> int:
    """Map `pages` new pages of 4 KiB and write one byte of each; returns how many have it. Linux'
    huge pages are disabled."""
    with mmap.mmap(-1, pages * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        memory[::PAGE] = b"\x01" * pages
        return memory[: pages * PAGE : PAGE].count(1)


def measure_core(bench: Bench) -> dict[str, Samples]:
    """The speed of one core: dependent multiply-adds, calls of a Python function, page faults."""
    chain = compile_chain()
    bench.check(
        bench.result(chain(0.0, 1.0, 1.0, CHAIN)) == CHAIN, "the chain of multiply-adds differs"
    )
    bench.check(
        bench.result(count_calls(PYTHON_CALLS)) == PYTHON_CALLS,
        "the calls of a Python function differ",
    )
    bench.check(bench.result(touch_pages(PAGES)) == PAGES, "a page does not hold what was written")
    steps = {
        "multiply_add": lambda: chain(0.0, 1.0, 1.0, CHAIN),
        "python": lambda: count_calls(PYTHON_CALLS),
        "page_fault": lambda: touch_pages(PAGES),
    }
    plan = bench.plan.but(warm_up=WARM_UP, budget=BUDGET)
    time = {
        name: bench.time(step, device="cpu", plan=plan, name=name) for name, step in steps.items()
    }
    return {
        "multiply_add": 2 * CHAIN / time["multiply_add"],
        "python": PYTHON_CALLS / time["python"],
        "page_fault": time["page_fault"] / PAGES,
    }


TRIAD = Benchmark(
    "machine_triad",
    measure_triad,
    [
        Metric("bandwidth", "B/s", "higher", "of all threads"),
        Metric("one_thread", "B/s", "higher"),
    ],
    requires=Requires(modules=("numba", "numpy")),
    description=(
        "Bandwidth of the host's memory: STREAM's triad on float64 arrays of 256 MiB by numba, over"
        " threads."
    ),
)
CORE = Benchmark(
    "machine_core",
    measure_core,
    [
        Metric(
            "multiply_add",
            "FLOP/s",
            "higher",
            "of dependent multiply-adds of float64: follows the core's clock",
        ),
        Metric("python", "1/s", "higher", "calls of a Python function over time"),
        Metric(
            "page_fault",
            "s",
            "lower",
            "first write to a page of 4 KiB, mapping and unmapping included",
        ),
    ],
    requires=Requires(modules=("numba",)),
    description="One core of the host: dependent multiply-adds, Python's calls, page faults.",
)
BENCHMARKS = (TRIAD, CORE)
