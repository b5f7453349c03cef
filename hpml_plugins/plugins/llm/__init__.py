"""Language models with random weights: one training step, one decode step."""

from __future__ import annotations

from hpml_plugins import Benchmark, hookimpl
from hpml_plugins.plugins.llm.decoding import DECODE, DECODE_CPU
from hpml_plugins.plugins.llm.training import TRAINING, TRAINING_CPU


@hookimpl
def hpml_benchmarks() -> list[Benchmark]:
    """Both on one GPU, and tiny models on the CPU."""
    return [TRAINING, DECODE, TRAINING_CPU, DECODE_CPU]
