"""A decoder whose layers are split over ranks: tensor parallelism by torch's DTensor. Imports
torch."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Partial, Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.attention import sdpa_kernel

from hpml_plugins import Rank
from hpml_plugins.plugins.language_models.inference import DecodeStep
from hpml_plugins.plugins.language_models.llama import BACKENDS, Block, Llama, attend
from hpml_plugins.plugins.language_models.peers import SumAndNorm


class SharedBlock(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """A rank's part of a layer. Each of its two sums over the ranks includes the norm that follows:
    that of the feed-forward block, and the next layer's.

    block: with DTensors as matrices, its norms taken out.
    """

    def __init__(self, block: Block, add_up: SumAndNorm, weight: Any, next_weight: Any) -> None:
        super().__init__()
        self.block, self.add_up = block, add_up
        self.weight, self.next_weight = weight, next_weight

    def forward(self, x: Any, normed: Any, cache: Any, place: Any) -> tuple[Any, Any]:
        """x: (sequences, new, hidden), and its norm. Returns the same of the next layer, and writes
        keys and values of this rank's heads into the cache."""
        mixed = attend(*self.block.project(normed, cache, place), cache, place)
        x, normed = self.add_up(self.block.out(mixed.flatten(2)), x, self.weight)
        found: tuple[Any, Any] = self.add_up(
            self.block.down(self.block.expand(normed)), x, self.next_weight
        )
        return found


class SharedLlama(Llama):
    """A Llama after `share`."""

    first_norm: nn.Module

    def forward(self, tokens: Any, caches: list[Any], place: Any) -> tuple[Any, Any]:
        """As a Llama's."""
        with torch.no_grad(), sdpa_kernel(BACKENDS, set_priority=True):
            x = self.embedding(tokens)
            normed = self.first_norm(x)
            for block, cache in zip(self.blocks, caches, strict=True):
                x, normed = block(x, normed, cache, place)
            logits, most_likely = self.ends(normed[:, -1])
            return logits, most_likely


def share(step: DecodeStep, rank: Rank, add_up: SumAndNorm) -> None:
    """Keep this rank's part of every matrix, and the keys and values of its heads. All ranks have
    drawn the same weights and caches, so nothing is sent."""
    model = step.model
    mesh = init_device_mesh(rank.device.partition(":")[0], (rank.count,))
    for block in model.blocks:
        parallelize_module(block, mesh, PLAN, src_data_rank=None)
    head = {"head": ColwiseParallel(output_layouts=Replicate())}
    parallelize_module(model.ends, mesh, head, src_data_rank=None)
    model.ranks = rank.count

    take_norms_out(model, add_up)
    for layer, cache in enumerate(step.caches):
        parts = (each.chunk(rank.count, 2)[rank.index] for each in (cache.keys, cache.values))
        step.caches[layer] = type(cache)(*(part.contiguous() for part in parts))


def take_norms_out(model: Llama, add_up: SumAndNorm) -> None:
    """Make the decoder's layers SharedBlocks, and itself a SharedLlama."""
    first_norm = model.blocks[0].norm_attention
    next_norms = [block.norm_attention for block in model.blocks[1:]] + [model.ends.norm]
    shared = []
    for block, next_norm in zip(model.blocks, next_norms, strict=True):
        weight = block.norm_feed_forward.weight
        shared.append(SharedBlock(block, add_up, weight, next_norm.weight))
    for block in model.blocks:
        block.norm_attention = block.norm_feed_forward = nn.Identity()
    model.ends.norm = nn.Identity()
    model.first_norm, model.blocks = first_norm, nn.ModuleList(shared)
    model.__class__ = SharedLlama  # as torch's fully_shard does: the same object, another forward


#: How the matrices of a layer are split. The products before a sum leave it to the SharedBlock.
PLAN = {
    **dict.fromkeys(("qkv", "gate_up"), ColwiseParallel()),
    **dict.fromkeys(("out", "down"), RowwiseParallel(output_layouts=Partial())),
}
