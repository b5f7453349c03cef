"""Images from elsewhere, on which each trained network is judged too: a user's own, CIFAR-10.1, shifted test images."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from hpml_plugins import Bench, DataSet, HpmlError
from hpml_plugins.plugins.tta.running import Run

if TYPE_CHECKING:
    from hpml_plugins.plugins.tta.training import Trainer

#: A folder with one folder of pictures a class.
OWN = "HPML_TTA_IMAGES"
#: The folder `datasets` of github.com/modestyachts/CIFAR-10.1.
CIFAR101 = "HPML_TTA_CIFAR10_1"
PICTURES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")
#: Shares of the full range of values; sides and deviations in pixels of the images as they are.
BLUR, NOISE, CONTRAST = 0.8, 0.06, 0.5
SEED = 20190711


class Elsewhere:
    """All that there is, made and normalised once; networks are judged outside of any clock."""

    def __init__(self, bench: Bench, data: DataSet) -> None:
        self._sets: dict[str, tuple[Any, Any]] = {}
        for name, images in shifted(data).items():
            self._sets[name] = (data.normalize(images), data.test.labels)
        if folder := os.environ.get(OWN):
            try:
                images, labels = read_folder(Path(folder), data)
                self._sets["own images"] = (data.normalize(images), labels)
                bench.used_data["own images"] = facts(images, labels)
            except HpmlError as error:
                bench.warn(error.what)
        if folder := os.environ.get(CIFAR101):
            try:
                images, labels = read_cifar101(Path(folder), data)
                self._sets["CIFAR-10.1"] = (data.normalize(images), labels)
                bench.used_data["CIFAR-10.1"] = facts(images, labels)
            except HpmlError as error:
                bench.warn(error.what)

    def judge(self, trainer: Trainer, run: Run) -> Run:
        """The run with the accuracies of its network, as the trainer holds it now."""
        self._sets = {
            name: (images.to(trainer.device), labels.to(trainer.device))
            for name, (images, labels) in self._sets.items()
        }
        found = {name: trainer.accuracy_apart(*pair) for name, pair in self._sets.items()}
        return msgspec.structs.replace(run, elsewhere=found)


def facts(images: Any, labels: Any) -> dict[str, str | float]:
    """What a Record says of them: SHA-256 of the images as judged and their labels, and how many."""
    digest = hashlib.sha256(images.numpy().tobytes() + labels.numpy().tobytes()).hexdigest()
    return {"fingerprint": f"sha256:{digest}", "test": len(labels)}


def shifted(data: DataSet) -> dict[str, Any]:
    """The test images blurred, with noise, and with less contrast: uint8, the same each time."""
    import torch
    from torchvision.transforms import v2

    def noisy(images: Any) -> Any:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            floats = v2.functional.to_dtype(images, torch.float32, scale=True)
            return v2.functional.to_dtype(v2.GaussianNoise(sigma=NOISE)(floats), torch.uint8, scale=True)

    shifts: dict[str, Callable[[Any], Any]] = {
        "blur": v2.GaussianBlur(3, sigma=BLUR),
        "noise": noisy,
        "contrast": lambda images: v2.functional.adjust_contrast(images, CONTRAST),
    }
    return {name: shift(data.test.images) for name, shift in shifts.items()}


def read_folder(folder: Path, data: DataSet) -> tuple[Any, Any]:
    """Pictures in folders named after the classes, as uint8 images of the data's shape, and their labels.

    The shorter side is resized to the images' side, then the middle is taken; grey where the data is.
    Raises HpmlError for a folder that is no class of the data, and where there is no picture.
    """
    import torch
    from PIL import Image
    from torchvision.transforms import v2

    channels, height, width = data.shape
    if not folder.is_dir():
        raise HpmlError(f"{OWN}={folder}: no such folder; give one with a folder of pictures a class")
    images, labels = [], []
    for inside in sorted(path for path in folder.iterdir() if path.is_dir()):
        if inside.name not in data.classes:
            raise HpmlError(
                f"{OWN}={folder}: folder {inside.name!r} is no class of {data.name}; use {', '.join(data.classes)}"
            )
        for path in sorted(path for path in inside.iterdir() if path.suffix.lower() in PICTURES):
            try:
                with Image.open(path) as opened:
                    picture = opened.convert("L" if channels == 1 else "RGB")
            except OSError as error:
                raise HpmlError(f"{path}: cannot be read as a picture: {error}") from None
            image = v2.functional.to_image(picture)
            image = v2.functional.resize(image, [max(height, width)], antialias=True)
            images.append(v2.functional.center_crop(image, [height, width]))
            labels.append(data.classes.index(inside.name))
    if not images:
        raise HpmlError(f"{OWN}={folder}: no picture ({', '.join(PICTURES)}) in a folder of a class")
    return torch.stack([image.as_subclass(torch.Tensor) for image in images]), torch.tensor(labels)


def read_cifar101(folder: Path, data: DataSet) -> tuple[Any, Any]:
    """CIFAR-10.1 version 6: 2,000 images. Raises HpmlError where it is not, and for data that is not CIFAR-10.

    Source: Recht et al., Do CIFAR-10 Classifiers Generalize to CIFAR-10?, arXiv 1806.00451.
    """
    import numpy
    import torch

    if not data.name.startswith("cifar10"):
        raise HpmlError(f"CIFAR-10.1 is not judged: {data.name} has other classes")
    try:
        images = numpy.load(folder / "cifar10.1_v6_data.npy")
        labels = numpy.load(folder / "cifar10.1_v6_labels.npy")
    except (OSError, ValueError) as error:
        raise HpmlError(f"{CIFAR101}={folder}: {error}; it is the folder `datasets` of CIFAR-10.1") from None
    return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(labels.astype("int64"))
