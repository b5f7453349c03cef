"""A sum over the ranks of one node, which read each other's GPU memory. Imports torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from hpml_plugins import Rank


@torch.library.custom_op("hpml_plugins::sum_of_peers", mutates_args=())  # type: ignore[untyped-decorator]
def sum_of_peers(buffer: torch.Tensor, x: torch.Tensor, group: str) -> torch.Tensor:
    """x summed over the group by torch's one-shot kernel: it writes x into `buffer`, symmetric
    memory of x's shape, waits for the others, and sums all buffers.

    A custom operation, because inductor would copy the buffer before torch's own.
    """
    found: torch.Tensor = torch.ops.symm_mem.one_shot_all_reduce_copy(buffer, x, "sum", group)
    return found


@sum_of_peers.register_fake  # type: ignore[untyped-decorator]
def _sum_of_peers(buffer: torch.Tensor, x: torch.Tensor, group: str) -> torch.Tensor:
    return torch.empty_like(x)


def find_sum(rank: Rank, x: Any) -> Callable[[Any], Any] | None:
    """A function that sums tensors of x's shape and dtype over all ranks; None if a rank cannot
    access another's memory. All ranks must call it."""
    if rank.backend != "nccl":
        return None
    buffer = allocated(x) if reaches_all(rank) else None
    if not all(rank.gather(buffer is not None)):
        return None
    from torch import distributed as dist
    from torch.distributed import _symmetric_memory as symmetric

    group = dist.group.WORLD.group_name
    handle = symmetric.rendezvous(buffer, group)
    rank.bench.check(handle.multicast_ptr == 0, "symmetric memory has a multicast address")
    return lambda each: sum_of_peers(buffer, each.contiguous(), group)


def reaches_all(rank: Rank) -> bool:
    """Whether all ranks are on this node, and this rank's card can read the others' memory."""
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


def allocated(x: Any) -> Any:
    """Symmetric memory like x; None if torch or the driver has none."""
    from torch.distributed import _symmetric_memory as symmetric

    try:
        return symmetric.empty(x.shape, dtype=x.dtype, device=x.device)
    except RuntimeError:
        return None
