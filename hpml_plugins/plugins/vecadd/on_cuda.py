"""The benchmark `vecadd_cuda`: memory of the GPU's own, copied to and from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hpml_plugins import Bench, Benchmark, HpmlError, Metric, Requires, Samples
from hpml_plugins.plugins.vecadd.launches import LAUNCHES, shape
from hpml_plugins.plugins.vecadd.runs import FEWEST_LONG, LONG_KERNEL, Stopwatch, repeat, warm_up
from hpml_plugins.plugins.vecadd.vectors import METRICS, MILLION, MILLIONS, bandwidth, is_sum, vectors

MEMORIES = ("pageable", "pinned")
PHASES = ("allocation", "h2d", "kernel", "d2h", "free")


def measure(bench: Bench, *, millions: int, launch: str, memory: str) -> Mapping[str, Samples]:
    """Time c = a + b of `millions` million float32 in the GPU's own memory: the kernel, and the program around it.

    launch: "1x1", "1x256" or "grid", see `launches.shape`.  memory: of the host, "pageable" as malloc gives it, or
    "pinned". The making of the vectors, the pinning and the first launch, which compiles, are outside the timing.
    Raises HpmlError for another launch or memory.
    """
    elements = millions * MILLION
    blocks, threads = shape(launch, elements)
    if memory not in MEMORIES:
        raise HpmlError(f"vecadd_cuda has no memory {memory!r}; use one of {', '.join(MEMORIES)}")

    from numba import cuda

    from hpml_plugins.plugins.vecadd.cuda_kernels import launcher
    from hpml_plugins.plugins.vecadd.device import check_launch, free_now, refuse_what_cannot_end

    bench.progress(f"checking {blocks} × {threads} threads", 0.0)
    seconds = check_launch(bench, launch) * elements
    refuse_what_cannot_end(bench, seconds, launches=FEWEST_LONG)

    a, b, c = (_in_memory(memory, vector) for vector in vectors(elements, bench.seed))
    add = launcher(launch, elements)

    def run() -> Mapping[str, float]:
        watch = Stopwatch(cuda.synchronize)
        on_gpu = [cuda.device_array(elements, dtype=a.dtype) for _ in (a, b, c)]
        watch.lap("allocation")
        on_gpu[0].copy_to_device(a)
        on_gpu[1].copy_to_device(b)
        watch.lap("h2d")
        add(*on_gpu)
        watch.lap("kernel")
        on_gpu[2].copy_to_host(c)
        watch.lap("d2h")
        on_gpu.clear()
        free_now()
        watch.lap("free")
        return watch.laps

    warm_up(run, seconds)
    phases = repeat(bench, run, PHASES)
    bench.check(is_sum(a, b, c), "sum differs from NumPy's")
    kernel = phases.pop("kernel")
    if kernel.median < LONG_KERNEL:
        # numba launches on the legacy default stream of the device's primary context. torch's current stream is the
        # same one unless somebody changed it, so the events of bench.time stand before and after these launches.
        on_gpu = [cuda.to_device(vector) for vector in (a, b, c)]
        kernel = bench.time(lambda: add(*on_gpu))
    else:
        kernel = replace(kernel, info={**kernel.info, "launch": "visible: below 0.1 % of the kernel"})
    kernel = replace(kernel, info={**kernel.info, "blocks": blocks, "threads": threads})
    return {"time": kernel, "bandwidth": bandwidth(elements, kernel), **phases}


def _in_memory(memory: str, vector: Any) -> Any:
    """The vector in the host memory of this kind."""
    if memory == "pageable":
        return vector
    from numba import cuda

    pinned = cuda.pinned_array(vector.shape, dtype=vector.dtype)
    pinned[:] = vector
    return pinned


VECADD_CUDA = Benchmark(
    "vecadd_cuda",
    measure,
    metrics=(
        *METRICS,
        Metric("allocation", "s", "lower", "three vectors on the GPU"),
        Metric("h2d", "s", "lower", "a and b copied to the GPU"),
        Metric("d2h", "s", "lower", "c copied back"),
        Metric("free", "s", "lower", "the three vectors freed"),
        Metric("total", "s", "lower", "a whole run: allocation, copies, one launch, copy back, free"),
    ),
    grid={"millions": MILLIONS, "launch": LAUNCHES, "memory": MEMORIES},
    requires=Requires(gpus=1, modules=("numba.cuda", "torch")),
    version="2",
    timeout=300,  # one thread over 100 M elements takes six seconds a launch on an H200
    description="c = a + b of float32 vectors on one GPU: one thread, one block of 256, a thread for each element.",
)
