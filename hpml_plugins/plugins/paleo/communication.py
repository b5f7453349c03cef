"""The benchmark `paleo_communication`: an all-reduce of a model's gradients, for the percent of
peak of the links."""

from __future__ import annotations

from typing import Any

from hpml_plugins import Bench, Benchmark, Metric, Rank, Requires, Samples
from hpml_plugins.plugins.paleo.formulas import FLOAT32
from hpml_plugins.workloads import bus_factor


def on_rank(rank: Rank, model: str) -> tuple[int, Samples]:
    """All-reduce the gradients of a model, all in one buffer; their bytes, and the time of one
    all-reduce."""
    import torch
    import torch.distributed as dist

    from hpml_plugins import build_model

    elements = sum(parameter.numel() for parameter in build_model(model)[0].parameters())
    gradients = torch.full((elements,), float(rank.index + 1), device=rank.device)
    dist.all_reduce(gradients)
    # 1 + 2 + … + n
    whole = rank.count * (rank.count + 1) // 2
    rank.bench.check(bool((gradients == whole).all()), "the sum of the gradients differs")
    gradients.zero_()  # repeated sums of ones would overflow
    return gradients.nbytes, rank.time(lambda: dist.all_reduce(gradients), budget=1.0)


def measure(bench: Bench, *, model: str, ranks: int) -> dict[str, Any]:
    """All-reduce of the float32 gradients of `model`, over gloo without GPUs. Raises HpmlError for
    a single rank."""
    factor = bus_factor("all_reduce", ranks)
    if bench.device == "cpu" and ranks > 2:
        bench.skip("more than two ranks are measured on GPUs only")
    nbytes, time = bench.ranks(on_rank, ranks, model)[0]
    if bench.device == "cpu" or not (bench.peaks and bench.peaks.nvlink):
        bench.warn("no percent of peak of the links: no published NVLink peak")
    return {"bytes": nbytes, "time": time, "bus_bandwidth": factor * nbytes / time}


COMMUNICATION = Benchmark(
    "paleo_communication",
    measure,
    metrics=[
        Metric("bytes", "B", None, "of the gradients, float32"),
        Metric("time", "s", "lower", "of one all-reduce of all gradients, the mean over ranks"),
        Metric(
            "bus_bandwidth",
            "B/s",
            "higher",
            "2 (n − 1) / n · bytes / time, as nccl-tests defines it",
        ),
    ],
    grid={"model": ("resnet50", "vgg16"), "ranks": (2, 4, 8)},
    requires=Requires(gpus="ranks", cpu_fallback=True, modules=("torch", "torchvision")),
    timeout=120,
    description=f"All-reduce of a model's gradients ({FLOAT32} B each) on the GPUs of one node.",
)
