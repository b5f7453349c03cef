"""What publishing made and may need again, in the user's cache: charts, and the values of Records.

Nothing is lost with it but time.
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

#: What no publish asked for in so long is removed, s.
_KEPT: Final = 90 * 86_400.0
CHARTS: Final = "charts"
READINGS: Final = "readings"
#: This package's code and data.
_PACKAGE: Final = Path(__file__).parents[1]


def kept_file(name: str, kind: str = CHARTS) -> Path:
    """Where the cache has something that publishing made."""
    return user_cache() / kind / name


def read_kept(file: Path) -> bytes:
    """What the cache has; empty where it has nothing. It is kept for another season."""
    try:
        made = file.read_bytes()
        os.utime(file)
    except OSError:
        return b""
    return made


def keep(file: Path, made: bytes) -> None:
    """Write a file of the cache; one that cannot be written is made again next time."""
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(file, made, durable=False)


def remove_unused(now: float) -> None:
    """Remove from the cache what no publish has asked for in 90 days.  now: s since 1970."""
    for kind in (CHARTS, READINGS):
        with suppress(OSError):
            for file in kept_file("", kind).iterdir():
                if file.stat().st_mtime < now - _KEPT:
                    file.unlink()


@functools.cache
def package_digest() -> bytes:
    """A digest of this package's code and data, of which all that is made of Records may depend,
    and of Python's version."""
    found = hashlib.sha256(sys.version.encode())
    for path in sorted(_PACKAGE.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            found.update(os.fsencode(path.relative_to(_PACKAGE)) + b"\0")
            found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.digest()
