"""Small data sets in the formats of the real ones, written by tests."""

from __future__ import annotations

import gzip
import pickle
import struct
from pathlib import Path

import numpy as np
from PIL import Image

from hpml_plugins.workloads.datasets.builtin import CIFAR10_CLASSES, IDX_FILES


def idx(array: np.ndarray) -> bytes:
    """The idx format: two zeros, the type (8: unsigned byte), the rank, the sizes big-endian, the
    values."""
    return (
        struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
        + array.astype(np.uint8).tobytes()
    )


def write_idx_files(
    folder: Path, train: int = 40, test: int = 20, *, packed: bool = False
) -> list[np.ndarray]:
    """The four files of an MNIST; returns what they hold, in the order of IDX_FILES. Labels go
    round the classes."""
    random = np.random.default_rng(0)
    held = []
    for n in (train, test):
        held += [random.integers(0, 256, (n, 28, 28), dtype=np.uint8), np.arange(n) % 10]
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in zip(IDX_FILES, held, strict=True):
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
        else:
            (folder / name).write_bytes(idx(array))
    return held


def write_image_folders(
    folder: Path, train: int = 3, test: int = 1, classes: tuple[str, ...] = CIFAR10_CLASSES
) -> None:
    """train/<class>/ and test/<class>/ with that many JPEG files each, one grey level a class."""
    for part, n in (("train", train), ("test", test)):
        for label, name in enumerate(classes):
            (folder / part / name).mkdir(parents=True)
            for number in range(n):
                Image.new("RGB", (32, 32), (20 * label,) * 3).save(
                    folder / part / name / f"{number:04}.jpg"
                )


def write_cifar10(folder: Path) -> dict[str, bytes]:
    """The Python version of a CIFAR-10 with ten images a batch; returns the files' contents by
    name."""
    random = np.random.default_rng(0)
    folder.mkdir(parents=True)
    files = {"batches.meta": pickle.dumps({"label_names": list(CIFAR10_CLASSES)})}
    for name in [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]:
        data = random.integers(0, 256, (10, 3072), dtype=np.uint8)
        files[name] = pickle.dumps({"data": data, "labels": list(range(10))})
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return files
