"""Multiply-adds, FLOP, parameters, activations and bytes of a model, counted by fvcore."""

from __future__ import annotations

from hpml_plugins import Benchmark, Figure, hookimpl
from hpml_plugins.plugins.flops.benchmark import FLOPS


@hookimpl
def hpml_benchmarks() -> list[Benchmark]:
    """The one benchmark of this plugin: `flops`."""
    return [FLOPS]


@hookimpl
def hpml_figures() -> list[Figure]:
    """The models against one another, what they compute with, and VGG layer by layer."""
    from hpml_plugins.plugins.flops.figures import FIGURES

    return list(FIGURES)
