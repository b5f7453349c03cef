"""DataSource: how one data set is recognised, loaded and got. A plain value; the built-in ones are in `builtin`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]


@dataclass(frozen=True)
class Arrays:
    """A data set as NumPy arrays. images: uint8 (N, C, H, W).  labels: int64 (N,), below len(classes)."""

    train_images: Array
    train_labels: Array
    test_images: Array
    test_labels: Array
    classes: tuple[str, ...]


@dataclass(frozen=True)
class DataSource:
    """Where a data set may lie under a root, and how it is read.

    name: as in a grid.  find: the data set's file or folder under a root, or None; looks at file names only, for it is
    asked before any point is measured.  load: reads what `find` gave; raises whatever its libraries raise.  looks_for:
    what `find` looks for, in words.  mend: how a user gets it, a command.  modules: what `load` imports.  download:
    fetches it into a root, where a library can.  unpack_to: the folder under a root into which an archive of
    it is unpacked, "." for the root itself, None where no archive is known.  extra_roots: places of its own.
    """

    name: str
    find: Callable[[Path], Path | None]
    load: Callable[[Path], Arrays]
    looks_for: str
    mend: str
    modules: tuple[str, ...] = ()
    download: Callable[[Path], None] | None = None
    unpack_to: str | None = None
    extra_roots: Callable[[], tuple[Path, ...]] = tuple


@dataclass(frozen=True)
class Found:
    """A data set that is there."""

    source: DataSource
    path: Path
