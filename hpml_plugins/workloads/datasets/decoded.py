"""Decoded copies in the user's cache: plain .npy files, mapped into memory; written whole or not at all."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpml_plugins.workloads.datasets.places import decoded_root
from hpml_plugins.workloads.datasets.source import Arrays, Found

#: Changes when the same files would decode to something else.
FORMAT = 1
_PARTS = ("train_images", "train_labels", "test_images", "test_labels")
_ABOUT = "about.json"


@dataclass(frozen=True)
class Entry:
    """The decoded copy of one data set at one place, in one state of its files.

    folder: holds four .npy files and about.json.  family: what the folders of the same place, whatever the state of
    its files, have in front.
    """

    folder: Path
    family: str

    @classmethod
    def of(cls, found: Found) -> Entry:
        """Named by the place, and by names, sizes and times of change of the files."""
        family = f"{found.source.name}-{_short(os.fsencode(found.path.absolute()))}"
        state = [FORMAT, *sorted(_files(found.path))]
        return cls(decoded_root() / f"{family}-{_short(json.dumps(state).encode())}", family)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Held by one process of this machine at a time; where files cannot be locked, by nobody.

        Without it several would decode at once and the last to finish would find the work done.
        """
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            file = (self.folder.parent / f"{self.family}.lock").open("w")
        except OSError:
            yield
            return
        with file:
            with suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def read(self) -> tuple[Arrays, dict[str, Any]] | None:
        """The arrays, mapped and copied on write, and what is known of them; None where there is no whole copy."""
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
        """Keep the arrays, and drop copies of earlier states. Returns why it could not be done, or nothing."""
        import numpy as np

        parts = {part: getattr(arrays, part) for part in _PARTS}
        shapes = {part: list(array.shape) for part, array in parts.items()}
        for old in self.folder.parent.glob(f".{self.family}-*"):
            shutil.rmtree(old, ignore_errors=True)  # of a process that was killed while it wrote
        try:
            partial = Path(tempfile.mkdtemp(prefix=f".{self.family}-", dir=self.folder.parent))
        except OSError as error:
            return str(error)
        try:
            for part, array in parts.items():
                with (partial / f"{part}.npy").open("wb") as file:
                    np.save(file, array, allow_pickle=False)
                    _to_disk(file)
            with (partial / _ABOUT).open("w") as text:
                json.dump({**about, "shapes": shapes}, text)
                _to_disk(text)
            for old in self.folder.parent.glob(f"{self.family}-*"):
                shutil.rmtree(old, ignore_errors=True)  # who has it mapped keeps it until he ends
            partial.rename(self.folder)
        except OSError as error:
            return str(error)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return ""

    @property
    def size(self) -> int:
        """Bytes on disk, 0 where there is no copy."""
        try:
            return sum(file.stat().st_size for file in self.folder.iterdir())
        except OSError:
            return 0


def _files(path: Path) -> Iterator[list[Any]]:
    """[name, size, time of change] of the file, or of every file below the folder."""
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


def _to_disk(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())
