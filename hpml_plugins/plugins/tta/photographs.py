"""The data set `photographs`: pictures of CIFAR-10's ten classes from other sources, to test
trained networks. They are not part of the package: `credits.yaml` beside them has the author and
licence of each. The repository has them in examples/photographs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hpml_plugins import Arrays, DataSet, DataSource, HpmlError, Split
from hpml_plugins.errors import describe


@dataclass(frozen=True)
class JudgedOn(DataSource):
    """A data set without training images, so small that no decoded copy is kept."""

    def load(self, progress: Callable[[str], None]) -> DataSet:
        """The data set, with the mean and deviation of its test images. Raises HpmlError if it is
        missing or damaged."""
        from torch import from_numpy

        path = self.path()
        if reason := self.why_missing():
            raise HpmlError(reason)
        assert path is not None
        try:
            arrays = self.read(path)
        except Exception as error:  # the libraries raise many kinds of errors for damaged files
            raise HpmlError(
                f"data set {self.name} is damaged: {path}: {describe(error)} ({self.how_to_get})"
            ) from error
        train = Split(from_numpy(arrays.train_images), from_numpy(arrays.train_labels))
        test = Split(from_numpy(arrays.test_images), from_numpy(arrays.test_labels))
        values = test.images.double() / 255
        mean, deviation = values.mean((0, 2, 3)), values.std((0, 2, 3), correction=0)
        digest = hashlib.sha256(arrays.test_images.tobytes() + arrays.test_labels.tobytes())
        return DataSet(
            self.name,
            arrays.classes,
            train,
            test,
            tuple(mean.tolist()),
            tuple(deviation.tolist()),
            f"sha256:{digest.hexdigest()}",
        )


def find_photographs(root: Path) -> Path | None:
    """The folder `photographs` of a root, which must have the file of credits."""
    folder = root / "photographs"
    return folder if (folder / "credits.yaml").is_file() else None


def read_photographs(folder: Path) -> Arrays:
    """All of them for testing, none for training. The classes are the folders, in alphabetical
    order, which is CIFAR-10's."""
    import numpy as np
    from torchvision.datasets import ImageFolder
    from torchvision.transforms.functional import pil_to_tensor

    files = ImageFolder(str(folder), transform=pil_to_tensor)
    images = np.stack([image.numpy() for image, _ in files])
    labels = np.asarray(files.targets, dtype=np.int64)
    return Arrays(images[:0], labels[:0], images, labels, tuple(files.classes))


def examples_above() -> tuple[Path, ...]:
    """The folders `examples` above this package: a checkout's, and that of the project in whose
    folder `env` asv has installed a commit's package."""
    return tuple(folder / "examples" for folder in Path(__file__).resolve().parents)


PHOTOGRAPHS = JudgedOn(
    name="photographs",
    find=find_photographs,
    read=read_photographs,
    looks_for="photographs/ with credits.yaml",
    how_to_get="copy the folder examples/photographs of the repository of hpml-plugins",
    modules=("torchvision",),
    extra_roots=examples_above,
)
