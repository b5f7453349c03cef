"""From the files of a data set to a DataSet: read, checked, fingerprinted, and decoded once for all processes.

A decoded copy is four .npy files and about.json in the user's cache; it is there completely or not at all.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from hpml_plugins.errors import DataError, HpmlError, describe
from hpml_plugins.model import quantity
from hpml_plugins.workloads.datasets.source import Arrays, DataSource, cache

if TYPE_CHECKING:
    from hpml_plugins.workloads.datasets.dataset import DataSet

#: Changes when the same files would decode to something else.
FORMAT = 1
_PARTS = ("train_images", "train_labels", "test_images", "test_labels")
_ABOUT = "about.json"


def load(source: DataSource, path: Path, progress: Callable[[str], None]) -> DataSet:
    """The data set at `path`, from its decoded copy or else decoded now. Raises DataError when it is damaged."""
    import torch

    from hpml_plugins.workloads.datasets.dataset import DataSet, Split

    copy = DecodedCopy.of(source.name, path)
    with copy.lock():
        stored = copy.read()
        if stored is None:
            progress(f"decoding {source.name} from {path}")
            arrays = read(source, path)
            stored = arrays, describe_arrays(arrays)
            problem = copy.write(*stored)
            kept = f"not kept: {problem}" if problem else f"kept, {quantity(copy.size, 'B')} in {copy.folder}"
            progress(f"{source.name}: decoded copy {kept}")
    arrays, about = stored
    return DataSet(
        name=source.name,
        classes=tuple(about["classes"]),
        train=Split(torch.from_numpy(arrays.train_images), torch.from_numpy(arrays.train_labels)),
        test=Split(torch.from_numpy(arrays.test_images), torch.from_numpy(arrays.test_labels)),
        mean=tuple(about["mean"]),
        std=tuple(about["std"]),
        fingerprint=about["fingerprint"],
    )


def read(source: DataSource, path: Path) -> Arrays:
    """The data set from its own files. Raises DataError when they are damaged."""
    try:
        arrays = source.read(path)
        fault = f"{path}: {wrong}" if (wrong := _fault(arrays)) else ""
    except MemoryError:
        raise
    except Exception as error:  # whatever the libraries raise for damaged files
        fault = error.what if isinstance(error, HpmlError) else f"{path}: {describe(error)}"
    if fault:
        raise DataError(f"data set {source.name} is damaged: {fault} (remove it, then {source.how_to_get})")
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
    parts = [getattr(arrays, part) for part in _PARTS]
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


@dataclass(frozen=True)
class DecodedCopy:
    """The decoded copy of one data set at one path, in one state of its files.

    folder: of the copy.  family: what the folders' names of all states begin with.
    """

    folder: Path
    family: str

    @classmethod
    def of(cls, name: str, path: Path) -> DecodedCopy:
        """Identified by the path, and by names, sizes and modification times of the files."""
        family = f"{name}-{_short(os.fsencode(path.absolute()))}"
        state = [FORMAT, *sorted(_files(path))]
        return cls(cache() / "decoded" / f"{family}-{_short(json.dumps(state).encode())}", family)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Held by one process of this machine at a time, so that one decodes and the others wait for its copy.

        Where files cannot be locked nothing is held, and each decodes.
        """
        lock = FileLock(self.folder.parent / f"{self.family}.lock")
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        except (OSError, NotImplementedError):
            yield
            return
        try:
            yield
        finally:
            lock.release()

    def read(self) -> tuple[Arrays, dict[str, Any]] | None:
        """The arrays, mapped and copied on write, and what is known of them; None where there is no complete copy."""
        import numpy as np

        try:
            about = json.loads((self.folder / _ABOUT).read_text())
            parts = {part: np.load(self.folder / f"{part}.npy", mmap_mode="c", allow_pickle=False) for part in _PARTS}
            if {part: list(array.shape) for part, array in parts.items()} != about["shapes"]:
                return None
            return Arrays(classes=tuple(about["classes"]), **parts), about
        except (OSError, EOFError, ValueError, KeyError, TypeError):
            return None

    def write(self, arrays: Arrays, about: dict[str, Any]) -> str:
        """Store the arrays, and remove copies of earlier states. Returns why that failed, or nothing."""
        import numpy as np

        parts = {part: getattr(arrays, part) for part in _PARTS}
        about = {**about, "shapes": {part: list(array.shape) for part, array in parts.items()}}
        for old in self.folder.parent.glob(f".{self.family}-*"):
            shutil.rmtree(old, ignore_errors=True)  # of a process that was killed while it wrote
        try:
            with tempfile.TemporaryDirectory(
                prefix=f".{self.family}-", dir=self.folder.parent, ignore_cleanup_errors=True
            ) as folder:
                for part, array in parts.items():
                    np.save(Path(folder, part), array, allow_pickle=False)
                Path(folder, _ABOUT).write_text(json.dumps(about))
                for path in Path(folder).iterdir():  # a power cut must not leave empty files under the final name
                    with path.open("rb") as file:
                        os.fsync(file.fileno())
                for old in self.folder.parent.glob(f"{self.family}-*"):
                    shutil.rmtree(old, ignore_errors=True)  # existing mappings stay valid until unmapped
                Path(folder).rename(self.folder)
        except OSError as error:
            return str(error)
        return ""

    @property
    def size(self) -> int:
        """Bytes on disk, 0 where there is no copy."""
        try:
            return sum(file.stat().st_size for file in self.folder.iterdir())
        except OSError:
            return 0


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
