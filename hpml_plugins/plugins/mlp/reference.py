"""The network in NumPy and float64, the reference for all training, and the images. Imports
NumPy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from hpml_plugins import Bench
from hpml_plugins.plugins.mlp.formulas import Job

Array = Any
#: The coursework document's regularisation and learning rate.
REG, RATE = 1e-4, 0.01
#: Synthetic images: how many for training and testing, inputs, classes, and the share of the
#: class's own picture in each.
MADE = (6000, 1000, 784, 10)
OWN = 0.35


class Images(NamedTuple):
    """For training and testing: (N × D) from 0 to 1 in float64, and labels (N)."""

    x: Array
    labels: Array
    test_x: Array
    test_labels: Array
    classes: int


def load_images(bench: Bench, name: str) -> Images:
    """The data set of this name; "made": ten pictures in noise, for nodes without data. Skips the
    point if the data set is missing."""
    if name == "made":
        train, test, inputs, classes = MADE
        random = np.random.RandomState(bench.seed)
        pictures = random.rand(classes, inputs)
        labels = random.randint(classes, size=train + test)
        x = OWN * pictures[labels] + (1 - OWN) * random.rand(train + test, inputs)
        return Images(x[:train], labels[:train], x[train:], labels[train:], classes)
    data = bench.data(name)
    train_x, test_x = (
        part.images.numpy().reshape(len(part.images), -1) / 255.0
        for part in (data.train, data.test)
    )
    return Images(
        train_x, data.train.labels.numpy(), test_x, data.test.labels.numpy(), len(data.classes)
    )


def first_weights(job: Job, seed: int) -> list[Array]:
    """W1 (H × D), b1, W2 (C × H), b2 before the first step: weights normal with deviation 0.1,
    biases 0; float64."""
    random = np.random.RandomState(seed)
    w1, w2 = 0.1 * random.randn(job.hidden, job.inputs), 0.1 * random.randn(job.classes, job.hidden)
    return [w1, np.zeros(job.hidden), w2, np.zeros(job.classes)]


def random_batch(job: Job, seed: int) -> tuple[Array, Array]:
    """Random images (B × D, from 0 to 1, float64) and labels (B): for times, which do not depend on
    the contents."""
    random = np.random.RandomState(seed)
    return random.rand(job.batch, job.inputs), random.randint(job.classes, size=job.batch)


def one_hot(labels: Array, classes: int) -> Array:
    """One-hot labels, (N × C)."""
    return np.eye(classes)[labels]


def in_batches(count: int, batch: int, epochs: int = 1) -> Iterator[slice]:
    """Batches in order, the same in every epoch; a smaller last one is left out."""
    for _ in range(epochs):
        for start in range(0, count - batch + 1, batch):
            yield slice(start, start + batch)


def outputs(weights: list[Array], images: Array) -> tuple[Array, Array]:
    """The hidden layer (N × H) after the sigmoid, and the outputs (N × C) after the softmax."""
    w1, b1, w2, b2 = weights
    hidden = 1 / (1 + np.exp(-(images @ w1.T + b1)))
    scores = hidden @ w2.T + b2
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return hidden, scores / scores.sum(axis=1, keepdims=True)


def gradient(weights: list[Array], images: Array, targets: Array) -> list[Array]:
    """The gradients of the mean cross-entropy, without regularisation, in the order of the
    weights."""
    hidden, found = outputs(weights, images)
    difference = (found - targets) / len(images)
    back = difference @ weights[2] * hidden * (1 - hidden)
    return [back.T @ images, back.sum(axis=0), difference.T @ hidden, difference.sum(axis=0)]


def train(
    weights: list[Array],
    images: Array,
    labels: Array,
    batches: Iterable[slice],
    rate: float = RATE,
    reg: float = REG,
) -> list[Array]:
    """The weights after one step of gradient descent for each batch.  reg: of ½ reg (|W1|² +
    |W2|²)."""
    weights = [each.copy() for each in weights]
    targets = one_hot(labels, len(weights[3]))
    for batch in batches:
        steps = gradient(weights, images[batch], targets[batch])
        for matrix in (weights[0], weights[2]):
            matrix *= 1 - rate * reg
        for weight, step in zip(weights, steps, strict=True):
            weight -= rate * step
    return weights


def precision(weights: list[Array], images: Images) -> float:
    """Share of test images whose label is predicted."""
    return float((outputs(weights, images.test_x)[1].argmax(axis=1) == images.test_labels).mean())


def relative_error(found: list[Array], wanted: list[Array]) -> float:
    """The largest over W1 and W2 of |found − wanted| / |wanted| (Frobenius), as the document
    compares weights."""
    pairs = [(np.asarray(found[i], dtype=np.float64), wanted[i]) for i in (0, 2)]
    return max(float(np.linalg.norm(one - other) / np.linalg.norm(other)) for one, other in pairs)
