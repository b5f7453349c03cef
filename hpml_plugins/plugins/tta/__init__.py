"""Time to accuracy: how long until a network is as good as it should be, how much that varies, what the GPU does."""

from __future__ import annotations

from hpml_plugins import Benchmark, Figure, hookimpl
from hpml_plugins.plugins.tta.benchmarks import BENCHMARKS


@hookimpl
def hpml_benchmarks() -> list[Benchmark]:
    """Sets of runs to the target accuracy, and what the processor does meanwhile."""
    return list(BENCHMARKS)


@hookimpl
def hpml_figures() -> list[Figure]:
    """Times and their spread, accuracy over time and elsewhere, utilisation and what drives it up."""
    from hpml_plugins.plugins.tta.figures import FIGURES

    return list(FIGURES)
