"""What crosses the wire in a step: bytes by kind, counted where they are handed over."""

from __future__ import annotations

from collections.abc import Mapping

from hpml_plugins import Bench, Metric, Rank
from hpml_plugins.plugins.scaling.workloads import CIFAR, Workload, build

#: Images on each rank: enough for batch normalisation. Only inputs and outputs depend on it.
BATCH = 2
KINDS = ("gradients", "buffers", "parameters", "inputs", "outputs")
WIRE_METRICS = (
    Metric("gradients", "B", "lower", "handed over in a step by each rank (DDP), or added up on the first GPU (DP)"),
    Metric("buffers", "B", "lower", "batch normalisation's running statistics, broadcast before the forward pass"),
    Metric("parameters", "B", "lower", "copied to the other GPUs in a step"),
    Metric("inputs", "B", "lower", "scattered to the other GPUs: images, and the gradients of the outputs"),
    Metric("outputs", "B", "lower", "gathered from the other GPUs"),
    Metric("at_start", "B", "lower", "handed over once, when the model is wrapped"),
)


def measure_wire_ddp(bench: Bench, *, ranks: int, model: str) -> Mapping[str, float]:
    """DDP's third step over gloo: its collectives' sizes do not depend on what carries them."""
    workload = Workload(model, CIFAR.data, CIFAR.shape, CIFAR.classes, CIFAR.images)
    counts: list[dict[str, int]] = bench.ranks(count_ddp, ranks, workload, backend="gloo")
    bench.check(all(one == counts[0] for one in counts), "all ranks hand over as much")
    return {kind: float(counts[0].get(kind, 0)) for kind in (*KINDS, "at_start")}


def count_ddp(rank: Rank, workload: Workload) -> dict[str, int]:
    """Bytes by kind in DDP's third step, the first in which its buckets are in their final order."""
    import torch
    from torch.nn.functional import cross_entropy
    from torch.nn.parallel import DistributedDataParallel

    from hpml_plugins.plugins.scaling.traffic import CollectiveCounter

    torch.manual_seed(rank.bench.seed + rank.index)
    model = build(workload.model, workload.shape, workload.classes)
    images = torch.randn(BATCH, *workload.shape)
    labels = torch.randint(workload.classes, (BATCH,))
    with CollectiveCounter() as start:
        parallel = DistributedDataParallel(model)
    for _ in range(2):
        cross_entropy(parallel(images), labels).backward()
    with CollectiveCounter() as step:
        cross_entropy(parallel(images), labels).backward()
    counted = step.by_kind
    rank.bench.check(counted.pop("other") == 0, "DDP sends gradients and buffers and nothing else")
    return {**counted, "at_start": sum(start.nbytes.values())}


def measure_wire_dp(bench: Bench, *, gpus: int, model: str) -> Mapping[str, float]:
    """DataParallel's second step."""
    import torch
    from torch.nn import DataParallel
    from torch.nn.functional import cross_entropy

    from hpml_plugins.plugins.scaling.traffic import counted_copies

    module = build(model, CIFAR.shape, CIFAR.classes).to("cuda:0")
    parallel = DataParallel(module, list(range(gpus)))
    images = torch.randn(BATCH * gpus, *CIFAR.shape, device="cuda:0")
    labels = torch.randint(CIFAR.classes, (BATCH * gpus,), device="cuda:0")
    cross_entropy(parallel(images), labels).backward()
    with counted_copies(module.buffers(), "cuda:0") as counted:
        cross_entropy(parallel(images), labels).backward()
    return {kind: float(counted[kind]) for kind in KINDS} | {"at_start": 0.0}
