"""The sum over the ranks of one node, with the addition and the norm that follow it. Imports
torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import distributed as dist
from torch.nn.functional import rms_norm

from hpml_plugins import Rank
from hpml_plugins.plugins.language_models.llama import EPSILON

#: Of (partial, x, weight): x plus the sum of `partial` over the ranks, and its norm by `weight`.
SumAndNorm = Callable[[Any, Any, Any], tuple[Any, Any]]


def find_sum(rank: Rank, x: Any) -> SumAndNorm:
    """A function for tensors of x's shape and dtype, by which ranks write into each other's memory;
    where one of them cannot, `sum_by_collective`. All ranks must call this."""
    buffer = None
    in_pairs = x.dtype == torch.bfloat16 and x.shape[-1] % 2 == 0
    if rank.backend == "nccl" and in_pairs and reaches_all(rank):
        buffer = allocated(rank, x)
    if not all(rank.gather(buffer is not None)):
        return sum_by_collective
    return sum_of_peers(rank, buffer)


def sum_by_collective(partial: Any, x: Any, weight: Any) -> tuple[Any, Any]:
    """By an all-reduce of NCCL or gloo."""
    from torch.distributed._functional_collectives import all_reduce

    return sum_of_own(all_reduce(partial, "sum", dist.group.WORLD), x, weight)


def sum_of_own(partial: Any, x: Any, weight: Any) -> tuple[Any, Any]:
    """Of one rank alone."""
    sums = x + partial
    return sums, rms_norm(sums, weight.shape, weight, EPSILON)


def sum_of_peers(rank: Rank, buffer: Any) -> SumAndNorm:
    """By one kernel, which writes into the others' buffers."""
    from torch.distributed import _symmetric_memory as symmetric

    from hpml_plugins.plugins.language_models import peer_kernel

    handle = symmetric.rendezvous(buffer, dist.group.WORLD.group_name)
    rank.bench.check(handle.multicast_ptr == 0, "symmetric memory has a multicast address")
    buffers = torch.tensor(handle.buffer_ptrs, dtype=torch.int64, device=buffer.device)
    rank.barrier()  # no rank writes before all buffers are filled with zeros

    def call(partial: Any, x: Any, weight: Any) -> tuple[Any, Any]:
        found: tuple[Any, Any] = peer_kernel.sum_and_norm(
            partial.contiguous(), x, weight, buffer, buffers, rank.index, EPSILON
        )
        return found

    return call


def reaches_all(rank: Rank) -> bool:
    """Whether all ranks are on this node, and this rank's card can access the others' memory."""
    count = torch.cuda.device_count()
    return (
        rank.local == rank.index
        and rank.count <= count
        and all(
            torch.cuda.can_device_access_peer(rank.local, other)
            for other in range(rank.count)
            if other != rank.local
        )
    )


def allocated(rank: Rank, x: Any) -> Any:
    """A buffer in symmetric memory for tensors like x, zeros; None if torch or the driver has no
    such memory."""
    from torch.distributed import _symmetric_memory as symmetric

    from hpml_plugins.plugins.language_models.peer_kernel import buffer_size

    width = x.shape[-1]
    size = buffer_size(rank.count, x.numel() // width, width)
    try:
        return symmetric.empty(size, dtype=torch.int64, device=x.device).zero_()
    except RuntimeError:
        return None
