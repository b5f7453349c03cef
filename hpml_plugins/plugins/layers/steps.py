"""A layer's steps: forward alone, or forward and backward. Imports torch, so it is imported inside `measure` only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from hpml_plugins import HpmlError

MODES = ("forward", "training")


class SameMemory(torch.autograd.Function):  # type: ignore[misc]  # torch is untyped to mypy here
    """The identity, without a copy: what a layer before would hand over, which may be changed in place.

    Autograd refuses to change a leaf in place; in a network, no layer's input is one.
    """

    @staticmethod
    def forward(ctx: Any, values: Any) -> Any:
        """A tensor over the same memory, no view of `values` to autograd."""
        return torch.empty(0, dtype=values.dtype, device=values.device).set_(values.detach())

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        """The gradient as it is."""
        return gradient


def step_of(layer: Any, values: Any, mode: str) -> Callable[[], Any]:
    """The step to time: the layer's output, or its gradients (of the input, then of the parameters).

    Training takes random gradients of the output, made here. Raises HpmlError for another mode.
    """
    if mode == "forward":

        def forward() -> Any:
            with torch.no_grad():
                return layer(values)

        return forward
    if mode != "training":
        raise HpmlError(f"no mode {mode!r}; use one of {', '.join(MODES)}")
    leaf = values.requires_grad_()
    with torch.no_grad():
        gradient = _random_gradient(layer(values.detach().clone()))

    def training() -> Any:
        return torch.autograd.grad(layer(SameMemory.apply(leaf)), [leaf, *layer.parameters()], gradient)

    return training


def error_against_float64(layer: Any, values: Any, rows: int = 2) -> float:
    """The largest error of output and gradients, over the norm of the exact ones; 0 where they are the same.

    The output and the input's gradient are those of the whole batch, of which the first `rows` are looked at; the
    parameters' gradients are those of these rows alone, for they are sums over the batch. `values` is left as it is.
    """
    import copy

    exact = copy.deepcopy(layer).double()
    few = values[:rows].detach()
    whole = _run(layer, values.detach().clone())
    ours = [whole[0][:rows], whole[1][:rows], *_run(layer, few.clone(), whole[2][:rows])[3:]]
    right = _run(exact, few.double(), whole[2][:rows].double())
    pairs = zip(ours, [right[0], right[1], *right[3:]], strict=True)
    return max(float((a.double() - b).norm() / b.norm()) for a, b in pairs)


def _random_gradient(output: Any) -> Any:
    """Random numbers for one row of the batch, the same for all rows: drawing billions takes a CPU tens of seconds."""
    return torch.randn_like(output[:1]).expand_as(output).contiguous()


def _run(layer: Any, values: Any, gradient: Any = None) -> list[Any]:
    """Output, gradient of the input, the gradient of the output that was used, and those of the parameters."""
    leaf = values.requires_grad_()
    output = layer(SameMemory.apply(leaf))
    gradient = _random_gradient(output) if gradient is None else gradient
    of_input, *of_parameters = torch.autograd.grad(output, [leaf, *layer.parameters()], gradient)
    return [output.detach(), of_input, gradient, *of_parameters]
