"""What crosses the wire in a step: bytes by kind, counted where they are handed over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hpml_plugins import Bench, Benchmark, Metric, Rank, Requires
from hpml_plugins.plugins.scaling.workloads import ALL_GPUS, CIFAR, GPUS, MODULES

#: Images on each rank: enough for batch normalisation. Only inputs and outputs depend on it.
BATCH = 2
KINDS = ("gradients", "buffers", "parameters", "inputs", "outputs")


def measure_wire_ddp(bench: Bench, *, ranks: int, model: str) -> Mapping[str, float]:
    """DDP's third step over gloo: its collectives' sizes do not depend on what carries them."""
    counts: list[dict[str, int]] = bench.ranks(count_ddp, ranks, model)
    bench.check(all(one == counts[0] for one in counts), "all ranks hand over as much")
    return {kind: float(counts[0].get(kind, 0)) for kind in (*KINDS, "at_start")}


def count_ddp(rank: Rank, model: str) -> dict[str, int]:
    """Bytes by kind in DDP's third step, the first in which its buckets are in their final order."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    from hpml_plugins.plugins.scaling.traffic import CollectiveCounter

    torch.manual_seed(rank.bench.seed + rank.index)
    module = _model(model)
    with CollectiveCounter() as start:
        parallel = DistributedDataParallel(module)
    for _ in range(2):
        _backward(parallel, BATCH)
    with CollectiveCounter() as step:
        _backward(parallel, BATCH)
    rank.bench.check(step.nbytes.pop("other", 0) == 0, "DDP sends gradients and buffers and nothing else")
    return {**step.nbytes, "at_start": start.nbytes.total()}


def measure_wire_dp(bench: Bench, *, gpus: int, model: str) -> Mapping[str, float]:
    """DataParallel's second step."""
    from torch.nn import DataParallel

    from hpml_plugins.plugins.scaling.traffic import counted_copies

    module = _model(model).to("cuda:0")
    parallel = DataParallel(module, list(range(gpus)))
    _backward(parallel, BATCH * gpus, "cuda:0")
    with counted_copies(module.buffers(), "cuda:0") as counted:
        _backward(parallel, BATCH * gpus, "cuda:0")
    return {kind: float(counted[kind]) for kind in KINDS} | {"at_start": 0.0}


def _model(name: str) -> Any:
    from hpml_plugins.plugins.scaling.models import build

    return build(name, CIFAR.shape, CIFAR.classes)


def _backward(parallel: Any, batch: int, device: str = "cpu") -> None:
    """Forward and backward pass of random images."""
    import torch

    images = torch.randn(batch, *CIFAR.shape, device=device)
    labels = torch.randint(CIFAR.classes, (batch,), device=device)
    torch.nn.functional.cross_entropy(parallel(images), labels).backward()


WIRE_METRICS = (
    Metric("gradients", "B", "lower", "handed over in a step by each rank (DDP), or added up on the first GPU (DP)"),
    Metric("buffers", "B", "lower", "batch normalisation's running statistics, broadcast before the forward pass"),
    Metric("parameters", "B", "lower", "copied to the other GPUs in a step"),
    Metric("inputs", "B", "lower", "scattered to the other GPUs: images, and the gradients of the outputs"),
    Metric("outputs", "B", "lower", "gathered from the other GPUs"),
    Metric("at_start", "B", "lower", "handed over once, when the model is wrapped"),
)
WIRE_DDP = Benchmark(
    "scaling_wire_ddp", measure_wire_ddp, WIRE_METRICS,
    {"ranks": (2, 4), "model": ("resnet18",)},
    Requires(modules=MODULES), timeout=120,
    description="Bytes that DistributedDataParallel hands over in a step, by kind, counted over gloo.",
    rounds=1,
)  # fmt: skip
WIRE_DP = Benchmark(
    "scaling_wire_dp", measure_wire_dp, WIRE_METRICS,
    {"gpus": GPUS, "model": ("resnet18",)},
    ALL_GPUS, timeout=120,
    description="Bytes that DataParallel moves between GPUs in a step, by kind, counted.",
    rounds=1,
)  # fmt: skip
