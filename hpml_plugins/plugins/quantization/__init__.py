"""From float32 to integers: by hand, by libraries, and the matrix products underneath."""

from __future__ import annotations

from hpml_plugins import Benchmark, Figure, hookimpl
from hpml_plugins.plugins.quantization.deploy import DEPLOY_CPU, DEPLOY_CUDA
from hpml_plugins.plugins.quantization.matmul import MATMUL_CPU, MATMUL_CUDA
from hpml_plugins.plugins.quantization.steps import STEPS


@hookimpl
def hpml_benchmarks() -> list[Benchmark]:
    """Accuracy after each step; networks quantized by libraries; the underlying matrix products."""
    return [STEPS, DEPLOY_CUDA, DEPLOY_CPU, MATMUL_CUDA, MATMUL_CPU]


@hookimpl
def hpml_figures() -> list[Figure]:
    """Accuracy against bits, histograms, accuracy against latency, rates of the products."""
    from hpml_plugins.plugins.quantization.charts import FIGURES

    return list(FIGURES)
