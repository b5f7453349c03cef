"""The layers and VGG16, their steps and results, and the memory of a step. Imports torch: for use
inside `measure`."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Any

import torch
from torch.nn import MaxPool2d, ReLU
from torch.profiler import ProfilerActivity, profile

from hpml_plugins import HpmlError
from hpml_plugins.plugins.layers.shapes import FEATURES, LAYERS, MODES, OUTPUTS

#: The number of calls of the step in `peak_memory`.
PASSES = 2
#: The orders for VGG16: ReLU before max pooling, as published, or after it.
ORDERS = ("normal", "swapped")
CLASSES = 1000


def build(layer: str, device: str) -> Any:
    """ReLU in place, MaxPool2d(2, 2), Conv2d(3, 128, 3, padding=1) or Linear(25088, 4096), on the
    device."""
    with torch.device(device):
        if layer == "relu":
            return ReLU(inplace=True)
        if layer == "maxpool":
            return MaxPool2d(kernel_size=2, stride=2, padding=0)
        if layer == "conv":
            return torch.nn.Conv2d(3, 128, kernel_size=3, padding=1)
        if layer == "linear":
            return torch.nn.Linear(FEATURES, OUTPUTS)
    raise HpmlError(f"no layer {layer!r}; use one of {', '.join(LAYERS)}")


def tolerance(layer: str, device: str) -> float:
    """Largest error against float64, as a share of the norm of the result."""
    if layer in ("relu", "maxpool"):  # they only select numbers of their input
        return 0.0
    # TF32, torch's default for convolutions on a GPU, rounds each factor by up to 2**-11
    return (
        5e-3 if device == "cuda" and layer == "conv" and torch.backends.cudnn.allow_tf32 else 5e-5
    )


class SameMemory(torch.autograd.Function):  # type: ignore[misc]  # torch is untyped to mypy here
    """The identity without a copy, with a result that may be changed in place; autograd refuses
    that for a leaf."""

    @staticmethod
    def forward(ctx: Any, values: Any) -> Any:
        """A tensor over the same memory that is not a view of `values` for autograd."""
        return torch.empty(0, dtype=values.dtype, device=values.device).set_(values.detach())

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient


def step_of(layer: Any, values: Any, mode: str) -> Callable[[], Any]:
    """The layer's output ("forward"), or gradients of input and parameters ("training"). Else
    raises HpmlError."""
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
    return lambda: torch.autograd.grad(
        layer(SameMemory.apply(leaf)), [leaf, *layer.parameters()], gradient
    )


def error_against_float64(layer: Any, values: Any, rows: int = 2) -> float:
    """The largest error of output and gradients, over the norm of the exact ones. `values` is not
    changed.

    Output and input's gradient are computed for the whole batch and compared for the first `rows`;
    the parameters' gradients, which are sums over the batch, are computed for only these rows.
    """
    gradient, (output, of_input, *_) = _run(layer, values.detach().clone())
    few, gradient = values[:rows].detach(), gradient[:rows]
    ours = [output[:rows], of_input[:rows], *_run(layer, few.clone(), gradient)[1][2:]]
    _, exact = _run(copy.deepcopy(layer).double(), few.double(), gradient.double())
    return max(float((a.double() - b).norm() / b.norm()) for a, b in zip(ours, exact, strict=True))


def _random_gradient(output: Any) -> Any:
    """Random numbers for one row of the batch, the same for all rows: drawing billions takes a CPU
    tens of seconds."""
    return torch.randn_like(output[:1]).expand_as(output).contiguous()


def _run(layer: Any, values: Any, gradient: Any = None) -> tuple[Any, list[Any]]:
    """The gradient of the output used; and the output, the input's gradient and those of the
    parameters."""
    leaf = values.requires_grad_()
    output = layer(SameMemory.apply(leaf))
    gradient = _random_gradient(output) if gradient is None else gradient
    return gradient, [
        output.detach(),
        *torch.autograd.grad(output, [leaf, *layer.parameters()], gradient),
    ]


def build_vgg16(device: str, *, inplace: bool) -> Any:
    """torchvision's VGG16 with its layers' own random weights; its ReLUs work in place or not."""
    from torchvision.models import vgg16

    with torch.device(device):
        network = vgg16(weights=None, init_weights=False)
    for module in network.modules():
        if isinstance(module, ReLU):
            module.inplace = inplace
    return network


def put_in_order(network: Any, order: str) -> int:
    """Put each pair of ReLU and max pooling into this order of ORDERS; returns how many there are.

    Both take the larger of numbers, so they commute: max(0, max(a, b)) = max(max(0, a), max(0, b)).
    """
    wanted = [ReLU, MaxPool2d] if order == "normal" else [MaxPool2d, ReLU]
    layers = list(network.features)
    pairs = 0
    for i in range(len(layers) - 1):
        if {type(layers[i]), type(layers[i + 1])} == set(wanted):
            layers[i : i + 2] = sorted(
                layers[i : i + 2], key=lambda layer: wanted.index(type(layer))
            )
            pairs += 1
    network.features = torch.nn.Sequential(*layers)
    return pairs


def loss(network: Any, images: Any, classes: Any) -> Any:
    """Cross entropy of the network's output."""
    return torch.nn.functional.cross_entropy(network(images), classes)


def answers(network: Any, images: Any, classes: Any) -> tuple[Any, Any]:
    """In eval mode, by deterministic kernels: the output, and the gradient of the first
    convolution's weight."""
    network.eval()
    before, torch.backends.cudnn.deterministic = torch.backends.cudnn.deterministic, True
    with torch.no_grad():
        output = network(images)
    (gradient,) = torch.autograd.grad(
        loss(network, images[:2], classes[:2]), [network.features[0].weight]
    )
    torch.backends.cudnn.deterministic = before
    return output, gradient


def peak_memory(step: Callable[[], object], device: str) -> float:
    """Peak bytes that torch allocated for one call of `step`, above those allocated before.

    On a GPU its allocator rounds up (512 B); on a CPU, allocations by libraries themselves (oneDNN)
    are not counted.
    """
    step()  # permanent allocations are not counted
    gc.collect()
    if device == "cuda":
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        step()
        torch.cuda.synchronize()
        return float(torch.cuda.max_memory_allocated() - before)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        kept = step()
    del kept
    events = [
        event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"
    ]
    return float(
        highest_sum(event.nbytes() for event in sorted(events, key=lambda event: event.start_ns()))
    )


def highest_sum(changes: Iterable[int]) -> int:
    """The highest partial sum of these, from 0."""
    return max(accumulate(changes, initial=0))
