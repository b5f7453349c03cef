"""`load_data`: from a name to a DataSet, checked, fingerprinted, and decoded once for all processes of this user."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hpml_plugins.errors import DataError, HpmlError, describe
from hpml_plugins.model.formatting import quantity
from hpml_plugins.workloads.datasets.decoded import Entry
from hpml_plugins.workloads.datasets.lookup import Sources, find, why_missing
from hpml_plugins.workloads.datasets.source import Arrays, Found

if TYPE_CHECKING:
    from hpml_plugins.workloads.datasets.dataset import DataSet


def load_data(name: str, *, say: Callable[[str], None] = lambda text: None, sources: Sources | None = None) -> DataSet:
    """The data set of this name, found on this machine; nothing is downloaded.

    Decoded images are kept in the user's cache and mapped into memory from there, so that any number of processes may
    call this at once: one decodes, the others wait for it, and all share the pages.
    say: told what takes time.  Raises DataError where the data set is missing or damaged, UsageError for an unknown
    name.
    """
    if reason := why_missing(name, sources):
        raise DataError(reason)
    found = find(name, sources)
    assert found is not None
    entry = Entry.of(found)
    with entry.lock():
        stored = entry.read()
        if stored is None:
            say(f"decoding {name} from {found.path}")
            arrays = read(found)
            stored = (arrays, describe_arrays(arrays))
            problem = entry.write(*stored)
            kept = f"not kept: {problem}" if problem else f"kept, {quantity(entry.size, 'B')} in {entry.folder}"
            say(f"{name}: decoded copy {kept}")
    return _data_set(name, *stored)


def read(found: Found) -> Arrays:
    """The data set from its own files. Raises DataError when they are damaged."""
    name, path = found.source.name, found.path
    try:
        arrays = found.source.load(path)
    except MemoryError:
        raise
    except Exception as error:  # whatever the libraries raise for damaged files
        told = error.what if isinstance(error, HpmlError) else f"{path}: {describe(error)}"
        raise DataError(f"data set {name} is damaged: {told} (remove it, then {found.source.mend})") from error
    if fault := _fault(arrays):
        raise DataError(f"data set {name} is damaged: {path}: {fault} (remove it, then {found.source.mend})")
    return arrays


def _fault(arrays: Arrays) -> str:
    shapes = set()
    for part, images, labels in (
        ("training", arrays.train_images, arrays.train_labels),
        ("test", arrays.test_images, arrays.test_labels),
    ):
        if images.ndim != 4 or images.dtype != "uint8" or labels.dtype != "int64":
            return (
                f"{part} images are {images.dtype} {images.shape}, labels {labels.dtype}, not uint8 (N, C, H, W), int64"
            )
        if len(images) != len(labels):
            return f"{len(images)} {part} images and {len(labels)} labels"
        if not images.size:
            return f"no {part} images"
        if labels.min() < 0 or labels.max() >= len(arrays.classes):
            return f"{part} labels from {labels.min()} to {labels.max()} for {len(arrays.classes)} classes"
        shapes.add(images.shape[1:])
    return "" if len(shapes) == 1 else f"training and test images of different shape: {sorted(shapes)}"


def describe_arrays(arrays: Arrays) -> dict[str, Any]:
    """Classes, fingerprint, and mean and standard deviation of each channel over the training images."""
    mean, std = channel_statistics(arrays.train_images)
    return {"classes": arrays.classes, "fingerprint": fingerprint(arrays), "mean": mean, "std": std}


def fingerprint(arrays: Arrays) -> str:
    """SHA-256 over the classes, shapes and values: the same for the same data, however they were stored."""
    parts = (arrays.train_images, arrays.train_labels, arrays.test_images, arrays.test_labels)
    digest = hashlib.sha256(json.dumps([arrays.classes, [part.shape for part in parts]]).encode())
    for part in parts:
        digest.update(part.astype(part.dtype.newbyteorder("<"), order="C", copy=False).data)
    return f"sha256:{digest.hexdigest()}"


def channel_statistics(images: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation (of the population) of each channel, of values from 0 to 1.

    images: uint8 (N, C, H, W), NumPy or torch. Exact until the last division: the 256 values are counted.
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


def _data_set(name: str, arrays: Arrays, about: dict[str, Any]) -> DataSet:
    import torch

    from hpml_plugins.workloads.datasets.dataset import DataSet, Split

    return DataSet(
        name=name,
        classes=tuple(about["classes"]),
        train=Split(torch.from_numpy(arrays.train_images), torch.from_numpy(arrays.train_labels)),
        test=Split(torch.from_numpy(arrays.test_images), torch.from_numpy(arrays.test_labels)),
        mean=tuple(about["mean"]),
        std=tuple(about["std"]),
        fingerprint=about["fingerprint"],
    )
