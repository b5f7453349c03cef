"""Multiply-adds, FLOP, parameters, activations and bytes of a model, counted by fvcore."""

from __future__ import annotations

from hpml_plugins import Benchmark, hookimpl
from hpml_plugins.plugins.flops.benchmark import FLOPS


@hookimpl
def hpml_benchmarks() -> list[Benchmark]:
    """The one benchmark of this plugin: `flops`."""
    return [FLOPS]
