"""The networks that are trained. Imports torch: imported on use only."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from hpml_plugins.plugins.tta.recipes import Network

#: Added to the eigenvalues of the images' patches, so that directions without variance are not
#: amplified.
WHITEN_EPS = 5e-4
#: Momentum of running statistics in the speed network, whose training takes a few hundred steps.
FOLLOW = 0.4


def build(network: Network, shape: tuple[int, int, int], classes: int) -> Any:
    """A network for images of this shape (channels, height, width), weights drawn by torch's
    generator."""
    if network.name == "speed":
        return SpeedNet(network, shape, classes)
    if network.name == "small_resnet":
        return SmallResNet(network, shape, classes)
    from torchvision.models import resnet50

    model = resnet50(num_classes=classes, zero_init_residual=network.zero_gamma)
    channels = shape[0]
    if network.name == "resnet50_stem3":
        model.conv1 = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
        model.maxpool = nn.Identity()
    elif channels != 3:
        model.conv1 = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
    return model


class SmallResNet(nn.Module):  # type: ignore[misc]  # torch is untyped to mypy here
    """One residual block per width, halving the image between them: a minimal ResNet for images of
    8×8."""

    def __init__(self, network: Network, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        widths = network.widths or (16, 32)
        self.stem = _conv_norm(shape[0], widths[0])
        self.blocks = nn.ModuleList(_conv_norm(width, width, last=True) for width in widths)
        self.between = nn.ModuleList(
            _conv_norm(before, after) for before, after in itertools.pairwise(widths)
        )
        self.fc = nn.Linear(widths[-1], classes)
        if network.zero_gamma:
            for block in self.blocks:
                nn.init.zeros_(block[-1].weight)

    def forward(self, images: Any) -> Any:
        images = functional.relu(self.stem(images))
        for number, block in enumerate(self.blocks):
            images = functional.relu(images + block(images))
            if number < len(self.between):
                images = functional.max_pool2d(functional.relu(self.between[number](images)), 2)
        return self.fc(images.mean((2, 3)))


def _conv_norm(before: int, after: int, *, last: bool = False) -> Any:
    layers = [nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after)]
    if last:
        layers += [
            nn.ReLU(),
            nn.Conv2d(after, after, 3, padding=1, bias=False),
            nn.BatchNorm2d(after),
        ]
    return nn.Sequential(*layers)


class SpeedNet(nn.Module):  # type: ignore[misc]
    """Whitening, then pairs of 3×3 convolutions that each halve the image, then a classifier
    without bias.

    The first convolution is not trained but set from the images (`whiten`); only its bias is
    trained, for a limited time. Others start as the identity on as many channels as possible. After
    Keller Jordan's airbench94 in idea (github.com/KellerJordan/cifar10-airbench, of tysam-code's
    hlb-CIFAR10); written anew.
    """

    def __init__(self, network: Network, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        side, channels = network.whiten, shape[0]
        first = 2 * channels * side * side
        self.whitening = nn.Conv2d(channels, first, side)
        self.whitening.weight.requires_grad_(False)
        widths = network.widths or (64, 256, 256)
        self.groups = nn.ModuleList(_Pair(*pair) for pair in itertools.pairwise((first, *widths)))
        self.head = nn.Linear(widths[-1], classes, bias=False)
        with torch.no_grad():
            self.head.weight /= self.head.weight.std()
        self.scale = 1.0 / widths[-1]

    def forward(self, images: Any, train_bias: bool = True) -> Any:
        bias = self.whitening.bias if train_bias else self.whitening.bias.detach()
        images = functional.gelu(functional.conv2d(images, self.whitening.weight, bias))
        for group in self.groups:
            images = group(images)
        images = functional.max_pool2d(images, images.shape[-1])
        return self.head(images.flatten(1)) * self.scale

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def whiten(self, images: Any) -> None:
        """Set the first convolution to the eigenvectors of the images' patches, scaled, and their
        negatives.

        images: (N, C, H, W), normalised.
        """
        weight = self.whitening.weight
        side = weight.shape[-1]
        patches = functional.unfold(images.float().contiguous(), side).transpose(1, 2).flatten(0, 1)
        values, vectors = torch.linalg.eigh(patches.T @ patches / len(patches))
        filters = (vectors / torch.sqrt(values + WHITEN_EPS)).T.reshape(-1, *weight.shape[1:])
        weight.copy_(torch.cat([filters, -filters]))


class _Pair(nn.Module):  # type: ignore[misc]
    """Convolution, pooling, normalisation, GELU, and the same without pooling."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.first, self.second = _identity_conv(before, after), _identity_conv(after, after)
        self.norms = nn.ModuleList(
            nn.BatchNorm2d(after, eps=1e-12, momentum=FOLLOW) for _ in range(2)
        )
        for norm in self.norms:
            norm.weight.requires_grad_(False)

    def forward(self, images: Any) -> Any:
        images = functional.gelu(self.norms[0](functional.max_pool2d(self.first(images), 2)))
        return functional.gelu(self.norms[1](self.second(images)))


def _identity_conv(before: int, after: int) -> Any:
    layer = nn.Conv2d(before, after, 3, padding=1, bias=False)
    with torch.no_grad():
        nn.init.dirac_(layer.weight[: layer.weight.shape[1]])
    return layer


def logits_over_views(images: Any, views: int, logits_of: Callable[[Any], Any]) -> Any:
    """Logits averaged over views: the image; also mirrored; also, with half of the weight, moved by
    a pixel up left and down right."""
    channels_last = images.is_contiguous(memory_format=torch.channels_last) and images.shape[1] > 1
    layout = torch.channels_last if channels_last else torch.contiguous_format

    def both(x: Any) -> Any:
        return logits_of(x) + logits_of(x.flip(-1).contiguous(memory_format=layout))

    if views == 1:
        return logits_of(images)
    if views == 2:
        return both(images)
    height, width = images.shape[2:]
    padded = functional.pad(images, (1, 1, 1, 1), mode="reflect")
    moved = [
        padded[:, :, at : at + height, at : at + width].contiguous(memory_format=layout)
        for at in (0, 2)
    ]
    return both(images) + 0.5 * sum(both(x) for x in moved)


def in_half(network: Any) -> Any:
    """The network with weights in float16, except normalisations."""
    for module in network.half().modules():
        if isinstance(module, nn.BatchNorm2d):
            module.float()
    return network
