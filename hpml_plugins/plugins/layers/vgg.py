"""VGG16 with ReLU and max pooling in either order. Imports torch, so it is imported inside `measure` only."""

from __future__ import annotations

from typing import Any

import torch
from torchvision.models import vgg16

from hpml_plugins import HpmlError

#: ReLU first, as VGG has it, or max pooling first.
ORDERS = ("normal", "swapped")
CLASSES = 1000


def build(device: str, *, inplace: bool) -> Any:
    """torchvision's VGG16 with its layers' own random weights; its ReLUs overwrite their input or do not."""
    with torch.device(device):
        network = vgg16(weights=None, init_weights=False)
    for module in network.modules():
        if isinstance(module, torch.nn.ReLU):
            module.inplace = inplace
    return network


def put_in_order(network: Any, order: str) -> int:
    """Put each pair of ReLU and max pooling into this order, the layers the same. Returns how many pairs there are.

    Both take the larger of numbers, so they commute: max(0, max(a, b)) = max(max(0, a), max(0, b)).
    Raises HpmlError for another order.
    """
    if order not in ORDERS:
        raise HpmlError(f"no order {order!r}; use one of {', '.join(ORDERS)}")
    wanted = (torch.nn.ReLU, torch.nn.MaxPool2d) if order == "normal" else (torch.nn.MaxPool2d, torch.nn.ReLU)
    layers = list(network.features)
    pairs = 0
    for i in range(len(layers) - 1):
        if {type(layers[i]), type(layers[i + 1])} == set(wanted):
            layers[i : i + 2] = sorted(layers[i : i + 2], key=lambda layer: wanted.index(type(layer)))
            pairs += 1
    network.features = torch.nn.Sequential(*layers)
    return pairs


def loss(network: Any, images: Any, classes: Any) -> Any:
    """Cross entropy of the network's answer."""
    return torch.nn.functional.cross_entropy(network(images), classes)


def answers(network: Any, images: Any, classes: Any) -> tuple[Any, Any]:
    """The output without dropout, and the gradient of the first convolution's weight, by deterministic kernels."""
    was_training, network = network.training, network.eval()
    before, torch.backends.cudnn.deterministic = torch.backends.cudnn.deterministic, True
    with torch.no_grad():
        output = network(images)
    few = slice(0, 2)
    first = network.features[0].weight
    (gradient,) = torch.autograd.grad(loss(network, images[few], classes[few]), [first])
    torch.backends.cudnn.deterministic = before
    network.train(was_training)
    return output, gradient
