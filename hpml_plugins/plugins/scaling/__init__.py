"""Training on several GPUs: DataParallel, DistributedDataParallel, their cost and their
communication."""

from __future__ import annotations

from hpml_plugins import Benchmark, Figure, hookimpl
from hpml_plugins.plugins.scaling import ddp, dp, large_batch, loading, single, wire


@hookimpl
def hpml_benchmarks() -> list[Benchmark]:
    """One GPU, each way of training on several, transferred bytes, large batches, and the ranks'
    statistics."""
    return [
        single.SINGLE,
        ddp.DDP,
        ddp.DDP_GRAPH,
        ddp.DDP_STRONG,
        dp.DP,
        dp.DP_STRONG,
        ddp.VGG16,
        wire.WIRE_DDP,
        wire.WIRE_DP,
        large_batch.SMALL_BATCH,
        large_batch.LARGE_BATCH,
        single.SINGLE_CPU,
        ddp.DDP_CPU,
        large_batch.LARGE_BATCH_CPU,
        large_batch.STATISTICS,
        large_batch.STATISTICS_CPU,
        ddp.DDP_NODES_NCCL,
        ddp.DDP_NODES_GLOO,
        loading.LOADING,
        loading.LOADING_CPU,
        single.USE,
    ]


@hookimpl
def hpml_figures() -> list[Figure]:
    """The coursework's three tables, charts of them, and explanations."""
    from hpml_plugins.plugins.scaling.charts import FIGURES

    return list(FIGURES)
