"""Transformer kernels at published shapes: linear layers, attention, experts and memory-bound
operators."""

from __future__ import annotations

from hpml_plugins import Benchmark, Figure, hookimpl
from hpml_plugins.plugins.kernels.attention import (
    DECODE,
    DECODE_CPU,
    PREFILL,
    PREFILL_CPU,
    TRAINING,
    WINDOW,
)
from hpml_plugins.plugins.kernels.experts import EXPERTS, EXPERTS_CPU
from hpml_plugins.plugins.kernels.gemm import GEMM, GEMM_CPU, GEMM_TOKENS
from hpml_plugins.plugins.kernels.operators import OPERATORS_CPU, OPERATORS_CUDA


@hookimpl
def hpml_benchmarks() -> list[Benchmark]:
    """Each family on one GPU, and a few small points on the CPU."""
    on_gpu = [GEMM, GEMM_TOKENS, PREFILL, TRAINING, WINDOW, DECODE, EXPERTS, OPERATORS_CUDA]
    return [*on_gpu, GEMM_CPU, PREFILL_CPU, DECODE_CPU, EXPERTS_CPU, OPERATORS_CPU]


@hookimpl
def hpml_figures() -> list[Figure]:
    """One figure per family, and the fastest variants."""
    from hpml_plugins.plugins.kernels.charts import FIGURES

    return FIGURES
