"""The collectives as steps to be timed. Imports torch: imported on the ranks only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from hpml_plugins import HpmlError, Rank
from hpml_plugins.plugins.allreduce.buffers import Buffers

Step = Callable[[], object]


def step_of(rank: Rank, buffers: Buffers) -> Step:
    """One collective on these buffers: torch.distributed's own, where that can do it. Called by all ranks alike.

    Raises HpmlError where neither it nor NCCL through torch can: gloo out of place, a broadcast out of place.
    """
    send, receive = buffers.send, buffers.receive
    if buffers.collective == "all_gather":
        return lambda: dist.all_gather_into_tensor(receive, send)
    if buffers.collective == "reduce_scatter":
        return lambda: dist.reduce_scatter_tensor(receive, send)
    if buffers.in_place:
        if buffers.collective == "all_reduce":
            return lambda: dist.all_reduce(send)
        return lambda: dist.broadcast(send, 0)
    if buffers.collective == "all_reduce" and rank.backend == "nccl":
        return _all_reduce_out_of_place(rank, send, receive)
    raise HpmlError(f"torch.distributed has no {buffers.collective} out of place over {rank.backend}; use place 'in'")


def _all_reduce_out_of_place(rank: Rank, send: Any, receive: Any) -> Step:
    """torch.distributed reduces in place only."""
    from hpml_plugins.plugins.allreduce import nccl

    unique = rank.share(nccl.unique_id() if rank.index == 0 else None)
    communicator = nccl.Communicator(rank.count, unique, rank.index)
    return lambda: communicator.all_reduce(send, receive)
