"""A decode step of one sequence by the kernels of `token_kernels`, alone or shared by ranks.
Imports torch and triton."""

from __future__ import annotations

from typing import Any

from torch.nn.functional import rms_norm

from hpml_plugins.plugins.language_models.inference import DecodeStep
from hpml_plugins.plugins.language_models.kernel_step import KernelStep
from hpml_plugins.plugins.language_models.llama import EPSILON, Cache
from hpml_plugins.plugins.language_models.peers import SumAndNorm
from hpml_plugins.plugins.language_models.token_kernels import Attention, product


class TokenStep(KernelStep):
    """The step of one sequence."""

    def __init__(self, step: DecodeStep) -> None:
        super().__init__(step)
        group = step.model.shape.heads // step.model.shape.kv_heads
        self.attention = Attention(step.caches[0].keys, group)

    def logits(self) -> Any:
        """As a KernelStep's."""
        x, norm = self.step.model.embedding(self.step.last), self.first_norm
        for layer, cache in zip(self.layers, self.step.caches, strict=True):
            mixed = self.attend(product(x, layer.qkv, norm=norm), cache)
            x = product(mixed, layer.out, added=x)
            inner = product(x, layer.gate_up, norm=layer.norm, gated=layer.gated)
            x = product(inner, layer.down, added=x)
            norm = layer.next_norm
        return product(x, self.head, norm=norm)[0]

    def attend(self, qkv: Any, cache: Cache) -> Any:
        """The output of attention, (1, 1, heads · head_dim)."""
        return self.attention(qkv, cache.keys, cache.values, self.step.place)


class SharedTokenStep(TokenStep):
    """The same on every rank, with sums over all of them."""

    def __init__(self, step: DecodeStep, add_up: SumAndNorm) -> None:
        super().__init__(step)
        self.add_up = add_up

    def logits(self) -> Any:
        """As a KernelStep's."""
        x = self.step.model.embedding(self.step.last)
        normed = rms_norm(x, self.first_norm.shape, self.first_norm, EPSILON)
        for layer, cache in zip(self.layers, self.step.caches, strict=True):
            mixed = self.attend(product(normed, layer.qkv), cache)
            x, normed = self.add_up(product(mixed, layer.out), x, layer.norm)
            inner = product(normed, layer.gate_up, gated=layer.gated)
            x, normed = self.add_up(product(inner, layer.down), x, layer.next_norm)
        return product(normed, self.head)[0]
