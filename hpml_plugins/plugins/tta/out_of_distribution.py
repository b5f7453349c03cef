"""Other images for testing each trained network: photographs from other sources, a user's own,
CIFAR-10.1, and modified test images."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from hpml_plugins import Bench, DataSet, HpmlError
from hpml_plugins.plugins.tta.photographs import PHOTOGRAPHS

#: A folder with one folder of pictures per class.
OWN = "HPML_TTA_IMAGES"
#: The folder `datasets` of github.com/modestyachts/CIFAR-10.1.
CIFAR101 = "HPML_TTA_CIFAR10_1"
#: Shares of the full range of values; sides and deviations in pixels of the images as they are.
BLUR, NOISE, CONTRAST = 0.8, 0.06, 0.5
SEED = 20190711


def other_images(bench: Bench, data: DataSet) -> dict[str, tuple[Any, Any]]:
    """Name → normalised images (N, C, H, W) and labels, of all available sets; warns about unusable
    ones."""
    found = {
        name: (data.normalize(images), data.test.labels) for name, images in shifted(data).items()
    }
    readers: dict[str, Callable[[], tuple[Any, Any]]] = {}
    if data.name.startswith("cifar10"):
        readers["photographs"] = read_photographs
    for name, variable, read in (
        ("own images", OWN, read_folder),
        ("CIFAR-10.1", CIFAR101, read_cifar101),
    ):
        if folder := os.environ.get(variable):
            readers[name] = partial(read, Path(folder), data)
    for name, read_images in readers.items():
        try:
            images, labels = read_images()
        except HpmlError as error:
            bench.warn(error.what)
            continue
        found[name] = (data.normalize(images), labels)
        digest = hashlib.sha256(images.numpy().tobytes() + labels.numpy().tobytes()).hexdigest()
        bench.collected.data.update(
            {name: {"fingerprint": f"sha256:{digest}", "test": len(labels)}}
        )
    return found


def read_photographs() -> tuple[Any, Any]:
    """The images and labels of the data set `photographs`. Raises HpmlError if it is missing or
    damaged."""
    judged = PHOTOGRAPHS.load(lambda text: None).test
    return judged.images, judged.labels


def shifted(data: DataSet) -> dict[str, Any]:
    """The test images blurred, with noise, and with less contrast: uint8, the same each time."""
    import torch
    from torchvision.transforms import v2

    images = data.test.images
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        noisy = v2.GaussianNoise(sigma=NOISE)(
            v2.functional.to_dtype(images, torch.float32, scale=True)
        )
    return {
        "blur": v2.GaussianBlur(3, sigma=BLUR)(images),
        "noise": v2.functional.to_dtype(noisy, torch.uint8, scale=True),
        "contrast": v2.functional.adjust_contrast(images, CONTRAST),
    }


def read_folder(folder: Path, data: DataSet) -> tuple[Any, Any]:
    """Pictures in folders named after the classes, as uint8 images of the data's shape, and their
    labels.

    The shorter side is resized to the images' side, then the centre is cropped; grey if the data
    is. Raises HpmlError for a folder that is not a class of the data, and if no picture can be
    read.
    """
    import torch
    from PIL import Image
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import v2

    channels, *sides = data.shape

    def read(path: str) -> Any:
        try:
            with Image.open(path) as opened:
                picture = v2.functional.pil_to_tensor(
                    opened.convert("L" if channels == 1 else "RGB")
                )
        except OSError as error:
            raise HpmlError(f"{path}: cannot be read as a picture: {error}") from None
        return v2.functional.center_crop(
            v2.functional.resize(picture, [max(sides)], antialias=True), sides
        )

    try:
        found = ImageFolder(str(folder), loader=read, allow_empty=True)
        if unknown := [name for name in found.classes if name not in data.classes]:
            raise HpmlError(
                f"{OWN}={folder}: folder {unknown[0]!r} is no class of {data.name}; use"
                f" {', '.join(data.classes)}"
            )
        images, labels = zip(*found, strict=True) if len(found) else ((), ())
    except OSError as error:
        raise HpmlError(
            f"{OWN}={folder}: {error}; give a folder with a folder of pictures per class"
        ) from None
    if not images:
        raise HpmlError(
            f"{OWN}={folder}: no picture ({', '.join(found.extensions)}) in a folder of a class"
        )
    return torch.stack(images), torch.tensor(
        [data.classes.index(found.classes[label]) for label in labels]
    )


def read_cifar101(folder: Path, data: DataSet) -> tuple[Any, Any]:
    """CIFAR-10.1 version 6: 2,000 images. Raises HpmlError for another version, and for data that
    is not CIFAR-10.

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
        raise HpmlError(
            f"{CIFAR101}={folder}: {error}; it is the folder `datasets` of CIFAR-10.1"
        ) from None
    return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(
        labels.astype("int64")
    )
