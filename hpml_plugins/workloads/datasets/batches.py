"""Iteration over a data set: the order of an epoch, the share of each rank, and batches on the device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from hpml_plugins.errors import DataError

#: Epochs per seed. torch's DistributedSampler adds seed and epoch: there epoch 1 of seed 0 is epoch 0 of seed 1.
_EPOCHS = 100_003


def epoch_seed(seed: int, epoch: int) -> int:
    """The generator's seed for this epoch: different for every seed and epoch (below 100,003)."""
    return seed * _EPOCHS + epoch


def rank_share(order: Any, rank: int, ranks: int, *, even: bool) -> Any:
    """Every ranks-th of an epoch's order, as DistributedSampler does it. The shares are disjoint.

    even: all ranks get equally many, and up to ranks − 1 samples are left out: training needs it, because a rank with
    one more step waits forever. Otherwise the shares cover everything: testing needs that; DistributedSampler would
    repeat some.
    """
    if not 0 <= rank < ranks:
        raise DataError(f"rank {rank} of {ranks} does not exist")
    return order[rank : len(order) // ranks * ranks if even else None : ranks]


class Batches:
    """One epoch of batches (images, labels), gathered on the device where the images are.

    size: images per batch, on each rank.  seed, rank, ranks: as for `epoch_seed` and `rank_share`; drop_last makes the
    shares even and leaves out a last small batch.  pad: crop at a random place of the image with that many zero pixels
    added on each side.  flip: half of the images, left to right.

    The order and the augmentation are drawn on the CPU: an epoch is the same on every device, and an image's
    augmentation the same for any number of ranks. Without `set_epoch` every epoch is the same one.
    Raises DataError when a rank's share has not one batch, or the pad is not below the image's size.
    """

    def __init__(
        self,
        images: Any,
        labels: Any,
        size: int,
        *,
        seed: int = 0,
        rank: int = 0,
        ranks: int = 1,
        shuffle: bool = True,
        drop_last: bool = True,
        pad: int = 0,
        flip: bool = False,
    ) -> None:
        self.images, self.labels, self.size = images, labels, size
        self.seed, self.epoch = seed, 0
        self.rank, self.ranks = rank, ranks
        self.shuffle, self.drop_last = shuffle, drop_last
        self.pad, self.flip = pad, flip
        share = len(rank_share(range(len(labels)), rank, ranks, even=drop_last))
        _check_size(size, share, drop_last)
        if not 0 <= pad < min(images.shape[2:]):
            raise DataError(f"pad {pad} is not from 0 to below the image's {min(images.shape[2:])} pixels")
        self._count = share // size if drop_last else -(-share // size)

    def __len__(self) -> int:
        return self._count

    def set_epoch(self, epoch: int) -> None:
        """The next pass is this epoch: another order, another augmentation."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        generator = torch.Generator().manual_seed(epoch_seed(self.seed, self.epoch))
        n, device = len(self.labels), self.labels.device
        order = torch.randperm(n, generator=generator) if self.shuffle else torch.arange(n)
        mine = rank_share(order, self.rank, self.ranks, even=self.drop_last)
        sources = self._sources(generator, mine) if self.pad or self.flip else None
        mine = mine.to(device, non_blocking=True)
        for start in range(0, self._count * self.size, self.size):
            part = slice(start, start + self.size)
            images = self._augmented(mine[part], sources, part) if sources else self.images[mine[part]]
            yield images, self.labels[mine[part]]

    def _sources(self, generator: torch.Generator, mine: Any) -> tuple[Any, Any]:
        """Where each row (N, H) and each column (N, W) of the images of this rank is read from."""
        n, (height, width) = len(self.labels), self.images.shape[2:]
        moves = torch.randint(2 * self.pad + 1, (2, n), generator=generator)[:, mine] - self.pad
        turned = torch.rand(n, generator=generator)[mine] < 0.5
        moves = moves.to(self.labels.device, non_blocking=True)
        rows, columns = (
            torch.arange(length, device=moves.device) + move[:, None]
            for length, move in zip((height, width), moves, strict=True)
        )
        if self.flip:
            columns = torch.where(turned.to(moves.device)[:, None], columns.flip(1), columns)
        return rows, columns

    def _augmented(self, index: Any, sources: tuple[Any, Any], part: slice) -> Any:
        # Gather, crop and flip are one indexing: an output pixel is read from where it comes from.
        rows, columns = sources[0][part, None, :, None], sources[1][part, None, None, :]
        channels = torch.arange(self.images.shape[1], device=index.device)[:, None, None]
        height, width = self.images.shape[2:]
        result = self.images[
            index[:, None, None, None], channels, rows.clamp(0, height - 1), columns.clamp(0, width - 1)
        ]
        if not self.pad:
            return result
        return result * ((rows >= 0) & (rows < height) & (columns >= 0) & (columns < width))


def _check_size(size: int, share: int, drop_last: bool) -> None:
    if size < 1 or not share or (drop_last and size > share):
        raise DataError(f"no batch of {size} can be made of the {share} images of this rank")
