"""Vector addition c = a + b in float32: on the CPU with NumPy and numba, on one GPU with numba CUDA."""

from __future__ import annotations

from hpml_plugins import Benchmark, hookimpl
from hpml_plugins.plugins.vecadd.on_cpu import VECADD_CPU
from hpml_plugins.plugins.vecadd.on_cuda import VECADD_CUDA


@hookimpl
def hpml_benchmarks() -> list[Benchmark]:
    """`vecadd_cpu` and `vecadd_cuda`."""
    return [VECADD_CPU, VECADD_CUDA]
