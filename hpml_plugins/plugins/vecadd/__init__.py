"""Vector addition c = a + b in float32: on the CPU by NumPy, numba and C++, on one GPU by numba
CUDA and CUDA C++."""

from __future__ import annotations

from hpml_plugins import Benchmark, Figure, hookimpl
from hpml_plugins.plugins.vecadd.cpu import VECADD_CPU
from hpml_plugins.plugins.vecadd.cuda_cpp import VECADD_CUDA_CPP
from hpml_plugins.plugins.vecadd.cuda_programs import VECADD_CUDA, VECADD_UNIFIED
from hpml_plugins.plugins.vecadd.tuned import VECADD_TUNED


@hookimpl
def hpml_benchmarks() -> list[Benchmark]:
    """One benchmark for each kind of memory, and the tuned kernel."""
    return [VECADD_CPU, VECADD_CUDA, VECADD_UNIFIED, VECADD_CUDA_CPP, VECADD_TUNED]


@hookimpl
def hpml_figures() -> list[Figure]:
    """Times and speed-up of the programs, and the bandwidth of the kernels."""
    from hpml_plugins.plugins.vecadd.charts import FIGURES

    return list(FIGURES)
