"""The networks that are quantized, trained on this node, and their inputs. Imports torch: imported
on use only."""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from hpml_plugins import Bench, DataSet, Split

#: Bytes become reals by (byte − 128) / 64: about −2 to 2, and a grid of 8 bits represents each
#: exactly.
INPUT_SCALE, INPUT_CENTRE = 1 / 64, 128
INPUT_LOW, INPUT_HIGH = -INPUT_CENTRE * INPUT_SCALE, (255 - INPUT_CENTRE) * INPUT_SCALE
#: Training of the simple network: epochs by the number of training images, about UPDATES updates,
#: within bounds.
BATCH, RATE, UPDATES, MOST_EPOCHS, FEWEST_EPOCHS = 128, 2e-3, 2000, 30, 5
#: ResNets are trained and tested with images of this side, and timed with images of the usual side.
JUDGED_SIDE, TIMED_SIDE = 32, 224
#: Their training and test images: just enough to be far better than guessing.
RESNET_BATCH, RESNET_RATE, RESNET_UPDATES = {"cuda": 256, "cpu": 64}, 1e-3, 120
RESNET_TESTED = {"cuda": 10_000, "cpu": 1000}
CALIBRATION = 256
#: A network's accuracy must be at least this multiple of a guess's; otherwise its accuracy after
#: quantization is meaningless.
BETTER_THAN_A_GUESS, RESNET_BETTER_THAN_A_GUESS = 2.5, 2.0
#: Images per batch in tests: on a CPU, as many as have results that fit into its caches.
TEST_BATCH = {"cuda": 2000, "cpu": 100}
#: Below this count of numbers per image, a second CPU thread costs more than it saves.
SMALL = 256


@dataclass(frozen=True)
class Subject:
    """A network in eval mode on the bench's device.

    test: float32 images; labels.  calibration: training images of the same kind.  timed: the shape
    of an image that is timed.  classes: how many of the logits count.
    """

    network: nn.Module
    test: Any
    labels: Any
    calibration: Any
    timed: tuple[int, int, int]
    classes: int


def prepare(bench: Bench, model: str, data: str) -> Subject:
    """The trained network by name: "simple", that of `quantization_steps`, or a classifier of
    torchvision's.

    torchvision's start from random weights, because none are downloaded, and are trained briefly on
    the first of their 1000 outputs; the check only requires twice the accuracy of a guess.
    """
    images = bench.data(data).to(bench.device)
    classes = len(images.classes)
    seen = images.train.take(min(CALIBRATION, len(images.train)), bench.seed).images
    if model == "simple":
        network, _ = train_simple(bench, images)
        return Subject(
            network,
            as_reals(images.test.images),
            images.test.labels,
            as_reals(seen),
            images.shape,
            classes,
        )
    network = train_resnet(bench, model, images.train, classes)
    test = images.test.take(min(RESNET_TESTED[bench.device], len(images.test)), bench.seed)
    subject = Subject(
        network,
        enlarged(test.images),
        test.labels,
        enlarged(seen),
        (3, TIMED_SIDE, TIMED_SIDE),
        classes,
    )
    right = share(logits(network, subject.test)[:, :classes].argmax(1) == subject.labels)
    bench.check(
        right > RESNET_BETTER_THAN_A_GUESS / classes, f"{model} is little better than a guess"
    )
    return subject


def simple_network(shape: tuple[int, int, int], classes: int) -> nn.Sequential:
    """Two convolutions, each with ReLU and max pooling, and two linear layers. shape: (channels,
    height, width)."""
    channels, height, width = shape
    flat = 32 * (height // 2 // 2) * (width // 2 // 2)
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(channels, 16, 3, padding=1),
            relu1=nn.ReLU(),
            pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(16, 32, 3, padding=1),
            relu2=nn.ReLU(),
            pool2=nn.MaxPool2d(2),
            flatten=nn.Flatten(),
            linear1=nn.Linear(flat, 64),
            relu3=nn.ReLU(),
            linear2=nn.Linear(64, classes),
        )
    )


def train_simple(bench: Bench, data: DataSet) -> tuple[nn.Sequential, int]:
    """The simple network after training, in eval mode, and the number of epochs. data: on the
    bench's device."""
    torch.manual_seed(bench.seed)
    network = simple_network(data.shape, len(data.classes)).to(bench.device)
    batches = data.train.batches(min(BATCH, len(data.train)), seed=bench.seed)
    epochs = max(FEWEST_EPOCHS, min(MOST_EPOCHS, math.ceil(UPDATES / len(batches))))
    with threads_for(data.train.images):
        _train(
            bench,
            network,
            lambda images: network(as_reals(images)),
            batches,
            epochs * len(batches),
            RATE,
        )
    reached = share(logits(network, as_reals(data.test.images)).argmax(1) == data.test.labels)
    guess = 1 / len(data.classes)
    bench.check(
        reached > BETTER_THAN_A_GUESS * guess, "the trained network is little better than a guess"
    )
    return network, epochs


def train_resnet(bench: Bench, model: str, split: Split, classes: int) -> nn.Module:
    """A network after brief training, in bfloat16 on a GPU; statistics of batch normalization are
    computed afterwards."""
    import torchvision.models

    device, layout = bench.device, memory_format(bench.device)
    torch.manual_seed(bench.seed)
    network: nn.Module = getattr(torchvision.models, model)(weights=None).to(
        device, memory_format=layout
    )

    def forward(images: Any) -> Any:
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            found = network(enlarged(images).contiguous(memory_format=layout))
        return found[:, :classes].float()

    batches = split.batches(min(RESNET_BATCH[device], len(split)), seed=bench.seed)
    _train(bench, network, forward, batches, RESNET_UPDATES, RESNET_RATE)
    some = enlarged(split.take(min(4 * CALIBRATION, len(split)), bench.seed).images)
    # The running statistics lag behind the last updates of the weights.
    torch.optim.swa_utils.update_bn(some.split(CALIBRATION), network)
    return network.to(memory_format=torch.contiguous_format)


def _train(
    bench: Bench,
    network: nn.Module,
    forward: Callable[[Any], Any],
    batches: Any,
    updates: int,
    rate: float,
) -> None:
    """Adam with a rate that rises and falls once (Smith and Topin's one cycle). forward: images →
    logits."""

    def all_epochs() -> Iterator[tuple[Any, Any]]:
        for epoch in itertools.count():
            batches.set_epoch(epoch)
            yield from batches

    optimizer = torch.optim.Adam(network.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=updates)
    for number, (images, labels) in enumerate(itertools.islice(all_epochs(), updates)):
        if number % 10 == 0:
            bench.progress(f"training, update {number} of {updates}", 0.3 * number / updates)
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(forward(images), labels).backward()
        optimizer.step()
        schedule.step()
    network.eval().requires_grad_(False)


def as_reals(images: Any) -> Any:
    """uint8 images as the simple network's inputs, float32."""
    return (images.float() - INPUT_CENTRE) * INPUT_SCALE


def enlarged(images: Any) -> Any:
    """uint8 images as a ResNet's inputs: float32 (N, 3, JUDGED_SIDE, JUDGED_SIDE)."""
    reals = as_reals(images).expand(-1, 3, -1, -1)
    return nn.functional.interpolate(reals, size=(JUDGED_SIDE, JUDGED_SIDE), mode="bilinear")


def memory_format(device: str) -> Any:
    """The memory format of images and weights on this device."""
    return torch.channels_last if device == "cuda" else torch.contiguous_format


@contextmanager
def threads_for(images: Any) -> Iterator[None]:
    """Use one CPU thread for small images."""
    before = torch.get_num_threads()
    if images.device.type == "cpu" and images[0].numel() < SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def in_batches(images: Any) -> Any:
    """The images in parts of TEST_BATCH."""
    return images.split(TEST_BATCH[images.device.type])


def logits(network: Any, images: Any, dtype: Any = torch.float32) -> Any:
    """The logits of all images, float32. network: takes images of this dtype."""
    with torch.no_grad():
        return torch.cat([network(part.to(dtype)).float() for part in in_batches(images)])


def share(hits: Any) -> float:
    """The share of a tensor of booleans that is true."""
    return float(hits.double().mean())
