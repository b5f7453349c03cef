"""The networks, images and optimisers whose memory is measured."""

from __future__ import annotations

from typing import Any

from hpml_plugins import HpmlError

MODELS = ("resnet18", "resnet50")
#: Pixels a side, and classes: ImageNet's.
SIDE = 224
CLASSES = 1000
#: Numbers that an optimiser keeps for each parameter: the momentum; Adam's first and second moment.
KEPT = {"sgd": 1, "adam": 2}


def build(model: str, device: str) -> Any:
    """A torchvision classifier in training mode, in single precision, its random weights drawn on the device."""
    import torch
    from torchvision import models

    if model not in models.list_models(module=models):
        raise HpmlError(f"torchvision has no classifier {model!r}; see torchvision.models.list_models()")
    with torch.device(device):
        return models.get_model(model, weights=None).train()


def make_images(batch: int, device: str, dtype: Any = None) -> tuple[Any, Any]:
    """Random images, (batch, 3, 224, 224), float32 if not said otherwise, and their classes, (batch,) int64."""
    import torch

    images = torch.randn(batch, 3, SIDE, SIDE, device=device, dtype=dtype)
    return images, torch.randint(CLASSES, (batch,), device=device)


def build_optimiser(name: str, network: Any) -> Any:
    """SGD with momentum 0.9, or Adam, over all parameters. Raises HpmlError for another name."""
    import torch

    if name == "sgd":
        return torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    if name == "adam":
        return torch.optim.Adam(network.parameters(), lr=1e-4)
    raise HpmlError(f"no optimiser {name!r}; use one of {', '.join(KEPT)}")


def parameter_bytes(network: Any) -> int:
    """Parameters × 4 bytes: what the model needs in theory. ResNet18: 11,689,512 · 4 = 46,758,048."""
    return sum(4 * int(parameter.numel()) for parameter in network.parameters())
