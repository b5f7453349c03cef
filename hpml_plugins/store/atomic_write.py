"""Writing a file whole or not at all."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

_ENDING = ".partial"


def write_whole(path: Path, data: bytes, *, lasting: bool = True) -> None:
    """Write beside the file, fsync, then rename into place: a reader sees the old file or the new one.

    The name beside it carries host and process, so that nodes of a shared file system do not meet there.  lasting:
    False to do without fsync, for what can be made again.  Raises OSError that names the file, also for a full disk.
    """
    try:
        _write(path, data, lasting)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def _write(path: Path, data: bytes, lasting: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{socket.gethostname()}-{os.getpid()}{_ENDING}")
    try:
        with partial.open("wb") as file:
            file.write(data)
            if lasting:
                file.flush()
                os.fsync(file.fileno())
        partial.replace(path)
        if lasting:
            sync_folder(path.parent)
    finally:
        with suppress(OSError):  # a file system that is read-only says so of this too
            partial.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Let the names in a folder outlast a power cut: a file's own fsync is of its content alone."""
    with suppress(OSError):  # not every file system can
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove_partial(folder: Path, name: str = "*") -> None:
    """Remove what killed writers left beside the files of a folder. Only for who has the folder to itself."""
    for left in folder.glob(f".{name}.*{_ENDING}"):
        left.unlink(missing_ok=True)
