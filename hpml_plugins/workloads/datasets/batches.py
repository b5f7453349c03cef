"""Iteration over a data set: the order of an epoch, the share of each rank, and batches on the
device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import torch

from hpml_plugins.errors import HpmlError

#: Epochs per seed. torch's DistributedSampler adds seed and epoch, so that epoch 1 of seed 0 is
#: epoch 0 of seed 1.
_EPOCHS = 100_003


def epoch_seed(seed: int, epoch: int) -> int:
    """The generator's seed for this epoch: different for every seed and epoch (below 100,003)."""
    return seed * _EPOCHS + epoch


def rank_share(order: Any, rank: int, ranks: int, *, even: bool) -> Any:
    """Every ranks-th sample of an epoch's order, as in DistributedSampler. The shares are disjoint.

    even: all ranks get the same number, and up to ranks − 1 samples are left out, for training: a
    rank with one more step would wait forever. Otherwise the shares cover all samples, for testing;
    DistributedSampler would repeat some.
    """
    if not 0 <= rank < ranks:
        raise HpmlError(f"rank {rank} of {ranks} does not exist")
    return order[rank : len(order) // ranks * ranks if even else None : ranks]


@dataclass(eq=False, repr=False)
class Batches:
    """One epoch of batches (images, labels), gathered on the device of the images.

    size: images per batch, on each rank.  seed, rank, ranks: as for `epoch_seed` and `rank_share`;
    drop_last makes the shares even and leaves out a last small batch.

    The order is drawn on the CPU: an epoch is the same on every device. Without `set_epoch` all
    epochs are the same. Raises HpmlError if a rank's share is smaller than one batch.
    """

    images: Any
    labels: Any
    size: int
    _: KW_ONLY
    seed: int = 0
    rank: int = 0
    ranks: int = 1
    shuffle: bool = True
    drop_last: bool = True
    epoch: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        share = len(
            rank_share(range(len(self.labels)), self.rank, self.ranks, even=self.drop_last)
        )
        if self.size < 1 or not share or (self.drop_last and self.size > share):
            raise HpmlError(
                f"no batch of {self.size} can be made of the {share} images of this rank"
            )
        self._count = share // self.size if self.drop_last else -(-share // self.size)

    def __len__(self) -> int:
        return self._count

    def set_epoch(self, epoch: int) -> None:
        """Use the order of this epoch in the next pass."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        generator = torch.Generator().manual_seed(epoch_seed(self.seed, self.epoch))
        n = len(self.labels)
        device = self.labels.device
        order = torch.randperm(n, generator=generator) if self.shuffle else torch.arange(n)
        mine = rank_share(order, self.rank, self.ranks, even=self.drop_last).to(
            device, non_blocking=True
        )
        for batch in mine[: self._count * self.size].split(self.size):
            yield self.images[batch], self.labels[batch]
