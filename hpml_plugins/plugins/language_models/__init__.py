"""Language models with random weights: inference and training, each explained by its parts."""

from __future__ import annotations

from hpml_plugins import Benchmark, hookimpl
from hpml_plugins.plugins.language_models.decoding import DECODE, DECODE_CPU


@hookimpl
def hpml_benchmarks() -> list[Benchmark]:
    """On GPUs, and tiny models on the CPU."""
    return [DECODE, DECODE_CPU]
