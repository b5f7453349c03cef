"""Vector addition c = a + b in float32: on the CPU with NumPy, numba and C++, on one GPU with numba CUDA."""

from __future__ import annotations

from hpml_plugins import Benchmark, Figure, hookimpl
from hpml_plugins.plugins.vecadd.on_cpu import VECADD_CPU
from hpml_plugins.plugins.vecadd.on_cuda import VECADD_CUDA
from hpml_plugins.plugins.vecadd.tuned import VECADD_TUNED
from hpml_plugins.plugins.vecadd.unified import VECADD_UNIFIED


@hookimpl
def hpml_benchmarks() -> list[Benchmark]:
    """One benchmark for each kind of memory, and the tuned kernel."""
    return [VECADD_CPU, VECADD_CUDA, VECADD_UNIFIED, VECADD_TUNED]


@hookimpl
def hpml_figures() -> list[Figure]:
    """The charts of the exercise, and of the limit."""
    from hpml_plugins.plugins.vecadd.figures import FIGURES

    return list(FIGURES)
