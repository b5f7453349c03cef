"""A decode step of several sequences by the kernels of `batch_kernels`, alone or shared by ranks.
Imports torch and triton."""

from __future__ import annotations

from typing import Any

from torch.nn.functional import rms_norm

from hpml_plugins.plugins.language_models.batch_kernels import Products, attend, embed
from hpml_plugins.plugins.language_models.inference import DecodeStep
from hpml_plugins.plugins.language_models.kernel_step import KernelStep
from hpml_plugins.plugins.language_models.llama import EPSILON, Cache
from hpml_plugins.plugins.language_models.peers import SumAndNorm


class BatchStep(KernelStep):
    """The step of as many sequences as fused_decoding.BATCHES allows."""

    def __init__(self, step: DecodeStep) -> None:
        super().__init__(step)
        self.products = Products(step.last.device)

    def logits(self) -> Any:
        """As a KernelStep's."""
        products, step = self.products, self.step
        hidden = embed(step.last, step.model.embedding.weight, self.first_norm)
        for layer, cache in zip(self.layers, step.caches, strict=True):
            mixed = self.attend(products.of_normed(hidden, layer.qkv), cache)
            hidden = products.added(mixed, layer.out, hidden, layer.norm)
            inner = products.of_normed(hidden, layer.gate_up, gated=layer.gated)
            hidden = products.added(inner, layer.down, hidden, layer.next_norm)
        return products.of_normed(hidden, self.head)

    def attend(self, qkv: Any, cache: Cache) -> Any:
        """The output of attention, (sequences, heads · head_dim)."""
        return attend(qkv, cache.keys, cache.values, self.step.place)


class SharedBatchStep(BatchStep):
    """The same on every rank, with sums over all of them."""

    def __init__(self, step: DecodeStep, add_up: SumAndNorm) -> None:
        super().__init__(step)
        self.add_up = add_up

    def logits(self) -> Any:
        """As a KernelStep's."""
        products = self.products
        x = self.step.model.embedding(self.step.last)[:, 0]
        normed = rms_norm(x, self.first_norm.shape, self.first_norm, EPSILON)
        for layer, cache in zip(self.layers, self.step.caches, strict=True):
            mixed = self.attend(products(normed, layer.qkv), cache)
            x, normed = self.add_up(products(mixed, layer.out), x, layer.norm)
            inner = products(normed, layer.gate_up, gated=layer.gated)
            x, normed = self.add_up(products(inner, layer.down), x, layer.next_norm)
        return products(normed, self.head)
