"""Data-parallel training on ranks: each has its share of a batch, gradients are added up. Imports torch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from hpml_plugins import Rank
from hpml_plugins.plugins.mlp import reference
from hpml_plugins.plugins.mlp.exchange import Exchange, make_exchange
from hpml_plugins.plugins.mlp.formulas import Sizes, share
from hpml_plugins.plugins.mlp.job import RATE, REG, Job, Product
from hpml_plugins.plugins.mlp.network import Multiply, Network
from hpml_plugins.plugins.mlp.phases import IMAGES, Phase, no_phase

#: How many batches are checked, and how far weights may be from the reference's: a hundred roundings.
CHECKED = 3
TOLERANCE = {"float32": 1.2e-5, "float64": 2.2e-14}


def multiplier(product: Product, device: str) -> Multiply:
    """The matrix product of this name on this device."""
    torch.backends.cuda.matmul.allow_tf32 = False
    if product == "torch" or not device.startswith("cuda"):
        from hpml_plugins.plugins.mlp.plain_product import by_torch

        return by_torch
    from hpml_plugins.plugins.mlp.product import Tiled

    return Tiled()


class Trainer:
    """One rank's part of a data-parallel training on synthetic images, which lie in the host's memory.

    exchange: how gradients are added up; None for one rank alone. Every batch copies this rank's images to the device,
    as the exercise does.
    """

    def __init__(
        self, rank: Rank, job: Job, multiply: Multiply, exchange: Exchange | None = None, phase: Phase = no_phase
    ) -> None:
        self.job, self.phase, self.seed = job, phase, rank.bench.seed
        self.images = share(job.batch, rank.count)
        self.weights = reference.first_weights(job.sizes, rank.bench.seed)
        dtype = getattr(torch, job.dtype)
        self.network = Network(job.sizes, self.images, self.weights, dtype, rank.device, multiply, phase)
        self.exchange = exchange or make_exchange(
            rank, job.way, self.network.gradient, pinned=job.pinned, waiting=job.waiting, phase=phase
        )
        own = slice(rank.index * self.images, (rank.index + 1) * self.images)
        self.whole = reference.synthetic(job.batch, job.sizes, rank.bench.seed)
        pin = job.pinned and rank.device.startswith("cuda")
        self.host_x = _on_host(self.whole[0][own], dtype, pin)
        self.host_targets = _on_host(reference.one_hot(self.whole[1][own], job.classes), dtype, pin)

    def copy_images(self) -> None:
        """This rank's images of the batch to the device."""
        with self.phase(IMAGES):
            self.network.x.copy_(self.host_x, non_blocking=self.job.pinned)
            self.network.targets.copy_(self.host_targets, non_blocking=self.job.pinned)

    def batch(self) -> None:
        """One batch, as the exercise does it: copy, forward, backward, add up, step."""
        self.copy_images()
        self.network.forward()
        self.network.backward(self.job.batch)
        self.exchange.reduce(self.network.gradient)
        self.network.step(RATE, REG)

    def error(self, run: Callable[[], None]) -> float:
        """How far weights are from the reference's after CHECKED batches from the beginning, relative. Rank 0 knows."""
        self.reset()
        for _ in range(CHECKED):
            run()
        return reference.relative_error(
            self.network.weights(), wanted_weights(self.job.sizes, self.job.batch, self.seed)
        )

    def reset(self) -> None:
        """The weights of the beginning."""
        first = torch.cat([torch.from_numpy(each).reshape(-1) for each in self.weights])
        self.network.parameters.copy_(first)


@functools.lru_cache(maxsize=1)
def wanted_weights(sizes: Sizes, batch: int, seed: int) -> list[Any]:
    """The reference's weights after CHECKED batches of the synthetic images, for every variant of a batch that asks."""
    weights, images = reference.first_weights(sizes, seed), reference.synthetic(batch, sizes, seed)
    return reference.train(weights, *images, [slice(0, batch)] * CHECKED, RATE, REG)


def checked_error(rank: Rank, trainer: Trainer, run: Callable[[], None], what: str) -> float:
    """The trainer's error, the same on every rank, checked. what: whose weights, in words."""
    mine = trainer.error(run) if rank.index == 0 else _follow(trainer, run)
    error = float(rank.share(mine))
    limit = TOLERANCE[trainer.job.dtype]
    bench = rank.bench
    bench.check(bench.result(error) <= limit, f"{what}: weights differ from NumPy's in float64 by more than {limit:g}")
    same_everywhere(rank, trainer.network.parameters)
    return error


def _follow(trainer: Trainer, run: Callable[[], None]) -> float:
    """The batches of `Trainer.error` on a rank that does not compare."""
    trainer.reset()
    for _ in range(CHECKED):
        run()
    return 0.0


def same_everywhere(rank: Rank, parameters: Any) -> None:
    """All ranks must have the same weights, to the bit."""
    import hashlib

    digest = hashlib.sha256(parameters.cpu().numpy().tobytes()).hexdigest()
    rank.bench.check(len(set(rank.gather(digest))) == 1, "all ranks have the same weights")


def _on_host(values: Any, dtype: Any, pin: bool) -> Any:
    tensor = torch.from_numpy(values).to(dtype).contiguous()
    return tensor.pin_memory() if pin else tensor
