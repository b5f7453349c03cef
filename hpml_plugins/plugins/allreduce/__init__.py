"""Bus bandwidth of collectives over NCCL and gloo, by nccl-tests' definitions."""

from __future__ import annotations

from hpml_plugins import Benchmark, Figure, hookimpl
from hpml_plugins.plugins.allreduce.collectives import BENCHMARKS


@hookimpl
def hpml_benchmarks() -> list[Benchmark]:
    """All-reduce and other collectives, over NCCL and gloo, on one node; all-reduce between
    nodes."""
    return list(BENCHMARKS)


@hookimpl
def hpml_figures() -> list[Figure]:
    """Bus bandwidth over size."""
    from hpml_plugins.plugins.allreduce.charts import FIGURES

    return list(FIGURES)
