"""Bus bandwidth of collectives over NCCL and gloo, by nccl-tests' definitions."""

from __future__ import annotations

from hpml_plugins import Benchmark, Figure, hookimpl
from hpml_plugins.plugins.allreduce.benchmarks import (
    ALLREDUCE_GLOO,
    ALLREDUCE_NCCL,
    ALLREDUCE_NODES_GLOO,
    ALLREDUCE_NODES_NCCL,
    COLLECTIVES_GLOO,
    COLLECTIVES_NCCL,
)


@hookimpl
def hpml_benchmarks() -> list[Benchmark]:
    """All-reduce and other collectives, over NCCL and gloo, on one node; all-reduce between nodes."""
    return [
        ALLREDUCE_NCCL,
        ALLREDUCE_GLOO,
        COLLECTIVES_NCCL,
        COLLECTIVES_GLOO,
        ALLREDUCE_NODES_NCCL,
        ALLREDUCE_NODES_GLOO,
    ]


@hookimpl
def hpml_figures() -> list[Figure]:
    """Bus bandwidth over size."""
    from hpml_plugins.plugins.allreduce.figures import FIGURES

    return list(FIGURES)
