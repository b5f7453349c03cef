"""The benchmarks `lm_communication` and `lm_communication_cpu`: the collectives of a training step,
without anything else."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from hpml_plugins import Bench, Benchmark, HpmlError, Metric, Rank, Requires
from hpml_plugins.plugins.language_models.shapes import GPT, Shape, find_shape, trained_parameters

#: B of a bucket of gradients: DistributedDataParallel's `bucket_cap_mb`.
BUCKET = 25 << 20
#: B of a gradient.
GRADIENT = 4
#: s of sampling, all rounds together.
BUDGET = 1.0


def measure(bench: Bench, *, model: str, way: str, ranks: int) -> Mapping[str, Any]:
    """Time the collectives that all ranks make in one training step, one after another.

    way: "ddp": all-reduces of the float32 gradients, in DistributedDataParallel's buckets. "fsdp":
    for each layer, and for the rest, all-gathers of the weights in the products' dtype (of a layer
    before forward and before backward) and a reduce-scatter of the float32 gradients.

    `bus_bandwidth` is the bytes that each rank must send over time: 2 (n − 1) / n of what is
    reduced by all-reduce, (n − 1) / n of what is gathered or scattered. Source: nccl-tests,
    doc/PERFORMANCE.md.
    """
    if way not in WAYS:
        raise HpmlError(f"no way {way!r}; use one of {', '.join(WAYS)}")
    found: Mapping[str, Any] = bench.ranks(on_rank, ranks, find_shape(model, GPT), way)[0]
    return found


def on_rank(rank: Rank, shape: Shape, way: str) -> Mapping[str, Any]:
    """The time of the collectives, and how much each rank sends."""
    collectives, sent = WAYS[way](rank, shape)

    def step() -> None:
        for each in collectives:
            each()

    time = rank.time(step, budget=BUDGET)
    return {"time": time, "sent": sent, "bus_bandwidth": sent / time}


def unit_sizes(shape: Shape) -> tuple[int, int]:
    """Numbers in the parameters of one layer, and of everything else."""
    width, inner = shape.hidden, shape.intermediate
    layer = 4 * width * width + 2 * width * inner + 2 * width
    return layer, trained_parameters(shape) - shape.layers * layer


def bucket_sizes(numbers: int) -> list[int]:
    """The gradients of each bucket."""
    most = BUCKET // GRADIENT
    return [min(most, numbers - start) for start in range(0, numbers, most)]


Collectives = tuple[list[Callable[..., object]], int]


def with_ddp(rank: Rank, shape: Shape) -> Collectives:
    """The all-reduces of DistributedDataParallel, and the bytes that each rank sends."""
    import torch
    from torch import distributed as dist

    operation = mean_or_sum(rank)
    numbers = trained_parameters(shape)
    buckets = [torch.ones(size, device=rank.device) for size in bucket_sizes(numbers)]
    for each in buckets:
        dist.all_reduce(each, operation)
    wanted = 1 if operation == dist.ReduceOp.AVG else rank.count
    rank.bench.check(
        all(float(rank.bench.result(each)[-1]) == wanted for each in buckets),
        "a reduced gradient is wrong",
    )
    calls: list[Callable[..., object]] = [
        functools.partial(dist.all_reduce, each, operation) for each in buckets
    ]
    return calls, 2 * GRADIENT * numbers * (rank.count - 1) // rank.count


def with_fsdp(rank: Rank, shape: Shape) -> Collectives:
    """The all-gathers and reduce-scatters of FSDP2, and the bytes that each rank sends."""
    import torch
    from torch import distributed as dist

    dtype = torch.bfloat16 if rank.backend == "nccl" else torch.float32
    operation = mean_or_sum(rank)
    layer, rest = unit_sizes(shape)
    calls: list[Callable[..., object]] = []
    sent = 0
    # the rest is used at both ends of the model, and stays gathered between forward and backward
    for numbers, gathers, units in ((layer, 2, shape.layers), (rest, 1, 1)):
        own = -(-numbers // rank.count)
        whole = torch.empty(own * rank.count, dtype=dtype, device=rank.device)
        part = torch.full((own,), float(rank.index), dtype=dtype, device=rank.device)
        gradients = torch.ones(own * rank.count, device=rank.device)
        reduced = torch.empty(own, device=rank.device)
        gather = functools.partial(dist.all_gather_into_tensor, whole, part)
        scatter = functools.partial(dist.reduce_scatter_tensor, reduced, gradients, operation)
        gather()
        scatter()
        wanted = 1 if operation == dist.ReduceOp.AVG else rank.count
        found = float(rank.bench.result(whole)[-1])
        rank.bench.check(found == rank.count - 1, "a gathered weight is wrong")
        found = float(rank.bench.result(reduced)[-1])
        rank.bench.check(found == wanted, "a reduced gradient is wrong")
        calls += ([gather] * gathers + [scatter]) * units
        bytes_of_one = gathers * whole.nbytes + gradients.nbytes
        sent += units * bytes_of_one * (rank.count - 1) // rank.count
    return calls, sent


def mean_or_sum(rank: Rank) -> Any:
    """The reduction of gradients; gloo has no mean."""
    from torch.distributed import ReduceOp

    return ReduceOp.AVG if rank.backend == "nccl" else ReduceOp.SUM


#: Way → function that makes the collectives of a step.
WAYS: dict[str, Callable[[Rank, Shape], Collectives]] = {"ddp": with_ddp, "fsdp": with_fsdp}
COMMUNICATION = Benchmark(
    "lm_communication",
    measure,
    metrics=(
        Metric("time", "s", "lower", "of a step's collectives, without anything else"),
        Metric("sent", "B", "lower", "by each rank in a step"),
        Metric("bus_bandwidth", "B/s", "higher", "sent over time"),
    ),
    grid={"model": ("gpt2-124m", "gpt-1b"), "way": ("ddp", "fsdp"), "ranks": (2, 4, 8)},
    requires=Requires(gpus="ranks", gpu_memory=16e9, modules=("torch",)),
    timeout=120,
    description="The collectives of a training step by DDP and by FSDP2 on several GPUs, alone.",
    terms={
        "way": "ddp: gradients are all-reduced; fsdp: weights gathered, gradients scattered",
        "ranks": "GPUs",
    },
)
COMMUNICATION_CPU = replace(
    COMMUNICATION,
    name="lm_communication_cpu",
    grid={"model": ("tiny",), "way": ("ddp", "fsdp"), "ranks": (2,)},
    requires=Requires(modules=("torch",)),
    timeout=60,
    description="The collectives of a tiny decoder's training step between processes, over gloo.",
)
