"""Training on several GPUs: DataParallel, DistributedDataParallel, what they cost and what they send."""

from __future__ import annotations

from hpml_plugins import Benchmark, Figure, hookimpl
from hpml_plugins.plugins.scaling.benchmarks import BENCHMARKS


@hookimpl
def hpml_benchmarks() -> list[Benchmark]:
    """One GPU, each way of training on several, what crosses the wire, and large batches."""
    return list(BENCHMARKS)


@hookimpl
def hpml_figures() -> list[Figure]:
    """The exercise's three tables, the charts beside them, and what explains them."""
    from hpml_plugins.plugins.scaling.figures import FIGURES

    return list(FIGURES)
