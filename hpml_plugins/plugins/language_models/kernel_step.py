"""A decode step by kernels of ours, alone or shared by ranks: what those of one sequence and of
several have in common. Imports torch and triton."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import distributed as dist
from torch.distributed.tensor import DTensor

from hpml_plugins.plugins.language_models.inference import DecodeStep
from hpml_plugins.plugins.language_models.llama import LINEARS, Block, Llama
from hpml_plugins.plugins.language_models.sharing import SharedLlama
from hpml_plugins.plugins.language_models.token_kernels import Matrix

#: Logits of which the largest is found together, before the largest of all.
CHUNK = 256


@dataclass(frozen=True)
class Layer:
    """This rank's part of a layer's matrices, and the weights of the norms before the feed-forward
    block and after the layer.  gated: rows of a block of the gate."""

    qkv: Matrix
    out: Matrix
    gate_up: Matrix
    down: Matrix
    norm: Any
    next_norm: Any
    gated: int


class KernelStep(ABC):
    """The step of a DecodeStep by kernels of ours, five a layer.

    If ranks share the decoder, each adds up its own part alone, as with peers.sum_of_own.
    """

    def __init__(self, step: DecodeStep) -> None:
        model = step.model
        self.step, self.layers = step, layers_of(model)
        self.head, self.is_shared = matrix_of(model.ends.head), isinstance(model, SharedLlama)
        first = model.first_norm if self.is_shared else model.blocks[0].norm_attention
        self.first_norm = first.weight

    def __call__(self) -> tuple[Any, Any]:
        """Logits (sequences, vocabulary) and tokens (sequences,)."""
        with torch.no_grad():
            logits = self.logits()
            if self.is_shared:
                logits = gathered(logits)
            return logits, likeliest(logits)

    @abstractmethod
    def logits(self) -> Any:
        """(sequences, outputs), of this rank's part of the head."""


def layers_of(model: Llama) -> list[Layer]:
    """This rank's part of all layers."""
    if isinstance(model, SharedLlama):
        return [layer_of(each.block, each.weight, each.next_weight) for each in model.blocks]
    next_norms = [block.norm_attention for block in model.blocks[1:]] + [model.ends.norm]
    return [
        layer_of(block, block.norm_feed_forward.weight, next_norm.weight)
        for block, next_norm in zip(model.blocks, next_norms, strict=True)
    ]


def layer_of(block: Block, norm: Any, next_norm: Any) -> Layer:
    """norm, next_norm: weights of the norms before the feed-forward block and after the layer."""
    qkv, out, gate_up, down = (matrix_of(getattr(block, name)) for name in LINEARS)
    return Layer(qkv, out, gate_up, down, norm, next_norm, block.gated)


def matrix_of(product: Any) -> Matrix:
    """This rank's part of the matrix of a torch.nn.Linear, or a llama.WeightOnly's whole one."""
    numbers = product.weight
    if isinstance(numbers, DTensor):
        numbers = numbers.to_local().contiguous()
    return Matrix(numbers, getattr(product, "scales", None))


def gathered(logits: Any) -> Any:
    """The logits of all ranks' parts of the vocabulary, (sequences, vocabulary), of those of this
    one."""
    sequences, outputs = logits.shape
    parts = logits.new_empty(dist.get_world_size() * sequences, outputs)
    dist.all_gather_into_tensor(parts, logits)
    return parts.unflatten(0, (-1, sequences)).transpose(0, 1).flatten(1)


def likeliest(logits: Any) -> Any:
    """The most likely token of each sequence, (sequences,): the first of several.

    logits: (sequences, vocabulary). In two reductions, because torch's of one long row uses a
    small part of a GPU.
    """
    if logits.shape[1] % CHUNK:
        return logits.argmax(-1)
    largest, places = logits.unflatten(1, (-1, CHUNK)).max(-1)
    chunk = largest.argmax(-1, keepdim=True)
    return (chunk * CHUNK + places.gather(1, chunk))[:, 0]
