"""The models. Imports torch: imported on use only."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.profiler import record_function

from hpml_plugins import HpmlError
from hpml_plugins.plugins.scaling.jobs import Dtype

WIDTH = 16


class SmallResNet(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """One residual block between a convolution and a classifier: what ResNet18 is made of, once."""

    def __init__(self, channels: int, classes: int, *, zero_gamma: bool) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(channels, WIDTH, 3, padding=1, bias=False), nn.BatchNorm2d(WIDTH), nn.ReLU()
        )
        self.block = nn.Sequential(
            nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False),
            nn.BatchNorm2d(WIDTH),
            nn.ReLU(),
            nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False),
            nn.BatchNorm2d(WIDTH),
        )
        self.head = nn.Sequential(nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * WIDTH, classes))
        if zero_gamma:
            nn.init.zeros_(self.block[-1].weight)

    def forward(self, images: Any) -> Any:
        """Logits."""
        images = self.stem(images)
        return self.head(images + self.block(images))


def build(name: str, shape: tuple[int, int, int], classes: int, *, zero_gamma: bool = False) -> Any:
    """The model, freshly initialised from torch's generator, on the CPU.

    resnet18: He's, with the usual stem for small images: a 3×3 convolution of stride 1, no pooling; 11,173,962
    parameters for three channels and ten classes.  vgg16: torchvision's.  small: for machines without a GPU.
    zero_gamma: the last normalisation of each residual block starts with γ = 0, so that each block is the identity.
    """
    if name == "resnet18":
        from torchvision.models import resnet

        model = resnet.ResNet(resnet.BasicBlock, [2, 2, 2, 2], num_classes=classes, zero_init_residual=zero_gamma)
        model.conv1 = nn.Conv2d(shape[0], 64, 3, padding=1, bias=False)
        nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
        model.maxpool = nn.Identity()
        return model
    if name == "vgg16":
        from torchvision.models import vgg16

        return vgg16(num_classes=classes)
    if name == "small":
        return SmallResNet(shape[0], classes, zero_gamma=zero_gamma)
    raise HpmlError(f"scaling has no model {name!r}; use resnet18, vgg16 or small")


class InDtype(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """The model computing in bf16 where asked to. Inside the module, for DataParallel's threads do not inherit it."""

    def __init__(self, model: nn.Module, dtype: Dtype) -> None:
        super().__init__()
        self.model = model
        self.bf16 = dtype == "bf16"

    def forward(self, images: Any) -> Any:
        """Logits in float32."""
        # Without the cache: each weight is used once, and a captured graph may not hold what a cache will free.
        with torch.autocast(images.device.type, torch.bfloat16, enabled=self.bf16, cache_enabled=False):
            return self.model(images).float()


class NamedParts(nn.DataParallel):  # type: ignore[misc]  # torch is untyped to mypy here
    """DataParallel, each of its four parts inside a `record_function` range of the part's name."""

    scatter = record_function("scatter")(nn.DataParallel.scatter)
    replicate = record_function("replicate")(nn.DataParallel.replicate)
    parallel_apply = record_function("parallel_apply")(nn.DataParallel.parallel_apply)
    gather = record_function("gather")(nn.DataParallel.gather)
