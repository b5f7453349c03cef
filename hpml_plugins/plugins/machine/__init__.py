"""The components of a machine: copies, bandwidths, latencies, launches, small collectives, the host
and its storage."""

from __future__ import annotations

from hpml_plugins import Benchmark, Figure, hookimpl
from hpml_plugins.plugins.machine import (
    collectives,
    copies,
    host,
    latencies,
    launches,
    memory,
    storage,
)


@hookimpl
def hpml_benchmarks() -> list[Benchmark]:
    """Links, the GPU's memory, latencies, launches, collectives, host, storage."""
    return [
        copies.HOST_COPY,
        copies.PEER_COPY,
        *memory.BENCHMARKS,
        *latencies.BENCHMARKS,
        *launches.BENCHMARKS,
        *collectives.BENCHMARKS,
        *host.BENCHMARKS,
        storage.CHECKPOINT,
    ]


@hookimpl
def hpml_figures() -> list[Figure]:
    """The node with its numbers, copies, staircases, latencies, and predictors of launch times."""
    from hpml_plugins.plugins.machine.charts import FIGURES

    return list(FIGURES)
