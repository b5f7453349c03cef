"""What is deployed: a network in float32, images to judge it by, and how it came to its weights. Imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from hpml_plugins import Bench, HpmlError
from hpml_plugins.plugins.quantization.network import as_reals, in_batches, train

MODELS = ("simple", "resnet18", "resnet50")
#: ResNets are judged by images of this side and timed with images of the usual side.
JUDGED_SIDE, TIMED_SIDE = 64, 224
#: Training images for a ResNet's statistics and last layer, test images, and images for the statistics alone.
FITTED = {"cuda": (4000, 2000), "cpu": (1000, 300)}
STATISTICS, CALIBRATION = 256, 256
#: Of the ridge regression, times the mean square of the features.
RIDGE = 0.1
BETTER_THAN_A_GUESS = 2.0


@dataclass(frozen=True)
class Subject:
    """A network in eval mode on the bench's device.

    test: float32 images; labels.  calibration: training images of the same kind.  timed: the shape of an image that is
    timed.  classes: how many of the logits count.
    """

    network: nn.Module
    test: Any
    labels: Any
    calibration: Any
    timed: tuple[int, int, int]
    classes: int


def prepare(bench: Bench, model: str, data: str) -> Subject:
    """The network by name. Raises HpmlError for another name.

    simple: that of `quantization_steps`, trained as there.  resnet18, resnet50: torchvision's, convolutions drawn at
    random, normalisation's statistics from images, and of the 1000 outputs of the last layer the first ones fitted to
    the data set's classes by ridge regression: no weights are downloaded. Each must be better than a guess.
    """
    images = bench.data(data)
    seen = images.train.take(min(CALIBRATION, len(images.train)), bench.seed).images.to(bench.device)
    if model == "simple":
        trained = train(bench, images)
        return Subject(
            trained.network, trained.test, trained.test_labels, as_reals(seen), images.shape, len(images.classes)
        )
    if model not in MODELS:
        raise HpmlError(f"quantization has no network {model!r}; use one of {', '.join(MODELS)}")
    train_images, test_images = FITTED[bench.device]
    part = images.take(min(train_images, len(images.train)), min(test_images, len(images.test)), bench.seed)
    part = part.to(bench.device)
    torch.manual_seed(bench.seed)
    network = _resnet(model).to(bench.device).eval().requires_grad_(False)
    bench.progress(f"fitting {model}", 0.05)
    fitted = enlarged(part.train.images)
    _take_statistics(network, fitted[:STATISTICS])
    _fit_last_layer(network, fitted, part.train.labels, len(images.classes))
    subject = Subject(
        network,
        enlarged(part.test.images),
        part.test.labels,
        enlarged(seen),
        (3, TIMED_SIDE, TIMED_SIDE),
        len(images.classes),
    )
    right = (logits(network, subject).argmax(1) == subject.labels).double().mean()
    bench.check(float(right) > BETTER_THAN_A_GUESS / subject.classes, f"{model} is little better than a guess")
    return subject


def logits(network: Any, subject: Subject, dtype: Any = None) -> Any:
    """Those of the test images that count, float32. network: takes images of this dtype, float32 when left out."""
    with torch.no_grad():
        parts = [network(part.to(dtype or torch.float32)).float() for (part,) in in_batches(subject.test)]
    return torch.cat(parts)[:, : subject.classes]


def enlarged(images: Any) -> Any:
    """uint8 images as float32 (N, 3, JUDGED_SIDE, JUDGED_SIDE)."""
    reals = as_reals(images).expand(-1, 3, -1, -1)
    return nn.functional.interpolate(reals, size=(JUDGED_SIDE, JUDGED_SIDE), mode="bilinear")


def _resnet(model: str) -> nn.Module:
    import torchvision.models

    return getattr(torchvision.models, model)(weights=None)


def _take_statistics(network: nn.Module, images: Any) -> None:
    """Running means and variances of these images: those of random weights are far from 0 and 1."""
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # cumulative average
        norm.train()
    for part in images.split(64):
        network(part)
    for norm in norms:
        norm.eval()


def _fit_last_layer(network: Any, images: Any, labels: Any, classes: int) -> None:
    """Ridge regression of −1 and 1 on the features; the rows of other classes stay as they were drawn."""
    last, network.fc = network.fc, nn.Identity()
    features = torch.cat([network(part) for (part,) in in_batches(images)]).double()
    network.fc = last
    mean = features.mean(0)
    centred = features - mean
    wanted = 2.0 * nn.functional.one_hot(labels, classes).double() - 1
    gram = centred.T @ centred
    gram.diagonal().add_(RIDGE * float(gram.diagonal().mean()))
    weight = torch.linalg.solve(gram, centred.T @ (wanted - wanted.mean(0))).T
    last.weight[:classes] = weight.float()
    last.bias[:classes] = (wanted.mean(0) - weight @ mean).float()
