"""A network of two layers trained over MPI: its matrix product, its phases, a model of them, and other ways."""

from __future__ import annotations

from hpml_plugins import Benchmark, Figure, hookimpl
from hpml_plugins.plugins.mlp.benchmarks import BENCHMARKS


@hookimpl
def hpml_benchmarks() -> list[Benchmark]:
    """The product, the weights, what is learned, phases, model, overlap, model parallel."""
    return list(BENCHMARKS)


@hookimpl
def hpml_figures() -> list[Figure]:
    """The exercise's figures with our numbers, and tables beside them."""
    from hpml_plugins.plugins.mlp.figures import make_figures

    return make_figures()
