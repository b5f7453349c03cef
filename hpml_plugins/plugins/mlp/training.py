"""Training on ranks: data parallel in several ways, and model parallel; the check of their weights. Imports torch."""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from hpml_plugins import HpmlError, Rank
from hpml_plugins.plugins.mlp import reference
from hpml_plugins.plugins.mlp.exchange import make_exchange
from hpml_plugins.plugins.mlp.formulas import IMAGES, Job
from hpml_plugins.plugins.mlp.network import Multiply, Network
from hpml_plugins.plugins.mlp.profiling import Phases

#: How many batches are checked, and how far weights may be from the reference's: a hundred roundings.
CHECKED = 3
TOLERANCE = {"float32": 1.2e-5, "float64": 2.2e-14}
#: In how many pieces W1's gradient is made, copied and reduced.
PIECES = 8


class Trainer:
    """One rank's part of a data-parallel training on random images, which lie in the host's memory.

    Each rank has its share of a batch, which every batch copies to the device, as the coursework document does;
    gradients are reduced.
    """

    def __init__(self, rank: Rank, job: Job, multiply: Multiply) -> None:
        self.rank, self.job, self.phases = rank, job, Phases(rank.device)
        self.first = reference.first_weights(job, rank.bench.seed)
        self.network = Network(job, self.first, rank.device, multiply, self.phases)
        self.exchange = make_exchange(rank, job, self.network.gradient, self.phases)
        own = slice(rank.index * job.images, (rank.index + 1) * job.images)
        x, labels = reference.random_batch(job, rank.bench.seed)
        self.host_x = self._on_host(x[own])
        self.host_targets = self._on_host(reference.one_hot(labels[own], job.classes))

    def copy_images(self) -> None:
        """This rank's images of the batch to the device."""
        with self.phases(IMAGES):
            self.network.x.copy_(self.host_x, non_blocking=self.job.pinned)
            self.network.targets.copy_(self.host_targets, non_blocking=self.job.pinned)

    def compute(self) -> None:
        """One batch, without copying its images."""
        self.network.forward()
        self.network.backward()
        self.exchange.reduce(self.network.gradient)
        self.network.step()

    def batch(self) -> None:
        """One batch, one phase after the other."""
        self.copy_images()
        self.compute()

    def compute_in_pieces(self) -> None:
        """One batch, without copying its images, in which parts of W1's gradient are sent while others are made.

        All else is ready before W1's gradient is begun, and goes first.
        """
        network, inputs = self.network, self.job.inputs
        network.forward()
        network.backward_to_hidden()
        sent = [self.exchange.send(network.gradient, self.job.hidden * inputs, self.job.parameters)]
        next(sent[0])
        for begin, end in share_rows(self.job.hidden, PIECES):
            network.backward_rows(begin, end)
            sent.append(self.exchange.send(network.gradient, begin * inputs, end * inputs))
            next(sent[-1])
        for previous, piece in itertools.pairwise([iter(()), *sent]):
            next(piece)  # begins to reduce it
            next(previous, None)  # ends there
        next(sent[-1], None)
        network.step()

    def batch_in_pieces(self) -> None:
        """One batch, W1's gradient in pieces."""
        self.copy_images()
        self.compute_in_pieces()

    def weights(self) -> list[Any]:
        """The network's W1, b1, W2, b2 as NumPy arrays, on every rank."""
        return self.network.weights()

    def _on_host(self, values: Any) -> Any:
        tensor = torch.from_numpy(values).to(getattr(torch, self.job.dtype)).contiguous()
        return tensor.pin_memory() if self.job.pinned and self.rank.device.startswith("cuda") else tensor


def share_rows(rows: int, count: int) -> list[tuple[int, int]]:
    """So many parts of the rows, or as many as there are rows, as (first, past the last), nearly equal."""
    count = min(count, rows)
    return list(itertools.pairwise(rows * i // count for i in range(count + 1)))


class Prefetcher:
    """Copies a batch's images on a stream of its own while the batch before is computed. GPUs only."""

    def __init__(self, trainer: Trainer, compute: Callable[[], None]) -> None:
        self._trainer, self._compute = trainer, compute
        self._stream = torch.cuda.Stream()
        self._next = (torch.empty_like(trainer.network.x), torch.empty_like(trainer.network.targets))
        self._fetch()

    def batch(self) -> None:
        """One batch; the next one's images are copied meanwhile."""
        network = self._trainer.network
        torch.cuda.current_stream().wait_stream(self._stream)
        (network.x, network.targets), self._next = self._next, (network.x, network.targets)
        self._fetch()
        self._compute()

    def _fetch(self) -> None:
        # The buffers were last read by a batch that the current stream has been given before.
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            self._next[0].copy_(self._trainer.host_x, non_blocking=True)
            self._next[1].copy_(self._trainer.host_targets, non_blocking=True)


class SplitTrainer:
    """One rank's part of a model-parallel training: H / p rows of W1 and columns of W2, and all images.

    The outputs are reduced, gradients are not. Images lie on the device: they are the same in every batch of an epoch
    and are copied there once.
    """

    def __init__(self, rank: Rank, job: Job, multiply: Multiply) -> None:
        if job.hidden % rank.count:
            raise HpmlError(f"a hidden layer of {job.hidden} cannot be split over {rank.count} ranks; use a multiple")
        self.rank, self.job = rank, job
        each = job.hidden // rank.count
        mine = slice(rank.index * each, (rank.index + 1) * each)
        w1, b1, w2, b2 = reference.first_weights(job, rank.bench.seed)
        self.first = [w1[mine], b1[mine], w2[:, mine].copy(), b2]
        phases = Phases(rank.device)
        self.network = Network(replace(job, hidden=each, ranks=1), self.first, rank.device, multiply, phases)
        self.exchange = make_exchange(rank, job, self.network.y, phases)
        x, labels = reference.random_batch(job, rank.bench.seed)
        self.network.x.copy_(torch.from_numpy(x))
        self.network.targets.copy_(torch.from_numpy(reference.one_hot(labels, job.classes)))

    def batch(self) -> None:
        """One batch."""
        self.network.forward_to_scores()
        self.exchange.reduce(self.network.y)
        self.network.softmax()
        self.network.backward()
        self.network.step()

    def weights(self) -> list[Any]:
        """The whole network's W1, b1, W2, b2 as NumPy arrays, on every rank."""
        w1, b1, w2, b2 = zip(*self.rank.gather(self.network.weights()), strict=True)
        return [np.concatenate(w1), np.concatenate(b1), np.concatenate(w2, axis=1), b2[0]]


@functools.lru_cache(maxsize=1)
def wanted_weights(job: Job, seed: int) -> list[Any]:
    """The reference's weights after CHECKED batches of the random images; kept for all variants that are checked."""
    weights, images = reference.first_weights(job, seed), reference.random_batch(job, seed)
    return reference.train(weights, *images, [slice(0, job.batch)] * CHECKED)


def check_weights(trainer: Trainer | SplitTrainer, run: Callable[[], None], what: str) -> float:
    """Train CHECKED batches from the first weights; their error, the same on every rank, checked.

    what: whose weights, for the message. All ranks must have the same weights, to the bit.
    """
    rank = trainer.rank
    trainer.network.load(trainer.first)
    for _ in range(CHECKED):
        run()
    found, error = trainer.weights(), 0.0
    if rank.index == 0:
        wanted = wanted_weights(replace(trainer.job, pinned=False, waiting=False), rank.bench.seed)
        error = reference.relative_error(found, wanted)
    error = float(rank.share(error))
    limit, bench = TOLERANCE[trainer.job.dtype], rank.bench
    bench.check(bench.result(error) <= limit, f"{what}: weights differ from NumPy's in float64 by more than {limit:g}")
    digest = hashlib.sha256(b"".join(each.tobytes() for each in found)).hexdigest()
    bench.check(len(set(rank.gather(digest))) == 1, "all ranks have the same weights")
    return error
