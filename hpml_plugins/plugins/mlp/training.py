"""Training on ranks: data parallel in several ways, and model parallel; their times and weights.
Imports torch."""

from __future__ import annotations

import functools
import hashlib
import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from hpml_plugins import HpmlError, Rank
from hpml_plugins.plugins.mlp import reference
from hpml_plugins.plugins.mlp.exchange import make_exchange
from hpml_plugins.plugins.mlp.formulas import IMAGES, LAUNCHING, ORDER, TOLERANCE, Job
from hpml_plugins.plugins.mlp.network import Multiply, Network, Phases, make_multiply

#: The number of checked batches.
CHECKED = 3
#: The longest delay of the GPU, s, by a sleeping kernel that counts cycles; and the most cycles per
#: second of any card.
LONGEST_SLEEP, CYCLES = 0.02, 2.2e9


class Trainer:
    """One rank's part of a data-parallel training on random images, which every batch copies from
    the host.

    multiply: default: the job's product.
    """

    def __init__(self, rank: Rank, job: Job, multiply: Multiply | None = None) -> None:
        self.rank, self.job, self.phases = rank, job, Phases(rank.device)
        self.first = reference.first_weights(job, rank.bench.seed)
        multiply = multiply or make_multiply(rank.bench, job.product)
        self.network = Network(job, self.first, rank.device, multiply, self.phases)
        self.exchange = make_exchange(rank, job, self.network.gradient, self.phases)
        own = slice(rank.index * job.images, (rank.index + 1) * job.images)
        x, labels = reference.random_batch(job, rank.bench.seed)
        self.host_x = self._on_host(x[own])
        self.host_targets = self._on_host(reference.one_hot(labels[own], job.classes))

    def copy_images(self) -> None:
        """Copy this rank's images of the batch to the device."""
        with self.phases(IMAGES):
            self.network.x.copy_(self.host_x, non_blocking=self.job.pinned)
            self.network.targets.copy_(self.host_targets, non_blocking=self.job.pinned)

    def batch(self, pieces: int = 1) -> None:
        """One batch, one phase after the other.  pieces: see `compute`."""
        self.copy_images()
        self.compute(pieces)

    def compute(self, pieces: int = 1) -> None:
        """One batch, without copying its images.  pieces: of W1's gradient, each sent while the
        next is computed."""
        network = self.network
        network.forward()
        if pieces == 1:
            network.backward()
            self.exchange.reduce(network.gradient)
        else:
            sent: list[Iterator[None]] = []

            def send(begin: int, end: int) -> None:
                sent.append(self.exchange.send(network.gradient, begin, end))
                next(sent[-1])

            network.backward(pieces, send)
            for previous, piece in itertools.pairwise([iter(()), *sent]):
                next(piece)  # starts to reduce it
                next(previous, None)  # the generator ends there
            next(sent[-1], None)
        network.step()

    def weights(self) -> list[Any]:
        """The network's W1, b1, W2, b2 as NumPy arrays, on every rank."""
        return self.network.weights()

    def check(self, run: Callable[[], None], what: str) -> float:
        """Train CHECKED batches from the first weights; returns their error, after checking it.
        what: the owner of the weights, for the message."""
        self.network.load(self.first)
        for _ in range(CHECKED):
            run()
        found, error, bench = self.weights(), 0.0, self.rank.bench
        if self.rank.index == 0:
            wanted = wanted_weights(replace(self.job, pinned=False, waiting=False), bench.seed)
            error = reference.relative_error(found, wanted)
        error = float(self.rank.share(error))
        limit = TOLERANCE[self.job.dtype]
        message = f"{what}: weights differ from NumPy's in float64 by more than {limit:g}"
        bench.check(bench.result(error) <= limit, message)
        digest = hashlib.sha256(b"".join(each.tobytes() for each in found)).hexdigest()
        bench.check(len(set(self.rank.gather(digest))) == 1, "all ranks have the same weights")
        return error

    def profile(self, count: int) -> dict[str, float]:
        """The median time of each phase of a batch over `count` batches, mean over ranks, s; 0 for
        a missing phase.

        Ranks wait for one another before gradients are reduced, as in the coursework, so that
        waiting does not count as reducing. A phase is the time on the GPU; the host's launch time
        is hidden, and is reported as LAUNCHING.
        """
        rank, phases = self.rank, self.phases
        launches = []
        for _ in range(5):
            rank.synchronize()
            launches.append(self._launch())
        launching = statistics.median(launches)
        taken: list[dict[str, float]] = []
        phases.active = True
        for _ in range(count + 2):
            rank.barrier()
            with phases("batch iteration", on_host=True):
                self.copy_images()
                rank.synchronize()
                if rank.device.startswith("cuda"):
                    torch.cuda._sleep(int(min(LONGEST_SLEEP, 2 * launching + 5e-4) * CYCLES))
                self._launch()
                rank.barrier()
                self.exchange.reduce(self.network.gradient)
                rank.synchronize()
                self.network.step()
            taken.append({**phases.taken(), LAUNCHING: launching})
        phases.active = False
        names = (*ORDER, LAUNCHING)
        mine = [statistics.median(each.get(name, 0.0) for each in taken[2:]) for name in names]
        means = map(statistics.fmean, zip(*rank.gather_numbers(mine), strict=True))
        return dict(zip(names, means, strict=True))

    def _launch(self) -> float:
        """Launch a forward and backward pass; returns the time on the host, s."""
        started = time.perf_counter()
        with self.phases("forward", on_host=True):
            self.network.forward()
        with self.phases("backward", on_host=True):
            self.network.backward()
        return time.perf_counter() - started

    def _on_host(self, values: Any) -> Any:
        tensor = torch.from_numpy(values).to(getattr(torch, self.job.dtype)).contiguous()
        return (
            tensor.pin_memory()
            if self.job.pinned and self.rank.device.startswith("cuda")
            else tensor
        )


class SplitTrainer(Trainer):
    """One rank's part of a model-parallel training: H / p rows of W1 and columns of W2, and all
    images, on the device.

    The hidden layer needs no data from other ranks; the outputs are reduced; every gradient stays
    with its weights.
    """

    def __init__(self, rank: Rank, job: Job, multiply: Multiply) -> None:
        if job.hidden % rank.count:
            raise HpmlError(
                f"a hidden layer of {job.hidden} cannot be split over {rank.count} ranks; use a"
                " multiple"
            )
        self.rank, self.job, self.phases = rank, job, Phases(rank.device)
        each = job.hidden // rank.count
        mine = slice(rank.index * each, (rank.index + 1) * each)
        w1, b1, w2, b2 = reference.first_weights(job, rank.bench.seed)
        self.first = [w1[mine], b1[mine], w2[:, mine].copy(), b2]
        self.network = Network(
            replace(job, hidden=each, ranks=1), self.first, rank.device, multiply, self.phases
        )
        self.exchange = make_exchange(rank, job, self.network.y, self.phases)
        x, labels = reference.random_batch(job, rank.bench.seed)
        self.network.x.copy_(torch.from_numpy(x))
        self.network.targets.copy_(torch.from_numpy(reference.one_hot(labels, job.classes)))

    def compute_split(self) -> None:
        """One batch."""
        self.network.forward(self.exchange.reduce)
        self.network.backward()
        self.network.step()

    def weights(self) -> list[Any]:
        """The whole network's W1, b1, W2, b2 as NumPy arrays, on every rank."""
        w1, b1, w2, b2 = zip(*self.rank.gather(self.network.weights()), strict=True)
        return [np.concatenate(w1), np.concatenate(b1), np.concatenate(w2, axis=1), b2[0]]


class Prefetcher:
    """Copies a batch's images on its own stream while the previous batch is computed. GPUs only."""

    def __init__(self, trainer: Trainer, pieces: int) -> None:
        self._trainer, self._pieces = trainer, pieces
        self._stream = torch.cuda.Stream()
        self._next = (
            torch.empty_like(trainer.network.x),
            torch.empty_like(trainer.network.targets),
        )
        self._fetch()

    def batch(self) -> None:
        """One batch; the next one's images are copied at the same time."""
        network = self._trainer.network
        torch.cuda.current_stream().wait_stream(self._stream)
        (network.x, network.targets), self._next = self._next, (network.x, network.targets)
        self._fetch()
        self._trainer.compute(self._pieces)

    def _fetch(self) -> None:
        # The last batch that read the buffers was enqueued earlier on the current stream.
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            self._next[0].copy_(self._trainer.host_x, non_blocking=True)
            self._next[1].copy_(self._trainer.host_targets, non_blocking=True)


@functools.lru_cache(maxsize=1)
def wanted_weights(job: Job, seed: int) -> list[Any]:
    """The reference's weights after CHECKED batches of the random images; cached for all checked
    variants."""
    weights, images = reference.first_weights(job, seed), reference.random_batch(job, seed)
    return reference.train(weights, *images, [slice(0, job.batch)] * CHECKED)


def time_in_turns(
    runs: Mapping[str, Callable[[], object]], trainers: Sequence[Trainer], count: int, turns: int
) -> tuple[dict[str, list[float]], list[dict[str, float]]]:
    """Times of whole batches by name, of the slowest rank, and median phases of each trainer's
    batch, s.

    In turns of `count` batches, because the load of the host and the contents of its caches must be
    the same for all. Two extra batches begin each turn and do not count. Ranks begin each batch
    together, as in `Trainer.profile`.
    """
    times: dict[str, list[float]] = {name: [] for name in runs}
    profiles: list[list[dict[str, float]]] = [[] for _ in trainers]
    rank = trainers[0].rank
    for _ in range(turns):
        for name, run in runs.items():
            run()
            taken = []
            for _ in range(count + 1):
                rank.barrier()
                started = time.perf_counter()
                run()
                rank.synchronize()
                taken.append(time.perf_counter() - started)
            times[name] += map(max, zip(*rank.gather_numbers(taken[1:]), strict=True))
        for trainer, found in zip(trainers, profiles, strict=True):
            found.append(trainer.profile(count))
    phases = [
        {name: statistics.median(each[name] for each in found) for name in found[0]}
        for found in profiles
    ]
    return times, phases
