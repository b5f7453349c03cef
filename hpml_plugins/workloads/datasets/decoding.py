"""Loads the files of a data set as a DataSet: read, checked, fingerprinted, and decoded once for
all processes.

A decoded copy is one file of torch.save's in the user's cache, mapped into memory; written
atomically.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from hpml_plugins.errors import HpmlError
from hpml_plugins.model import quantity
from hpml_plugins.store import Lock, atomic_write
from hpml_plugins.workloads.datasets.dataset import Arrays, DataSet, Split
from hpml_plugins.workloads.datasets.places import cache

#: Change it if the same files would decode differently, or if the format of the copy changes.
FORMAT = 3


def load(
    name: str, path: Path, read: Callable[[Path], Arrays], progress: Callable[[str], None]
) -> DataSet:
    """The data set at `path`, from its decoded copy, or else read by `read`, whose HpmlError for
    damaged files is passed on."""
    copy = decoded_copy(name, path)
    with ExitStack() as locked:
        with suppress(HpmlError):  # without a lock several processes may decode at once
            locked.enter_context(Lock(copy.parent / f"{name}.lock", math.inf))
        data = _read_copy(copy)
        if data is None:
            progress(f"decoding {name} from {path}")
            data = to_data_set(name, read(path))
            problem = _write_copy(copy, data)
            if problem:
                kept = f"not kept: {problem}"
            else:
                kept = f"kept, {quantity(copy.stat().st_size, 'B')} in {copy}"
            progress(f"{name}: decoded copy {kept}")
    return data


def to_data_set(name: str, arrays: Arrays) -> DataSet:
    """The arrays as tensors, with their fingerprint and the training images' mean and deviation of
    each channel."""
    from torch import from_numpy

    mean, std = channel_statistics(arrays.train_images)
    train = Split(from_numpy(arrays.train_images), from_numpy(arrays.train_labels))
    test = Split(from_numpy(arrays.test_images), from_numpy(arrays.test_labels))
    return DataSet(name, arrays.classes, train, test, mean, std, fingerprint(arrays))


def fingerprint(arrays: Arrays) -> str:
    """SHA-256 over the classes, shapes and values: the same for the same data in any storage
    format."""
    held = [
        arrays.train_images,
        arrays.train_labels,
        arrays.test_images,
        arrays.test_labels,
    ]
    digest = hashlib.sha256(
        json.dumps([arrays.classes, [array.shape for array in held]]).encode()
    )
    for array in held:
        digest.update(
            array.astype(array.dtype.newbyteorder("<"), order="C", copy=False).data
        )
    return f"sha256:{digest.hexdigest()}"


def channel_statistics(images: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation (of the population) of each channel, of values from 0 to 1.

    images: uint8 (N, C, H, W), NumPy or torch. Exact until the last division: the 256 values are
    counted.
    """
    import torch

    means, stds = [], []
    for channel in torch.as_tensor(images).unbind(1):
        counts = torch.bincount(channel.reshape(-1), minlength=256).tolist()
        n = sum(counts)
        total = sum(value * count for value, count in enumerate(counts))
        squares = sum(value * value * count for value, count in enumerate(counts))
        means.append(total / n / 255)
        stds.append(math.sqrt(n * squares - total * total) / n / 255)
    return tuple(means), tuple(stds)


def decoded_copy(name: str, path: Path) -> Path:
    """The file of the decoded copy: identified by the path, and by names, sizes and modification
    times of its files."""
    state = [FORMAT, *sorted(_files(path))]
    place, version = (
        _short(data) for data in (os.fsencode(path.absolute()), json.dumps(state).encode())
    )
    return cache() / "decoded" / f"{name}-{place}-{version}.pt"


def _read_copy(file: Path) -> DataSet | None:
    """The data set, its tensors mapped and copied on write; None if there is no complete copy."""
    import torch

    try:
        with torch.serialization.safe_globals([DataSet, Split]):
            stored = torch.load(file, mmap=True, weights_only=True)
    except Exception:  # torch raises several kinds for a damaged file
        return None
    return stored if isinstance(stored, DataSet) else None


def _write_copy(file: Path, data: DataSet) -> str:
    """Store the copy, and remove outdated ones. Returns the reason if that failed, or ""."""
    import torch

    buffer = io.BytesIO()
    torch.save(data, buffer)
    try:
        for old in file.parent.glob(f"{file.name.rpartition('-')[0]}-*.pt"):
            old.unlink()  # existing mappings stay valid until unmapped
        atomic_write(file, buffer.getvalue())
    except OSError as error:
        return str(error)
    return ""


def _files(path: Path) -> Iterator[list[Any]]:
    """[name, size, modification time] of the file, or of every file below the folder."""
    if path.is_file():
        about = path.stat()
        yield [path.name, about.st_size, about.st_mtime_ns]
        return
    for folder, _, names in os.walk(path):
        for name in names:
            about = os.stat(os.path.join(folder, name))  # noqa: PTH116, PTH118  (60,000 files: Path doubles the time)
            yield [os.path.relpath(folder, path), name, about.st_size, about.st_mtime_ns]


def _short(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]
