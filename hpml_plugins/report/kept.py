"""Cached results of publishing, in the user's cache: charts, the values of Records, the back-test,
and the levels of series.

Losing the cache only costs time.
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from hpml_plugins.store import atomic_write
from hpml_plugins.temporary import user_cache

#: s after which entries that no publish has used are removed.
_KEPT: Final = 90 * 86_400.0
#: Most B of entries that the current publish has not used: those of other histories and of other
#: versions of this package. One version's entries of this repository's results take 90 MB.
_MOST_UNUSED: Final = 256 << 20
CHARTS: Final = "charts"
READINGS: Final = "readings"
EVIDENCE: Final = "evidence"
LEVELS: Final = "levels"
#: This package's code and data.
_PACKAGE: Final = Path(__file__).parents[1]


def kept_file(name: str, kind: str = CHARTS) -> Path:
    """The path of a cache entry."""
    return user_cache() / kind / name


def read_kept(file: Path) -> bytes:
    """The contents of a cache entry; empty if there is none. Renews its time stamp."""
    try:
        made = file.read_bytes()
        os.utime(file)
    except OSError:
        return b""
    return made


def keep(file: Path, made: bytes) -> None:
    """Write a cache entry; if that fails, it is made again next time."""
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(file, made, durable=False)


def remove_unused(started: float) -> None:
    """Remove cache entries that no publish has used for 90 days, and the oldest of those that this
    publish has not used, so that they take at most 256 MiB.

    started: of this publish, s since 1970.
    """
    unused = []
    for kind in (CHARTS, READINGS, EVIDENCE, LEVELS):
        with suppress(OSError):
            for file in kept_file("", kind).iterdir():
                status = file.stat()
                if status.st_mtime < started:
                    unused.append((status.st_mtime, status.st_size, file))
    unused.sort(reverse=True)
    total = 0
    for used, size, file in unused:
        total += size
        if total > _MOST_UNUSED or used < started - _KEPT:
            with suppress(OSError):
                file.unlink()


@functools.cache
def package_digest() -> bytes:
    """A digest of this package's code and data and of Python's version, on which all cached results
    may depend."""
    found = hashlib.sha256(sys.version.encode())
    for path in sorted(_PACKAGE.rglob("*")):
        # Python writes byte code under another name first, at any time
        if path.is_file() and "__pycache__" not in path.parts:
            found.update(os.fsencode(path.relative_to(_PACKAGE)) + b"\0")
            found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.digest()
