"""Training of torchvision's image classifiers: one step, on synthetic images."""

from __future__ import annotations

from hpml_plugins import Benchmark, hookimpl
from hpml_plugins.plugins.vision.training import TRAINING, TRAINING_CPU


@hookimpl
def hpml_benchmarks() -> list[Benchmark]:
    """A training step on one GPU, and a small one on the CPU."""
    return [TRAINING, TRAINING_CPU]
