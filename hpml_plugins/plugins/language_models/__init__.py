"""Language models with random weights: inference and training, each explained by its parts."""

from __future__ import annotations

from hpml_plugins import Benchmark, hookimpl
from hpml_plugins.plugins.language_models.decoding import DECODE, DECODE_CPU
from hpml_plugins.plugins.language_models.parallel import PARALLEL, PARALLEL_CPU
from hpml_plugins.plugins.language_models.prefill import PREFILL, PREFILL_CPU


@hookimpl
def hpml_benchmarks() -> list[Benchmark]:
    """On GPUs, and tiny models on the CPU."""
    return [DECODE, PREFILL, PARALLEL, DECODE_CPU, PREFILL_CPU, PARALLEL_CPU]
