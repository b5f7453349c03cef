"""Arrays, DataSet and Split: images and labels as tensors, subsets of them, and iteration."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hpml_plugins.errors import HpmlError

if TYPE_CHECKING:
    import numpy

    from hpml_plugins.workloads.datasets.batches import Batches

    Array = numpy.ndarray[Any, Any]


@dataclass(frozen=True)
class Arrays:
    """A data set as NumPy arrays. images: uint8 (N, C, H, W).  labels: int64 (N,), below
    len(classes)."""

    train_images: Array
    train_labels: Array
    test_images: Array
    test_labels: Array
    classes: tuple[str, ...]


def find_fault(arrays: Arrays) -> str:
    """A problem with their types, lengths, shapes or labels; empty if there is none."""
    shapes = set()
    for part, images, labels in (
        ("training", arrays.train_images, arrays.train_labels),
        ("test", arrays.test_images, arrays.test_labels),
    ):
        if images.ndim != 4 or images.dtype != "uint8" or labels.dtype != "int64":
            return (
                f"{part} images are {images.dtype} {images.shape}, labels {labels.dtype}, not uint8"
                " (N, C, H, W), int64"
            )
        if len(images) != len(labels):
            return f"{len(images)} {part} images and {len(labels)} labels"
        if not images.size:
            return f"no {part} images"
        if labels.min() < 0 or labels.max() >= len(arrays.classes):
            return (
                f"{part} labels from {labels.min()} to {labels.max()} for {len(arrays.classes)}"
                " classes"
            )
        shapes.add(images.shape[1:])
    if len(shapes) == 1:
        return ""
    return f"training and test images of different shape: {sorted(shapes)}"


@dataclass(frozen=True, eq=False)
class Split:
    """Images and their labels. images: (N, C, H, W), uint8 as loaded.  labels: int64 (N,). Both on
    one device."""

    images: Any
    labels: Any

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        """One image and its label: a Split is a map-style data set for torch."""
        return self.images[index], int(self.labels[index])

    def to(self, device: Any) -> Split:
        """The same on another device."""
        return Split(self.images.to(device), self.labels.to(device))

    def take(self, n: int, seed: int = 0) -> Split:
        """n of the samples with balanced classes: the counts differ by at most one, except for
        classes with too few samples.

        In their original order. Raises HpmlError if there are fewer than n, or if n is below 1.
        """
        import torch

        if not 1 <= n <= len(self):
            raise HpmlError(f"{n} of {len(self)} samples cannot be taken")
        order = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))
        labels = self.labels.cpu()[order]
        rounds = torch.empty(
            len(self), dtype=torch.int64
        )  # the first of its class, the second, …
        for label in labels.unique():
            of_class = (labels == label).nonzero()[:, 0]
            rounds[of_class] = torch.arange(len(of_class))
        chosen = order[rounds.argsort(stable=True)[:n]].sort().values.to(self.labels.device)
        return Split(self.images[chosen], self.labels[chosen])

    def batches(self, size: int, **options: Any) -> Batches:
        """Batches made on the device of the images. options: see `Batches`. `set_epoch` before each
        epoch."""
        from hpml_plugins.workloads.datasets.batches import Batches

        return Batches(self.images, self.labels, size, **options)


@dataclass(frozen=True, eq=False)
class DataSet:
    """Images in classes, for training and for testing.

    classes: the labels' names.  mean, std: of each channel over the training images, values from 0
    to 1. fingerprint: SHA-256 of the whole data set as loaded.  part: which subset was taken, in
    words; empty for all.
    """

    name: str
    classes: tuple[str, ...]
    train: Split
    test: Split
    mean: tuple[float, ...]
    std: tuple[float, ...]
    fingerprint: str
    part: str = ""

    @property
    def shape(self) -> tuple[int, int, int]:
        """(channels, height, width) of every image."""
        channels, height, width = self.train.images.shape[1:]
        return int(channels), int(height), int(width)

    def take(self, train: int | None, test: int | None, seed: int = 0) -> DataSet:
        """A subset with balanced classes, for quick runs; None takes all. mean and std remain those
        of all images."""
        train = train or len(self.train)
        test = test or len(self.test)
        part = f"{train} + {test} by seed {seed}"
        return replace(
            self,
            train=self.train.take(train, seed),
            test=self.test.take(test, seed),
            part=part,
        )

    def to(self, device: Any) -> DataSet:
        """The same on another device."""
        return replace(self, train=self.train.to(device), test=self.test.to(device))

    def normalized(self, dtype: Any = None) -> DataSet:
        """A copy with images of this dtype (default: float32): values from 0 to 1, minus the mean,
        divided by the std."""
        return replace(
            self,
            train=replace(self.train, images=self.normalize(self.train.images, dtype)),
            test=replace(self.test, images=self.normalize(self.test.images, dtype)),
        )

    def normalize(self, images: Any, dtype: Any = None) -> Any:
        """uint8 images (N, C, H, W) or (C, H, W) as this dtype (default: float32), with mean 0 and
        deviation 1."""
        import torch

        if images.dtype != torch.uint8:
            raise HpmlError(
                f"images are {images.dtype} already, not uint8: they are normalised once"
            )
        mean, std = torch.tensor(
            [self.mean, self.std], dtype=torch.float32, device=images.device
        )[:, :, None, None]
        # A channel with zero deviation needs no scaling.
        scale = torch.where(std > 0, 1 / (255 * std), torch.ones_like(std))
        return ((images - 255 * mean) * scale).to(dtype or torch.float32)

    def facts(self) -> dict[str, str | float]:
        """Its description for a Record."""
        facts: dict[str, str | float] = {
            "fingerprint": self.fingerprint,
            "train": len(self.train),
            "test": len(self.test),
        }
        return {**facts, "part": self.part} if self.part else facts
