"""Model parallel training: W1 split by rows, W2 by columns; every rank sees all images. Imports torch."""

from __future__ import annotations

from typing import Any

import torch

from hpml_plugins import HpmlError, Rank
from hpml_plugins.plugins.mlp import reference
from hpml_plugins.plugins.mlp.exchange import make_exchange
from hpml_plugins.plugins.mlp.formulas import Sizes
from hpml_plugins.plugins.mlp.job import RATE, REG, Job
from hpml_plugins.plugins.mlp.network import Multiply, Network
from hpml_plugins.plugins.mlp.phases import ELEMENTWISE, Phase, no_phase


class SplitTrainer:
    """One rank's part: H / p rows of W1 and columns of W2. The outputs are added up over ranks, gradients are not.

    Images lie on the device: they are the same in every batch of an epoch and are brought there once.
    """

    def __init__(self, rank: Rank, job: Job, multiply: Multiply, phase: Phase = no_phase) -> None:
        if job.hidden % rank.count:
            raise HpmlError(f"a hidden layer of {job.hidden} cannot be split over {rank.count} ranks; use a multiple")
        self.job, self.index, self.each = job, rank.index, job.hidden // rank.count
        self.weights = reference.first_weights(job.sizes, rank.bench.seed)
        dtype = getattr(torch, job.dtype)
        sizes = Sizes(job.inputs, self.each, job.classes)
        self.network = Network(sizes, job.batch, self._own(), dtype, rank.device, multiply, phase)
        self.exchange = make_exchange(rank, job.way, self.network.y, pinned=job.pinned, phase=phase)
        self.whole = reference.synthetic(job.batch, job.sizes, rank.bench.seed)
        self.network.x.copy_(torch.from_numpy(self.whole[0]))
        self.network.targets.copy_(torch.from_numpy(reference.one_hot(self.whole[1], job.classes)))
        self.handed = 0

    def batch(self) -> None:
        """One batch."""
        network = self.network
        network.to_scores()
        self.handed += network.y.nbytes
        self.exchange.reduce(network.y)
        with network.phase(ELEMENTWISE):
            network.y.add_(network.b2)
            torch.softmax(network.y, 1, out=network.y)
        network.backward(self.job.batch)
        network.step(RATE, REG)

    def reset(self) -> None:
        """The weights of the beginning."""
        self.network.parameters.copy_(torch.cat([torch.from_numpy(part).reshape(-1) for part in self._own()]))

    def gathered(self, rank: Rank) -> list[Any]:
        """The whole network's weights, W1, b1, W2, b2 as NumPy arrays, on every rank."""
        import numpy

        parts = rank.gather(self.network.weights())
        w1, b1 = (numpy.concatenate([part[i] for part in parts]) for i in (0, 1))
        return [w1, b1, numpy.concatenate([part[2] for part in parts], axis=1), parts[0][3]]

    def _own(self) -> list[Any]:
        mine = slice(self.index * self.each, (self.index + 1) * self.each)
        w1, b1, w2, b2 = self.weights
        return [w1[mine], b1[mine], w2[:, mine].copy(), b2]
