"""The network in NumPy and float64: what every other way of training it is held against. Imports NumPy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from hpml_plugins.plugins.mlp.formulas import Sizes

Array = Any


def first_weights(sizes: Sizes, seed: int) -> list[Array]:
    """W1 (H × D), b1, W2 (C × H), b2 before the first step: weights normal with deviation 0.1, biases 0; float64."""
    random = np.random.RandomState(seed)
    return [
        0.1 * random.randn(sizes.hidden, sizes.inputs),
        np.zeros(sizes.hidden),
        0.1 * random.randn(sizes.classes, sizes.hidden),
        np.zeros(sizes.classes),
    ]


def synthetic(images: int, sizes: Sizes, seed: int) -> tuple[Array, Array]:
    """Random images (N × D, from 0 to 1, float64) and labels (N): for times, which do not depend on what is seen."""
    random = np.random.RandomState(seed)
    return random.rand(images, sizes.inputs), random.randint(sizes.classes, size=images)


def one_hot(labels: Array, classes: int) -> Array:
    """(N × C): 1 where the label is."""
    return np.eye(classes)[labels]


def in_batches(count: int, batch: int, epochs: int = 1) -> Iterator[slice]:
    """The exercise's batches: in order, every epoch the same, what is left at the end left out."""
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
    """Of the mean cross-entropy, without regularisation, in the order of the weights."""
    hidden, found = outputs(weights, images)
    difference = (found - targets) / len(images)
    back = difference @ weights[2] * hidden * (1 - hidden)
    return [back.T @ images, back.sum(axis=0), difference.T @ hidden, difference.sum(axis=0)]


def train(
    weights: list[Array], images: Array, labels: Array, batches: Iterable[slice], rate: float, reg: float
) -> list[Array]:
    """The weights after one step of gradient descent for each batch.  reg: of ½ reg (|W1|² + |W2|²)."""
    weights = [each.copy() for each in weights]
    targets = one_hot(labels, len(weights[3]))
    for batch in batches:
        steps = gradient(weights, images[batch], targets[batch])
        for index, (weight, step) in enumerate(zip(weights, steps, strict=True)):
            decay = 1 - rate * reg if index in (0, 2) else 1.0
            weight *= decay
            weight -= rate * step
    return weights


def precision(weights: list[Array], images: Array, labels: Array) -> float:
    """Labels that are predicted correctly, of all."""
    return float((outputs(weights, images)[1].argmax(axis=1) == labels).mean())


def relative_error(found: list[Array], wanted: list[Array]) -> float:
    """The largest over W1 and W2 of |found − wanted| / |wanted| (Frobenius), as the exercise compares weights."""
    pairs = [(np.asarray(found[i], dtype=np.float64), wanted[i]) for i in (0, 2)]
    return max(float(np.linalg.norm(one - other) / np.linalg.norm(other)) for one, other in pairs)
