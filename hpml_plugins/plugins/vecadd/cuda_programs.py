"""The benchmarks `vecadd_cuda` and `vecadd_unified`: a program on one GPU, with explicit and with
unified memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from hpml_plugins import Bench, Benchmark, Metric, Requires, Samples
from hpml_plugins.plugins.vecadd.vectors import (
    LAUNCHES,
    METRICS,
    MILLION,
    MILLIONS,
    bytes_moved,
    is_sum,
    require,
    shape,
    vectors,
)

TERMS = {
    "launch=1x1": "one block of one thread",
    "launch=1x256": "one block of 256 threads",
    "launch=grid": "one thread for each element",
}
MEMORIES = ("pageable", "pinned")
PREFETCHES = ("off", "on")
EXPLICIT_PHASES = ("allocation", "h2d", "kernel", "d2h", "free")
#: Excluding the host's writing of a and b, which every program has.
UNIFIED_PHASES = ("allocation", "first_touch", "read_back", "free")
#: A run longer than this, s, is repeated three times and needs no warm-up.
LONG_RUN = 1.0
FEWEST_LONG = 3
#: A kernel this long, s, is a thousand times its launch (numba's takes 30 to 60 µs): it needs no
#: separate timing.
LONG_KERNEL = 0.1
#: Limit as a share of the card's free memory. More would be paged in and out, which also slows
#: other users of the card.
LARGEST_SHARE = 0.25


def measure_explicit(
    bench: Bench, *, millions: int, launch: str, memory: str
) -> Mapping[str, Samples]:
    """Time the kernel and the program around it in the GPU's own memory.  memory: of the host;
    pinning is excluded."""
    require("launch", launch, LAUNCHES)
    require("memory", memory, MEMORIES)

    from numba import cuda

    from hpml_plugins.plugins.vecadd.cuda_kernels import free

    a, b, c = host = list(vectors(millions * MILLION, bench.seed))
    if memory == "pinned":
        a, b, c = (cuda.pinned_array(vector.shape, dtype=vector.dtype) for vector in host)
        a[:], b[:], c[:] = host

    def run(add: Callable[..., object]) -> Iterator[str]:
        on_gpu = [cuda.device_array(vector.size, dtype=vector.dtype) for vector in host]
        yield "allocation"
        on_gpu[0].copy_to_device(a)
        on_gpu[1].copy_to_device(b)
        yield "h2d"
        add(*on_gpu)
        yield "kernel"
        on_gpu[2].copy_to_host(c)
        yield "d2h"
        free(on_gpu)
        yield "free"

    return _measure(bench, launch, (a, b, c), run, EXPLICIT_PHASES)


def measure_unified(
    bench: Bench, *, millions: int, launch: str, prefetch: str
) -> Mapping[str, Samples]:
    """Time the kernel and the program around it in unified memory, allocated anew in every run.

    prefetch: "on" asks the driver to move the pages before they are touched; the phase that touches
    them includes it.
    """
    require("launch", launch, LAUNCHES)
    require("prefetch", prefetch, PREFETCHES)

    import numpy as np
    from numba import cuda

    from hpml_plugins.plugins.vecadd import cuda_kernels

    unused, _ = cuda.current_context().get_memory_info()
    if reason := too_much(bytes_moved(millions * MILLION), unused):
        bench.skip(reason)
    if prefetch == "on":
        bench.import_module("cuda.bindings.driver")
        if not cuda.get_current_device().CONCURRENT_MANAGED_ACCESS:
            bench.skip(
                "this card and driver move unified memory whole at each launch (no concurrent"
                " managed access)"
            )
    a, b, c = host = vectors(millions * MILLION, bench.seed)

    def run(add: Callable[..., object]) -> Iterator[str]:
        shared = [cuda.managed_array(vector.size, dtype=vector.dtype) for vector in host]
        yield "allocation"
        np.copyto(shared[0], a)
        np.copyto(shared[1], b)
        yield "write"
        if prefetch == "on":
            cuda_kernels.prefetch(shared, to_gpu=True)
        add(*shared)
        yield "first_touch"
        add(*shared)
        yield "kernel"
        if prefetch == "on":
            cuda_kernels.prefetch(shared[2:], to_gpu=False)
        cuda.synchronize()  # the host must not read before the pages have arrived
        np.copyto(c, shared[2])
        yield "read_back"
        cuda_kernels.free(shared)
        yield "free"

    return _measure(bench, launch, (a, b, c), run, UNIFIED_PHASES, launches=2)


def _measure(
    bench: Bench,
    launch: str,
    host: tuple[Any, Any, Any],
    run: Callable[..., Iterator[str]],
    parts_of_total: tuple[str, ...],
    launches: int = 1,
) -> Mapping[str, Samples]:
    """Check the launch, repeat whole runs of the program, and time its kernel alone.

    host: a, b and c.  run: called with a function that adds three arrays on the GPU, yields the
    name of each phase at its end, of which "kernel" is one launch over data on the GPU.  launches:
    in a run.
    """
    from numba import cuda

    from hpml_plugins.plugins.vecadd.cuda_kernels import launcher, try_lengths

    elements = host[0].size
    blocks, threads = shape(launch, elements)
    bench.progress(f"checking {blocks} × {threads} threads", 0.0)
    seconds = 0.0
    for length, right, taken in try_lengths(lambda length: launcher(launch, length), bench.seed):
        bench.check(right, f"{launch}: sum of {length} elements differs from NumPy's")
        seconds = taken / length * elements
    refuse_what_cannot_end(bench, seconds, launches=launches * FEWEST_LONG)
    add = launcher(launch, elements)
    if launches * seconds < LONG_RUN:
        time_laps(run(add), cuda.synchronize)
    phases = repeat(bench, lambda: time_laps(run(add), cuda.synchronize), parts_of_total)
    bench.check(is_sum(*host), "sum differs from NumPy's")
    alone = phases.pop("kernel")
    if alone.median < LONG_KERNEL:
        # In a run whose first launch is timed repeatedly; with unified memory the untimed first
        # call moves the pages. numba launches on the legacy default stream of the device's primary
        # context. torch's current stream is the same one unless it was changed, so the events of
        # bench.time are before and after these launches.
        timed: list[Samples] = []
        last_run = run(lambda *arrays: timed.append(bench.time(lambda: add(*arrays))))
        while not timed:
            next(last_run)
        alone = timed[0]
    else:
        alone = alone.note(launch="visible: below 0.1 % of the kernel")
    bench.work(bytes=bytes_moved(elements))
    return {"time": alone.note(blocks=blocks, threads=threads), **phases}


def time_laps(run: Iterable[str], wait: Callable[[], object]) -> dict[str, float]:
    """Seconds by the host's clock until `run` yields each name, and `wait` has waited for the
    GPU."""
    laps: dict[str, float] = {}
    wait()
    last = time.perf_counter()
    for name in run:
        wait()
        now = time.perf_counter()
        laps[name] = now - last
        last = now
    return laps


def repeat(
    bench: Bench, run: Callable[[], Mapping[str, float]], parts_of_total: tuple[str, ...]
) -> dict[str, Samples]:
    """Samples of each lap that `run` returns, s, and of their sum `total`, whose precision ends the
    sampling."""
    plan, fewest = bench.plan, bench.plan.fewest
    laps: list[dict[str, float]] = []
    started = time.perf_counter()
    converged = False
    while len(laps) < fewest or not (converged or time.perf_counter() - started >= plan.budget):
        done = run()
        laps.append({**done, "total": sum(done[name] for name in parts_of_total)})
        if laps[0]["total"] > LONG_RUN:
            fewest = min(FEWEST_LONG, fewest)
        bench.progress(
            f"run {len(laps)} of at least {fewest}", min(0.9, 0.1 + 0.8 * len(laps) / fewest)
        )
        converged = (
            Samples.of((lap["total"] for lap in laps), "s").relative_precision <= plan.precision
        )
    timer, stopped = (
        "perf_counter with device synchronisation",
        "converged" if converged else "budget",
    )
    samples = {
        name: Samples.of((lap[name] for lap in laps), "s", timer=timer, batch=1, stopped=stopped)
        for name in laps[0]
    }
    bench.warn_if_imprecise(samples["total"], "total")
    return samples


def refuse_what_cannot_end(bench: Bench, seconds: float, launches: int) -> None:
    """Skip a point that has too little time for its launches, `seconds` s each; else report how
    long they will take."""
    expected = seconds * launches
    if expected > 0.8 * bench.remaining:
        bench.skip(
            f"{launches} launches of about {seconds:.1f} s each do not fit into the"
            f" {bench.remaining:.0f} s that the point has left; give the plugin a longer timeout in"
            " registry.yaml"
        )
    if expected > 5:
        bench.progress(
            f"{launches} launches of about {seconds:.1f} s: at least {expected:.0f} s to go", 0.1
        )


def too_much(wanted: int, free: int) -> str:
    """Why `wanted` B of unified memory are not allocated; empty if they may be.  free: of the GPU's
    memory, B."""
    if wanted <= LARGEST_SHARE * free:
        return ""
    return (
        f"wants {wanted / 2**30:.2f} GiB of unified memory, more than a quarter of the"
        f" {free / 2**30:.2f} GiB that are free on the card"
    )


VECADD_CUDA = Benchmark(
    "vecadd_cuda",
    measure_explicit,
    metrics=(
        *METRICS,
        Metric("allocation", "s", "lower", "three vectors on the GPU"),
        Metric("h2d", "s", "lower", "a and b copied to the GPU"),
        Metric("d2h", "s", "lower", "c copied back"),
        Metric("free", "s", "lower", "the three vectors freed"),
        Metric(
            "total", "s", "lower", "a whole run: allocation, copies, one launch, copy back, free"
        ),
    ),
    grid={"millions": MILLIONS, "launch": LAUNCHES, "memory": MEMORIES},
    requires=Requires(gpus=1, modules=("numba.cuda", "torch")),
    version="2",
    timeout=300,  # one thread over 100 M elements takes six seconds per launch on an H200
    terms=TERMS,
    description=(
        "c = a + b of float32 vectors on one GPU: one thread, one block of 256, a thread for each"
        " element."
    ),
)
VECADD_UNIFIED = Benchmark(
    "vecadd_unified",
    measure_unified,
    metrics=(
        Metric("time", "s", "lower", "of one addition whose pages are all on the GPU"),
        METRICS[1],
        Metric("allocation", "s", "lower", "three vectors of unified memory"),
        Metric("write", "s", "lower", "the host writes a and b, its first touch of them"),
        Metric(
            "first_touch",
            "s",
            "lower",
            "the first launch: the pages of a and b move to the GPU, c's come to be",
        ),
        Metric("read_back", "s", "lower", "the host reads c: its pages move back"),
        Metric("free", "s", "lower", "the three vectors freed"),
        Metric(
            "total",
            "s",
            "lower",
            "what a run waits for: allocation, first launch, reading back, free",
        ),
    ),
    grid={"millions": MILLIONS, "launch": LAUNCHES, "prefetch": PREFETCHES},
    requires=VECADD_CUDA.requires,
    timeout=VECADD_CUDA.timeout,
    terms=TERMS,
    description=(
        "c = a + b of float32 vectors in unified memory: the first launch, which moves the pages,"
        " and later."
    ),
)
