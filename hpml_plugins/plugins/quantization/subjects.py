"""What is deployed: a network in float32, images to judge it by, and how it came to its weights. Imports torch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from hpml_plugins import Bench, HpmlError, Split
from hpml_plugins.plugins.quantization.network import as_reals, in_batches, train

MODELS = ("simple", "resnet18", "resnet50")
#: ResNets are trained and judged with images of this side, and timed with images of the usual one.
JUDGED_SIDE, TIMED_SIDE = 32, 224
#: Updates, images of each, and test images: enough to be told from a guess by far, no more.
UPDATES = {"cuda": 120, "cpu": 120}
BATCH = {"cuda": 256, "cpu": 64}
TESTED = {"cuda": 10_000, "cpu": 1000}
RATE = 1e-3
CALIBRATION = 256
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

    simple: that of `quantization_steps`, trained as there.  resnet18, resnet50: torchvision's, from random weights, for
    none are downloaded. They are trained briefly on the first of their 1000 outputs; the check asks for no more than
    twice the accuracy of a guess.
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
    classes = len(images.classes)
    network = _trained_resnet(bench, model, images.train.to(bench.device), classes)
    test = images.test.take(min(TESTED[bench.device], len(images.test)), bench.seed).to(bench.device)
    subject = Subject(network, enlarged(test.images), test.labels, enlarged(seen), (3, TIMED_SIDE, TIMED_SIDE), classes)
    right = float((logits(network, subject).argmax(1) == subject.labels).double().mean())
    bench.check(right > BETTER_THAN_A_GUESS / classes, f"{model} is little better than a guess")
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


def _trained_resnet(bench: Bench, model: str, split: Split, classes: int) -> nn.Module:
    """Adam with one cycle, in bfloat16 where there is a GPU; the normalisation's statistics are taken afterwards."""
    import torchvision.models

    device = bench.device
    torch.manual_seed(bench.seed)
    layout = torch.channels_last if device == "cuda" else torch.contiguous_format
    network: nn.Module = getattr(torchvision.models, model)(weights=None).to(device, memory_format=layout)
    optimizer = torch.optim.Adam(network.parameters(), lr=RATE)
    updates = UPDATES[device]
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=updates)
    batches = split.batches(min(BATCH[device], len(split)), seed=bench.seed)
    for number, (images, labels) in enumerate(itertools.islice(_epochs(batches), updates)):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            found = network(enlarged(images).contiguous(memory_format=layout))
        nn.functional.cross_entropy(found[:, :classes].float(), labels).backward()
        optimizer.step()
        schedule.step()
        bench.progress(f"training {model}, update {number + 1} of {updates}", 0.3 * number / updates)
    network.eval().requires_grad_(False)
    some = split.take(min(4 * CALIBRATION, len(split)), bench.seed)
    _take_statistics(network, enlarged(some.images))
    return network.to(memory_format=torch.contiguous_format)


def _epochs(batches: Any) -> Iterator[tuple[Any, Any]]:
    for epoch in itertools.count():
        batches.set_epoch(epoch)
        yield from batches


def _take_statistics(network: nn.Module, images: Any) -> None:
    """Running means and variances over these images: those of the training lag behind its last updates."""
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # cumulative average
        norm.train()
    for part in images.split(CALIBRATION):
        network(part)
    for norm in norms:
        norm.eval()
