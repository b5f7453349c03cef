"""The simple convolutional network of the exercise, and training it. Imports torch: imported on use only."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from hpml_plugins import Bench, DataSet

#: Bytes become reals by (byte − 128) / 64: about −2 to 2, and a grid of 8 bits holds every one exactly.
INPUT_SCALE, INPUT_CENTRE = 1 / 64, 128
INPUT_LOW, INPUT_HIGH = -INPUT_CENTRE * INPUT_SCALE, (255 - INPUT_CENTRE) * INPUT_SCALE
BATCH, RATE = 128, 2e-3
#: Images at once when testing: on a CPU as many as its caches hold the results of.
TEST_BATCH = {"cuda": 2000, "cpu": 100}
#: Epochs by the number of training images: about as many updates, within bounds.
UPDATES, MOST_EPOCHS, FEWEST_EPOCHS = 2000, 30, 5
#: Below so many numbers an image, a second thread of a CPU costs more than it computes.
SMALL = 256
#: The network is to be told from a guess, or its accuracy after quantization says nothing: times the guess.
BETTER_THAN_A_GUESS = 2.5


@dataclass(frozen=True)
class Trained:
    """A network in eval mode, and the images as reals on its device. epochs: how many it saw."""

    network: nn.Sequential
    train: Any
    train_labels: Any
    test: Any
    test_labels: Any
    epochs: int


def simple_network(shape: tuple[int, int, int], classes: int) -> nn.Sequential:
    """Two convolutions, each with ReLU and max pooling, and two linear layers. shape: (channels, height, width)."""
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


def as_reals(images: Any) -> Any:
    """uint8 images as the network's inputs, float32."""
    return (images.float() - INPUT_CENTRE) * INPUT_SCALE


def train(bench: Bench, data: DataSet, share: float = 0.5) -> Trained:
    """Train the simple network by Adam with a rate that rises and falls once (Smith and Topin's one cycle).

    share: of the point's progress that training is. Checks that the network has learnt something.
    """
    device = bench.device
    torch.manual_seed(bench.seed)
    data = data.to(device)
    images, labels = as_reals(data.train.images), data.train.labels
    network = simple_network(data.shape, len(data.classes)).to(device)
    batches = type(data.train)(images, labels).batches(min(BATCH, len(labels)), seed=bench.seed)
    epochs = max(FEWEST_EPOCHS, min(MOST_EPOCHS, math.ceil(UPDATES / len(batches))))
    optimizer = torch.optim.Adam(network.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=epochs * len(batches))
    for epoch in range(epochs):
        batches.set_epoch(epoch)
        with threads_for(images):
            for x, y in batches:
                optimizer.zero_grad(set_to_none=True)
                nn.functional.cross_entropy(network(x), y).backward()
                optimizer.step()
                schedule.step()
        bench.progress(f"training, epoch {epoch + 1} of {epochs}", share * (epoch + 1) / epochs)
    network.eval().requires_grad_(False)
    trained = Trained(network, images, labels, as_reals(data.test.images), data.test.labels, epochs)
    reached, guess = accuracy(network, trained.test, trained.test_labels), 1 / len(data.classes)
    bench.check(reached > BETTER_THAN_A_GUESS * guess, "the trained network is little better than a guess")
    return trained


@contextmanager
def threads_for(images: Any) -> Iterator[None]:
    """One thread of the CPU while small images are computed with."""
    before = torch.get_num_threads()
    if images.device.type == "cpu" and images[0].numel() < SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def accuracy(network: Any, images: Any, labels: Any) -> float:
    """Share of the images whose largest logit is their label's. network: images → logits."""
    right = sum(int((network(x).argmax(1) == y).sum()) for x, y in in_batches(images, labels))
    return right / len(labels)


def in_batches(*tensors: Any) -> Any:
    """The tensors side by side in parts of TEST_BATCH rows."""
    return zip(*(tensor.split(TEST_BATCH[tensor.device.type]) for tensor in tensors), strict=True)
