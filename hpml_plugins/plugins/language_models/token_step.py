"""A decode step of one sequence by the kernels of `token_kernels`, alone or shared by ranks.
Imports torch and triton."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import distributed as dist
from torch.distributed.tensor import DTensor
from torch.nn.functional import rms_norm

from hpml_plugins.plugins.language_models.inference import DecodeStep
from hpml_plugins.plugins.language_models.llama import EPSILON, LINEARS, Block, Cache, Llama
from hpml_plugins.plugins.language_models.peers import SumAndNorm
from hpml_plugins.plugins.language_models.sharing import SharedLlama
from hpml_plugins.plugins.language_models.token_kernels import Attention, Matrix, product

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


class TokenStep:
    """The step of a DecodeStep of one sequence, five kernels a layer.

    If ranks share the decoder, each adds up its own part alone, as with peers.sum_of_own.
    """

    def __init__(self, step: DecodeStep) -> None:
        model = step.model
        self.step, self.layers = step, layers_of(model)
        self.head, self.is_shared = matrix_of(model.ends.head), isinstance(model, SharedLlama)
        first = model.first_norm if self.is_shared else model.blocks[0].norm_attention
        self.first_norm = first.weight
        group = model.shape.heads // model.shape.kv_heads
        self.attention = Attention(step.caches[0].keys, group)

    def __call__(self) -> tuple[Any, Any]:
        """Logits (1, vocabulary) and tokens (1,)."""
        with torch.no_grad():
            logits = self.logits(self.step.model.embedding(self.step.last))[0]
            if self.is_shared:
                logits = gathered(logits)
            return logits, likeliest(logits)

    def logits(self, x: Any) -> Any:
        """x: (1, 1, hidden). Returns (1, 1, outputs), of this rank's part of the head."""
        norm = self.first_norm
        for layer, cache in zip(self.layers, self.step.caches, strict=True):
            mixed = self.attend(product(x, layer.qkv, norm=norm), cache)
            x = product(mixed, layer.out, added=x)
            inner = product(x, layer.gate_up, norm=layer.norm, gated=layer.gated)
            x = product(inner, layer.down, added=x)
            norm = layer.next_norm
        return product(x, self.head, norm=norm)

    def attend(self, qkv: Any, cache: Cache) -> Any:
        """The output of attention, (1, 1, heads · head_dim)."""
        return self.attention(qkv, cache.keys, cache.values, self.step.place)


class SharedTokenStep(TokenStep):
    """The same on every rank, with sums over all of them."""

    def __init__(self, step: DecodeStep, add_up: SumAndNorm) -> None:
        super().__init__(step)
        self.add_up = add_up

    def logits(self, x: Any) -> Any:
        """As a TokenStep's."""
        normed = rms_norm(x, self.first_norm.shape, self.first_norm, EPSILON)
        for layer, cache in zip(self.layers, self.step.caches, strict=True):
            mixed = self.attend(product(normed, layer.qkv), cache)
            x, normed = self.add_up(product(mixed, layer.out), x, layer.norm)
            inner = product(normed, layer.gate_up, gated=layer.gated)
            x, normed = self.add_up(product(inner, layer.down), x, layer.next_norm)
        return product(normed, self.head)


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
    """The logits of all ranks' parts of the vocabulary, (1, vocabulary), of those of this one."""
    parts = logits.new_empty(dist.get_world_size() * logits.shape[1])
    dist.all_gather_into_tensor(parts, logits[0])
    return parts[None]


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
