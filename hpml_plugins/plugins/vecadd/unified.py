"""The benchmark `vecadd_unified`: memory that the host and the GPU share, its pages moved by the driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hpml_plugins import Bench, Benchmark, HpmlError, Metric, Requires, Samples
from hpml_plugins.plugins.vecadd.launches import LAUNCHES, shape
from hpml_plugins.plugins.vecadd.runs import FEWEST_LONG, LONG_KERNEL, Stopwatch, repeat, warm_up
from hpml_plugins.plugins.vecadd.vectors import METRICS, MILLION, MILLIONS, bandwidth, bytes_moved, is_sum, vectors

PREFETCHES = ("off", "on")
#: What a run waits for. The host's own writing of a and b is not part of it: no program is without it.
PHASES = ("allocation", "first_touch", "read_back", "free")
#: Of the card's free memory. More than fits would be paged in and out; on a shared node, at somebody else's cost too.
LARGEST_SHARE = 0.25


def measure(bench: Bench, *, millions: int, launch: str, prefetch: str) -> Mapping[str, Samples]:
    """Time c = a + b of `millions` million float32 in unified memory: the first launch, which moves pages, and later.

    launch: "1x1", "1x256" or "grid", see `launches.shape`.  prefetch: "on" asks the driver to move the pages before
    they are touched, and what that takes belongs to the phase it serves. Every run allocates anew, so that no page is
    on the GPU when it is first touched there. Raises HpmlError for another launch or prefetch.
    """
    elements = millions * MILLION
    blocks, threads = shape(launch, elements)
    if prefetch not in PREFETCHES:
        raise HpmlError(f"vecadd_unified has no prefetch {prefetch!r}; use one of {', '.join(PREFETCHES)}")

    import numpy as np
    from numba import cuda

    from hpml_plugins.plugins.vecadd.cuda_kernels import launcher
    from hpml_plugins.plugins.vecadd.device import check_launch, free_now, refuse_what_cannot_end
    from hpml_plugins.plugins.vecadd.prefetch import CPU, GPU, prefetch_to, why_not

    free, _ = cuda.current_context().get_memory_info()
    if reason := too_much(bytes_moved(elements), free):
        bench.skip(reason)
    if prefetch == "on" and (reason := why_not()):
        bench.skip(reason)
    move = prefetch_to if prefetch == "on" else _leave_to_faults

    bench.progress(f"checking {blocks} × {threads} threads", 0.0)
    seconds = check_launch(bench, launch) * elements
    refuse_what_cannot_end(bench, seconds, launches=2 * FEWEST_LONG)

    a, b, c = vectors(elements, bench.seed)
    add = launcher(launch, elements)

    def run() -> Mapping[str, float]:
        watch = Stopwatch(cuda.synchronize)
        shared = [cuda.managed_array(elements, dtype=a.dtype) for _ in (a, b, c)]
        watch.lap("allocation")
        np.copyto(shared[0], a)
        np.copyto(shared[1], b)
        watch.lap("write")
        move(shared, GPU)
        add(*shared)
        watch.lap("first_touch")
        add(*shared)
        watch.lap("again")
        move(shared[2:], CPU)
        cuda.synchronize()  # the host may read only what has arrived
        np.copyto(c, shared[2])
        watch.lap("read_back")
        shared.clear()
        free_now()
        watch.lap("free")
        return watch.laps

    warm_up(run, 2 * seconds)
    phases = repeat(bench, run, PHASES)
    bench.check(is_sum(a, b, c), "sum differs from NumPy's")
    kernel = phases.pop("again")
    if kernel.median < LONG_KERNEL:
        shared = [cuda.managed_array(elements, dtype=a.dtype) for _ in (a, b, c)]
        np.copyto(shared[0], a)
        np.copyto(shared[1], b)
        kernel = bench.time(lambda: add(*shared))  # its first call moves the pages, untimed
    else:
        kernel = replace(kernel, info={**kernel.info, "launch": "visible: below 0.1 % of the kernel"})
    kernel = replace(kernel, info={**kernel.info, "blocks": blocks, "threads": threads})
    return {"time": kernel, "bandwidth": bandwidth(elements, kernel), **phases}


def too_much(wanted: int, free: int) -> str:
    """Why so much unified memory is not asked for; empty where it may be.  wanted, free: B, the GPU's free memory."""
    if wanted <= LARGEST_SHARE * free:
        return ""
    return (
        f"wants {wanted / 2**30:.2f} GiB of unified memory, more than a quarter of the {free / 2**30:.2f} GiB "
        "that are free on the card"
    )


def _leave_to_faults(vectors: object, place: int) -> None:
    """Nothing: a page moves when it is touched."""


VECADD_UNIFIED = Benchmark(
    "vecadd_unified",
    measure,
    metrics=(
        Metric("time", "s", "lower", "of one addition whose pages are all on the GPU"),
        METRICS[1],
        Metric("allocation", "s", "lower", "three vectors of unified memory"),
        Metric("write", "s", "lower", "the host writes a and b, its first touch of them"),
        Metric("first_touch", "s", "lower", "the first launch: the pages of a and b move to the GPU, c's come to be"),
        Metric("read_back", "s", "lower", "the host reads c: its pages move back"),
        Metric("free", "s", "lower", "the three vectors freed"),
        Metric("total", "s", "lower", "what a run waits for: allocation, first launch, reading back, free"),
    ),
    grid={"millions": MILLIONS, "launch": LAUNCHES, "prefetch": PREFETCHES},
    requires=Requires(gpus=1, modules=("numba.cuda", "torch")),
    version="1",
    timeout=300,  # one thread over 100 M elements takes six seconds a launch on an H200
    description="c = a + b of float32 vectors in unified memory: the first launch, which moves the pages, and later.",
)
