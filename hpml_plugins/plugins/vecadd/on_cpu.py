"""The benchmark `vecadd_cpu`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hpml_plugins import Bench, Benchmark, HpmlError, Requires, Samples
from hpml_plugins.plugins.vecadd.vectors import METRICS, MILLION, MILLIONS, bandwidth, is_sum, vectors


def measure(bench: Bench, *, millions: int, implementation: str) -> Mapping[str, Samples]:
    """Time c = a + b of `millions` million float32 on the CPU.

    implementation: "numpy", "loop" (numba, one thread) or "parallel" (numba, all its threads). The first call, which
    compiles, and the check are outside the timing. Raises HpmlError for another implementation.
    """
    from numba import get_num_threads

    from hpml_plugins.plugins.vecadd.cpu_kernels import IMPLEMENTATIONS

    if implementation not in IMPLEMENTATIONS:
        known = ", ".join(IMPLEMENTATIONS)
        raise HpmlError(f"vecadd_cpu has no implementation {implementation!r}; use one of {known}")
    add = IMPLEMENTATIONS[implementation]
    elements = millions * MILLION
    a, b, c = vectors(elements, bench.seed)
    add(a, b, c)
    bench.check(is_sum(a, b, c), "sum differs from NumPy's")
    time = bench.time(lambda: add(a, b, c), device="cpu")
    threads = get_num_threads() if implementation == "parallel" else 1
    time = replace(time, info={**time.info, "threads": threads})
    return {"time": time, "bandwidth": bandwidth(elements, time)}


VECADD_CPU = Benchmark(
    "vecadd_cpu",
    measure,
    metrics=METRICS,
    grid={"millions": MILLIONS, "implementation": ("numpy", "loop", "parallel")},
    requires=Requires(modules=("numba", "numpy")),
    version="1",
    timeout=60,
    description="c = a + b of float32 vectors on the CPU: NumPy, a compiled loop, and the loop on all threads.",
)
