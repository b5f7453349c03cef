"""A decoder whose training step passes less often over its largest values. Imports torch.

- GELU is inside the product before it, and its derivative inside the product of its gradient.
- The products that add to the residual stream add it themselves.
- The exponentials of the loss are the result of the head's product.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from hpml_plugins.plugins.language_models import gpt


def fuse(model: gpt.Gpt) -> None:
    """Fuse the layers of a model, and its loss where the GPU can. Its weights stay."""
    model.layers = nn.ModuleList(FusedLayer(layer) for layer in model.layers)
    device = model.norm.weight.device
    if device.type == "cpu" or torch.cuda.get_device_capability(device) >= (9, 0):
        model.exponentials = exponentials


class FusedLayer(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """A layer that computes what `layer` does, with its weights."""

    def __init__(self, layer: gpt.Layer) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Any) -> Any:
        """x: (batch, length, width). Returns the same, in the same dtype."""
        layer, stream = self.layer, x.flatten(0, 1)
        out, up, down = (each.weight.to(x.dtype) for each in (layer.out, layer.up, layer.down))
        mixed = gpt.attend(*layer.project(x)).transpose(1, 2).reshape(stream.shape)
        stream = Merge.apply(stream, mixed, out)
        normalised = layer.norm_feed_forward(stream).to(x.dtype)
        return FeedForward.apply(stream, normalised, up, down).view(x.shape)


class Merge(torch.autograd.Function):  # type: ignore[misc]  # torch is untyped to mypy here
    """stream + x weightᵀ."""

    @staticmethod
    def forward(ctx: Any, stream: Any, x: Any, weight: Any) -> Any:
        """stream: (tokens, outputs).  x: (tokens, inputs).  weight: (outputs, inputs)."""
        ctx.save_for_backward(x, weight)
        return add_product(stream, x, weight)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> tuple[Any, Any, Any]:
        """The gradients of stream, x and weight."""
        x, weight = ctx.saved_tensors
        return gradient, gradient @ weight, gradient.t() @ x


class FeedForward(torch.autograd.Function):  # type: ignore[misc]  # torch is untyped to mypy here
    """stream + GELU(x upᵀ) downᵀ."""

    @staticmethod
    def forward(ctx: Any, stream: Any, x: Any, up: Any, down: Any) -> Any:
        """stream, x: (tokens, width).  up: (inner, width).  down: (width, inner)."""
        after, before = product_gelu(x, up)
        ctx.save_for_backward(x, up, down, after, before)
        return add_product(stream, after, down)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> tuple[Any, Any, Any, Any]:
        """The gradients of stream, x, up and down."""
        x, up, down, after, before = ctx.saved_tensors
        gradient = gradient.contiguous()
        # transposed, because cuBLASLt's products here are all x weightᵀ
        of_before = gradient_before_gelu(gradient, down.t().contiguous(), before)
        return gradient, of_before @ up, of_before.t() @ x, gradient.t() @ after


def on_cpu_and_gpu(
    on_cpu: Callable[..., Any], on_gpu: Callable[..., Any], empty: Callable[..., Any]
) -> Callable[..., Any]:
    """One operator for the compiler. empty: its results, not filled."""
    name = f"hpml_plugins::{on_cpu.__name__}"
    made = torch.library.custom_op(name, on_cpu, mutates_args=(), device_types="cpu")
    made.register_kernel("cuda", on_gpu)
    made.register_fake(empty)
    operator: Callable[..., Any] = made
    return operator


def by_cublaslt(epilogue: str, x: Any, weight: Any, other: Any) -> Any:
    """See cublaslt.multiply."""
    from hpml_plugins.plugins.language_models import cublaslt

    out = x.new_empty(len(x), len(weight))
    cublaslt.multiply(epilogue, x, weight, out, other)
    return out


def _add_product(stream: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    return stream + x @ weight.t()


#: stream + x weightᵀ.  stream: (tokens, outputs).  x: (tokens, inputs).  weight: (outputs, inputs).
#: On a GPU these matrices, and those below, are bfloat16, by rows.
add_product = on_cpu_and_gpu(
    _add_product,
    lambda stream, x, weight: by_cublaslt("DEFAULT", x, weight, stream),
    lambda stream, x, weight: torch.empty_like(stream),
)


def _product_gelu(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    before = x @ weight.t()
    return gelu(before, approximate="tanh"), before


def _product_gelu_on_gpu(x: Any, weight: Any) -> tuple[Any, Any]:
    before = x.new_empty(len(x), len(weight))
    return by_cublaslt("GELU_AUX", x, weight, before), before


#: GELU(x weightᵀ), and x weightᵀ, (tokens, outputs) each.  x: (tokens, inputs).  weight: (outputs,
#: inputs).
product_gelu = on_cpu_and_gpu(
    _product_gelu,
    _product_gelu_on_gpu,
    lambda x, weight: tuple(x.new_empty(len(x), len(weight)) for _ in range(2)),
)


def _gradient_before_gelu(gradient: Tensor, weight: Tensor, before: Tensor) -> Tensor:
    found: Tensor = torch.ops.aten.gelu_backward(gradient @ weight.t(), before, approximate="tanh")
    return found


#: The gradient of `before`, (tokens, inner), from that of a product of its GELU, (tokens, outputs).
#: weight: that of the product, transposed, (inner, outputs).
gradient_before_gelu = on_cpu_and_gpu(
    _gradient_before_gelu,
    lambda gradient, weight, before: by_cublaslt("DGELU", gradient, weight, before),
    lambda gradient, weight, before: torch.empty_like(before),
)


def _exponentials(
    x: Tensor, weight: Tensor, targets: Tensor, logits: Tensor
) -> tuple[Tensor, Tensor]:
    found, sums = gpt.exponentials(x, weight, targets, logits)
    return found, sums


def _exponentials_on_gpu(x: Any, weight: Any, targets: Any, logits: Any) -> tuple[Any, Any]:
    from hpml_plugins.plugins.language_models import loss_kernel

    return loss_kernel.exponentials(x, weight, targets, logits)


#: See `gpt.exponentials`.
exponentials = on_cpu_and_gpu(
    _exponentials,
    _exponentials_on_gpu,
    lambda x, weight, targets, logits: (
        x.new_empty(len(x), len(weight)),
        torch.empty_like(logits),
    ),
)
