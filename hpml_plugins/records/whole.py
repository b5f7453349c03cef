"""Writing a file whole or not at all."""

from __future__ import annotations

import os
import socket
from pathlib import Path

_ENDING = ".partial"


def write_whole(path: Path, data: bytes, *, lasting: bool = True) -> None:
    """Write beside the file, fsync, then rename into place: a reader sees the old file or the new one.

    The name beside it carries host and process, so that nodes of a shared file system do not meet there.  lasting:
    False to do without fsync, for what can be made again.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{socket.gethostname()}-{os.getpid()}{_ENDING}")
    try:
        with partial.open("wb") as file:
            file.write(data)
            if lasting:
                file.flush()
                os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def remove_partial(folder: Path, name: str = "*") -> None:
    """Remove what killed writers left beside the files of a folder. Only for who has the folder to itself."""
    for left in folder.glob(f".{name}.*{_ENDING}"):
        left.unlink(missing_ok=True)
