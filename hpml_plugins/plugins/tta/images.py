"""Sources of batches: images that are already on the device, or torch's DataLoader. Imports torch:
on use only."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn import functional
from torch.utils.data import DataLoader, DistributedSampler

from hpml_plugins import DataSet
from hpml_plugins.plugins.tta.recipes import Recipe

#: Seeds of epochs must differ between runs and from other seeds.
_EPOCHS = 100_003


class _Feed:
    """Batches of rank `index` of `count`. `start` is called before a run; after each yield of
    `epoch`, `take` returns the next batch: images (B, C, H, W) and labels (B,), on the device.

    steps: of an epoch.  waited: s that the host has waited for batches in this run.
    """

    def __init__(
        self, data: DataSet, recipe: Recipe, device: str, index: int = 0, count: int = 1
    ) -> None:
        self.data, self.recipe, self.device, self.index, self.count = (
            data,
            recipe,
            device,
            index,
            count,
        )
        self.dtype = getattr(torch, recipe.precision)
        self.layout = torch.channels_last if recipe.channels_last else torch.contiguous_format
        self.steps = len(data.train) // count // recipe.batch
        self.waited = 0.0

    def close(self) -> None:
        """End the loading processes."""


class OnDevice(_Feed):
    """Batches gathered, moved and flipped by one indexing of the images on the device.

    Everything that changes from step to step is on the device: the host decides nothing, so a step
    can be a CUDA graph. An epoch's random numbers are drawn once, before it. All ranks draw the
    same, and take every count-th image.
    """

    def __init__(
        self, data: DataSet, recipe: Recipe, device: str, index: int = 0, count: int = 1
    ) -> None:
        super().__init__(data, recipe, device, index, count)
        images = data.normalize(data.train.images.to(device), torch.float32)
        height, width = images.shape[2:]
        if pad := recipe.augment.pad:
            images = functional.pad(images, (pad,) * 4, mode=recipe.augment.fill)
        self.padded = images.to(self.dtype).permute(0, 2, 3, 1).contiguous()
        self.labels = data.train.labels.to(device)
        total = len(self.labels)
        self._order = torch.zeros(self.steps * recipe.batch, dtype=torch.int64, device=device)
        self._moves = torch.zeros(2, total, dtype=torch.int64, device=device)
        self._flips = torch.zeros(total, dtype=torch.bool, device=device)
        self._coins = torch.zeros(total, dtype=torch.bool, device=device)
        self._places = torch.arange(recipe.batch, device=device)
        self._rows = torch.arange(height, device=device)
        self._columns = torch.arange(width, device=device)
        self._generator = torch.Generator(device)

    def start(self, seed: int) -> None:
        """Draw which images are flipped first."""
        self._generator.manual_seed(seed)
        self._coins.copy_(self._drawn_coins())

    def epoch(self, seed: int, epoch: int) -> Iterator[None]:
        """Draw an epoch's order, moves and flips, which the steps then read."""
        augment, generator = self.recipe.augment, self._generator
        generator.manual_seed(seed * _EPOCHS + epoch + 1)
        order = torch.randperm(len(self.labels), generator=generator, device=self.device)
        self._order.copy_(order[self.index :: self.count][: len(self._order)])
        if augment.pad:
            most = 2 * augment.pad + 1
            torch.randint(
                most, self._moves.shape, generator=generator, device=self.device, out=self._moves
            )
        if augment.flip == "random":
            self._flips.copy_(self._drawn_coins())
        elif augment.flip == "alternating":
            self._flips.copy_(self._coins ^ bool(epoch % 2))
        for _ in range(self.steps):
            yield

    def take(self, step: Any) -> tuple[Any, Any]:
        """The batch of this step, images in channels-last order.  step: of a run, int64 (1,), on
        the device."""
        index = self._order.index_select(
            0, step.remainder(self.steps) * self.recipe.batch + self._places
        )
        rows, columns = self._rows, self._columns.expand(len(index), -1)
        if self.recipe.augment.flip != "none":
            columns = torch.where(self._flips[index][:, None], columns.flip(1), columns)
        rows = rows[None, :] + self._moves[0][index][:, None]
        columns = columns + self._moves[1][index][:, None]
        images = self.padded[index[:, None, None], rows[:, :, None], columns[:, None, :]]
        return images.permute(0, 3, 1, 2), self.labels[index]

    def _drawn_coins(self) -> Any:
        return torch.rand(len(self.labels), generator=self._generator, device=self.device) < 0.5


class Loaded(_Feed):
    """Batches by torch's DataLoader: cropped, flipped and normalised image by image on the host, as
    in most scripts.

    They are copied into tensors at fixed addresses, so that a step can be a CUDA graph.
    """

    def __init__(
        self, data: DataSet, recipe: Recipe, device: str, index: int = 0, count: int = 1
    ) -> None:
        super().__init__(data, recipe, device, index, count)
        images = torch.randn((recipe.batch, *data.shape), device=device).contiguous(
            memory_format=self.layout
        )
        self._batch = images, torch.zeros(recipe.batch, dtype=torch.int64, device=device)
        self._loader: Any = None

    def start(self, seed: int) -> None:
        """Make the loader; its workers start at the first batch."""
        recipe = self.recipe
        sampler = DistributedSampler(
            range(len(self.data.train)), self.count, self.index, seed=seed * _EPOCHS, drop_last=True
        )
        self._loader = DataLoader(
            _Transformed(self.data, recipe),
            recipe.batch,
            sampler=sampler,
            drop_last=True,
            generator=torch.Generator(),
            num_workers=recipe.workers,
            pin_memory=recipe.pin_memory,
            persistent_workers=bool(recipe.workers),
        )
        self.waited = 0.0

    def epoch(self, seed: int, epoch: int) -> Iterator[None]:
        """Load an epoch, batch by batch. The generator seeds the workers."""
        self._loader.sampler.set_epoch(epoch)
        self._loader.generator.manual_seed((seed * _EPOCHS + epoch) * self.count + self.index)
        started = time.perf_counter()
        for loaded in self._loader:
            self.waited += time.perf_counter() - started
            for tensor, part in zip(self._batch, loaded, strict=True):
                tensor.copy_(part, non_blocking=self.recipe.pin_memory)
            yield
            started = time.perf_counter()

    def take(self, step: Any) -> tuple[Any, Any]:
        """The last loaded batch."""
        return self._batch

    def close(self) -> None:
        self._loader = None


class _Transformed:
    """A map-style data set: images as uint8 (C, H, W), each transformed in the worker, in the usual
    order."""

    def __init__(self, data: DataSet, recipe: Recipe) -> None:
        from torchvision.transforms import v2

        steps: list[Any] = []
        if pad := recipe.augment.pad:
            steps.append(
                v2.RandomCrop(data.shape[1:], padding=pad, padding_mode=recipe.augment.fill)
            )
        if recipe.augment.flip != "none":
            steps.append(v2.RandomHorizontalFlip())
        # A channel with zero deviation needs no scaling.
        std = [value or 1.0 for value in data.std]
        steps += [v2.ToDtype(torch.float32, scale=True), v2.Normalize(data.mean, std)]
        self._images, self._transform = data.train, v2.Compose(steps)

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        image, label = self._images[index]
        return self._transform(image), label
