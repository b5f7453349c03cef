"""The benchmark `vecadd_cuda`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace

from hpml_plugins import Bench, Benchmark, Requires, Samples
from hpml_plugins.plugins.vecadd.launches import LAUNCHES, shape
from hpml_plugins.plugins.vecadd.vectors import METRICS, MILLION, MILLIONS, bandwidth, is_sum, vectors


def measure(bench: Bench, *, millions: int, launch: str) -> Mapping[str, Samples]:
    """Time the kernel c = a + b of `millions` million float32 in the GPU's own memory.

    launch: "1x1", "1x256" or "grid", see `launches.shape`. The copies to and from the GPU and the first launch, which
    compiles, are outside the timing. Raises HpmlError for another launch.
    """
    elements = millions * MILLION
    blocks, threads = shape(launch, elements)

    from numba import cuda

    from hpml_plugins.plugins.vecadd.cuda_kernels import add

    a, b, c = vectors(elements, bench.seed)
    on_gpu = [cuda.to_device(vector) for vector in (a, b, c)]

    # numba launches on the legacy default stream of the device's primary context. torch's current stream is the same
    # one unless somebody changed it, so the events of bench.time stand before and after these launches.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numba advises against few blocks; here they are the point
        launched = add[blocks, threads]

    def step() -> None:
        launched(*on_gpu)

    bench.progress(f"checking {blocks} × {threads} threads", 0.0)
    step()
    on_gpu[2].copy_to_host(c)  # waits for the kernel
    bench.check(is_sum(a, b, c), "sum differs from NumPy's")
    bench.progress(f"timing {blocks} × {threads} threads", 0.3)
    time = bench.time(step)
    time = replace(time, info={**time.info, "blocks": blocks, "threads": threads})
    return {"time": time, "bandwidth": bandwidth(elements, time)}


VECADD_CUDA = Benchmark(
    "vecadd_cuda",
    measure,
    metrics=METRICS,
    grid={"millions": MILLIONS, "launch": LAUNCHES},
    requires=Requires(gpus=1, modules=("numba.cuda", "torch")),
    version="1",
    timeout=300,  # one thread over 100 M elements takes seconds a launch, and about seven launches a point
    description="c = a + b of float32 vectors on one GPU: one thread, one block of 256, a thread for each element.",
)
