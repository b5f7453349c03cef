"""Where batches come from: images that are on the device already, or torch's DataLoader. Imports torch: on use only."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional
from torch.utils.data import DataLoader, DistributedSampler

from hpml_plugins import DataSet, Split
from hpml_plugins.plugins.tta.recipes import Recipe

#: Seeds of epochs must differ between runs and from those of other draws.
_EPOCHS = 100_003


class OnDevice:
    """Batches gathered, moved and flipped by one indexing of the images on the device.

    Everything that changes from step to step is on the device: nothing is decided by the host, and a step can be a CUDA
    graph. An epoch's draws are made once, before it. All ranks draw the same, and take every count-th image.
    """

    def __init__(self, data: DataSet, recipe: Recipe, device: str, dtype: Any, index: int = 0, count: int = 1) -> None:
        self.augment, self.batch, self.device = recipe.augment, recipe.batch, device
        self.index, self.count = index, count
        images = data.normalize(data.train.images.to(device), torch.float32)
        pad = recipe.augment.pad
        self.height, self.width = images.shape[2:]
        self.images = images
        if pad:
            mode = "reflect" if recipe.augment.fill == "reflect" else "constant"
            images = functional.pad(images, (pad,) * 4, mode=mode)
        self.padded = images.to(dtype).permute(0, 2, 3, 1).contiguous()
        self.labels = data.train.labels.to(device)
        self.total = len(self.labels)
        self.steps = self.total // count // recipe.batch
        share = self.steps * recipe.batch
        self._order = torch.zeros(share, dtype=torch.int64, device=device)
        self._moves = torch.zeros(2, self.total, dtype=torch.int64, device=device)
        self._flips = torch.zeros(self.total, dtype=torch.bool, device=device)
        self._coins = torch.zeros(self.total, dtype=torch.bool, device=device)
        self._places = torch.arange(recipe.batch, device=device)
        self._rows = torch.arange(self.height, device=device)
        self._columns = torch.arange(self.width, device=device)
        self._generator = torch.Generator(device)

    def start(self, seed: int) -> None:
        """Before a run."""
        self._generator.manual_seed(seed)
        self._coins.copy_(torch.rand(self.total, generator=self._generator, device=self.device) < 0.5)

    def start_epoch(self, seed: int, epoch: int) -> None:
        """Draw an epoch's order, moves and flips."""
        generator = self._generator
        generator.manual_seed(seed * _EPOCHS + epoch + 1)
        order = torch.randperm(self.total, generator=generator, device=self.device)
        self._order.copy_(order[self.index :: self.count][: len(self._order)])
        if self.augment.pad:
            most = 2 * self.augment.pad + 1
            torch.randint(most, self._moves.shape, generator=generator, device=self.device, out=self._moves)
        if self.augment.flip == "random":
            self._flips.copy_(torch.rand(self.total, generator=generator, device=self.device) < 0.5)
        elif self.augment.flip == "alternating":
            self._flips.copy_(self._coins ^ bool(epoch % 2))

    def take(self, step: Any) -> tuple[Any, Any]:
        """The batch of this step of the epoch.  step: int64 (1,), on the device.

        (images (B, C, H, W) in channels-last order, labels (B,)).
        """
        index = self._order.index_select(0, step * self.batch + self._places)
        rows, columns = self._rows, self._columns.expand(len(index), -1)
        if self.augment.flip != "none":
            columns = torch.where(self._flips[index][:, None], columns.flip(1), columns)
        rows = rows[None, :] + self._moves[0][index][:, None]
        columns = columns + self._moves[1][index][:, None]
        images = self.padded[index[:, None, None], rows[:, :, None], columns[:, None, :]]
        return images.permute(0, 3, 1, 2), self.labels[index]


class Loaded:
    """Batches by torch's DataLoader: cropped, flipped and normalised image by image on the host, as in most scripts."""

    def __init__(self, data: DataSet, recipe: Recipe, device: str, index: int = 0, count: int = 1) -> None:
        self.device, self.recipe, self.data = device, recipe, data
        self.index, self.count = index, count
        self.steps = len(data.train) // count // recipe.batch
        self.waited = 0.0
        self._loader: Any = None

    def start(self, seed: int) -> None:
        """Before a run: the loader, and its workers at the first batch."""
        recipe, images = self.recipe, self.data.train
        sampler = _Sampler(len(images), seed, self.index, self.count)
        self._loader = DataLoader(
            _Transformed(images, transform_of(self.data, recipe)), recipe.batch, sampler=sampler, drop_last=True,
            generator=sampler.generator, num_workers=recipe.workers, pin_memory=recipe.pin_memory,
            persistent_workers=bool(recipe.workers),
        )  # fmt: skip

    def close(self) -> None:
        """End the workers."""
        self._loader = None

    def epoch(self, seed: int, epoch: int) -> Iterator[tuple[Any, Any]]:
        """The batches of an epoch, on the device. `waited`: s that the host has waited for them."""
        self._loader.sampler.set_epoch(epoch)
        started = time.perf_counter()
        for images, labels in self._loader:
            self.waited += time.perf_counter() - started
            pinned = self.recipe.pin_memory
            yield images.to(self.device, non_blocking=pinned), labels.to(self.device, non_blocking=pinned)
            started = time.perf_counter()


class _Sampler(DistributedSampler):  # type: ignore[misc]  # torch is Any to mypy
    """torch's sampler, with the epochs of different seeds all different. set_epoch also seeds the loader's workers."""

    def __init__(self, n: int, seed: int, rank: int, ranks: int) -> None:
        super().__init__(range(n), ranks, rank, seed=seed * _EPOCHS, drop_last=True)
        self.generator = torch.Generator()
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        """The next pass is this epoch."""
        super().set_epoch(epoch)
        self.generator.manual_seed((self.seed + epoch) * self.num_replicas + self.rank)


class _Transformed:
    """A map-style data set: the images of a Split, each transformed in the worker."""

    def __init__(self, images: Split, transform: Callable[[Any], Any]) -> None:
        self._images, self._transform = images, transform

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        image, label = self._images[index]
        return self._transform(image), label


def transform_of(data: DataSet, recipe: Recipe) -> Any:
    """torchvision's transforms of one uint8 image (C, H, W), in the usual order."""
    from torchvision.transforms import v2

    steps: list[Any] = []
    if recipe.augment.pad:
        mode = "reflect" if recipe.augment.fill == "reflect" else "constant"
        steps.append(v2.RandomCrop(data.shape[1:], padding=recipe.augment.pad, padding_mode=mode))
    if recipe.augment.flip != "none":
        steps.append(v2.RandomHorizontalFlip())
    # A channel without any deviation has nothing to be scaled.
    std = [value or 1.0 for value in data.std]
    return v2.Compose([*steps, v2.ToDtype(torch.float32, scale=True), v2.Normalize(data.mean, std)])
