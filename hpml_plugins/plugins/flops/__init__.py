"""Multiply-adds, FLOP, parameters, activations and bytes of a model, counted by fvcore."""

from __future__ import annotations

from hpml_plugins import Benchmark, Figure, hookimpl
from hpml_plugins.plugins.flops.flops import FLOPS


@hookimpl
def hpml_benchmarks() -> list[Benchmark]:
    """The one benchmark of this plugin."""
    return [FLOPS]


@hookimpl
def hpml_figures() -> list[Figure]:
    """A comparison of the models, their operators, and VGG layer by layer."""
    from hpml_plugins.plugins.flops.charts import FIGURES

    return list(FIGURES)
