"""One device, no ranks: whether the weights are right, and what the network learns. Imports torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from hpml_plugins import Bench
from hpml_plugins.plugins.mlp import reference
from hpml_plugins.plugins.mlp.formulas import Sizes
from hpml_plugins.plugins.mlp.job import REG
from hpml_plugins.plugins.mlp.network import Multiply, Network

#: Made-up images: how many for training and testing, inputs, classes, and how much of each is its class's own picture.
MADE = (6000, 1000, 784, 10)
OWN = 0.35


@dataclass(frozen=True)
class Images:
    """For training and testing: (N × D) from 0 to 1 in float64, and labels (N)."""

    x: Any
    labels: Any
    test_x: Any
    test_labels: Any
    classes: int

    def sizes(self, hidden: int) -> Sizes:
        """Of a network for them."""
        return Sizes(int(self.x.shape[1]), hidden, self.classes)


def images_of(bench: Bench, name: str) -> Images:
    """The data set of this name; "made" are ten pictures in noise, for nodes that have none. Skips where it is not."""
    if name == "made":
        train, test, inputs, classes = MADE
        random = np.random.RandomState(bench.seed)
        pictures = random.rand(classes, inputs)
        labels = random.randint(classes, size=train + test)
        x = OWN * pictures[labels] + (1 - OWN) * random.rand(train + test, inputs)
        return Images(x[:train], labels[:train], x[train:], labels[train:], classes)
    data = bench.data(name)

    def flat(images: Any) -> Any:
        return images.numpy().reshape(len(images), -1) / 255.0

    return Images(
        flat(data.train.images), data.train.labels.numpy(), flat(data.test.images), data.test.labels.numpy(),
        len(data.classes),
    )  # fmt: skip


class Learner:
    """A network that goes through its images in batches, all of them on the device.

    Batches are taken in order, as the exercise does. `rate` may be changed between epochs.
    """

    def __init__(
        self,
        images: Images,
        hidden: int,
        batch: int,
        rate: float,
        dtype: Any,
        device: str,
        multiply: Multiply,
        seed: int,
    ) -> None:
        self.images, self.batch, self.rate = images, batch, rate
        self.first = reference.first_weights(images.sizes(hidden), seed)
        self.network = Network(images.sizes(hidden), batch, self.first, dtype, device, multiply)
        self.x = torch.from_numpy(images.x).to(device, dtype)
        self.targets = torch.from_numpy(reference.one_hot(images.labels, images.classes)).to(device, dtype)
        self.test_x = torch.from_numpy(images.test_x).to(device, dtype)
        self.test_labels = torch.from_numpy(images.test_labels).to(device)

    def learn(self, batches: Iterable[slice]) -> None:
        """A step for each batch."""
        network = self.network
        for batch in batches:
            network.x.copy_(self.x[batch])
            network.targets.copy_(self.targets[batch])
            network.forward()
            network.backward(self.batch)
            network.step(self.rate, REG)

    def epochs(self, count: int) -> None:
        """So many times through all images."""
        self.learn(reference.in_batches(len(self.images.labels), self.batch, count))

    def precision(self) -> float:
        """Test images whose label is predicted, of all."""
        scores = self._scores(self.test_x)
        return float((scores.argmax(1) == self.test_labels).double().mean())

    def loss(self) -> float:
        """Mean cross-entropy over the training images."""
        likely = torch.log_softmax(self._scores(self.x).double(), 1)
        return float(-(likely * self.targets).sum(1).mean())

    def _scores(self, x: Any) -> Any:
        network = self.network
        hidden = torch.sigmoid(torch.addmm(network.b1, x, network.w1.T))
        return torch.addmm(network.b2, hidden, network.w2.T)


def errors_over(
    learner_of: Callable[[float], Learner], rates: Iterable[float], steps: tuple[int, ...]
) -> list[dict[str, float]]:
    """How far weights are from NumPy's in float64 after so many steps, for each learning rate; and both precisions.

    learner_of: a new learner for a rate.  steps: ascending. The precisions are those after the last of them.
    """
    rows = []
    for rate in rates:
        learner = learner_of(rate)
        weights, done = learner.first, 0
        every = list(_cycled(learner, steps[-1]))
        for count in steps:
            learner.learn(every[done:count])
            weights = reference.train(
                weights, learner.images.x, learner.images.labels, every[done:count], rate, REG
            )  # fmt: skip
            done = count
            error = reference.relative_error(learner.network.weights(), weights)
            rows.append({
                "rate": rate,
                "steps": float(count),
                "error": error if math.isfinite(error) else 1.0,
                "precision": learner.precision(),
                "reference": reference.precision(weights, learner.images.test_x, learner.images.test_labels),
            })  # fmt: skip
    return rows


def _cycled(learner: Learner, count: int) -> Iterable[slice]:
    each = list(reference.in_batches(len(learner.images.labels), learner.batch))
    for number in range(count):
        yield each[number % len(each)]
