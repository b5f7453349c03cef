"""A two-layer network trained over MPI: its matrix product, its phases, a model of them, and
alternatives."""

from __future__ import annotations

from hpml_plugins import Benchmark, Figure, hookimpl
from hpml_plugins.plugins.mlp.counters import COUNTERS
from hpml_plugins.plugins.mlp.gemm import GEMM
from hpml_plugins.plugins.mlp.learning import LEARNING, LEARNING_CPU, WEIGHTS, WEIGHTS_CPU
from hpml_plugins.plugins.mlp.model import MODEL, MODEL_CPU
from hpml_plugins.plugins.mlp.overlap import OVERLAP, OVERLAP_CPU
from hpml_plugins.plugins.mlp.phases import PHASES, PHASES_CPU
from hpml_plugins.plugins.mlp.split import SPLIT, SPLIT_CPU


@hookimpl
def hpml_benchmarks() -> list[Benchmark]:
    """Benchmarks on GPUs and on CPUs, whose numbers are not comparable."""
    return [
        GEMM,
        COUNTERS,
        WEIGHTS,
        LEARNING,
        PHASES,
        MODEL,
        OVERLAP,
        SPLIT,
        WEIGHTS_CPU,
        LEARNING_CPU,
        PHASES_CPU,
        MODEL_CPU,
        OVERLAP_CPU,
        SPLIT_CPU,
    ]


@hookimpl
def hpml_figures() -> list[Figure]:
    """The coursework's figures with our numbers, and tables."""
    from hpml_plugins.plugins.mlp.charts import make_figures

    return make_figures()
