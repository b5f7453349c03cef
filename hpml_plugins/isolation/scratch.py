"""Temporary folders that do not outlive their processes, even those that are killed."""

from __future__ import annotations

import fcntl
import glob
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

#: s for which a folder is taken to be in use: its process may not have locked it yet.
FRESH = 60.0


@contextmanager
def scratch_folder(kind: str, within: Path | str | None = None) -> Iterator[Path]:
    """A temporary folder that is removed at the end. Those that killed processes have left are removed first.

    A process holds a lock on its folder while it lives, which every container of this host can see; process numbers
    mean nothing to others that share the place.  within: where to make it; default: the system's folder.
    """
    root = Path(within or tempfile.gettempdir())
    prefix = f"{'.' if within else ''}hpml-{socket.gethostname()}-"  # hidden among results
    for left in root.glob(f"{glob.escape(prefix)}*"):
        _remove_unused(left)
    folder = Path(tempfile.mkdtemp(prefix=f"{prefix}{kind}-", dir=root))
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # a file system without locks, where nobody can take the folder for unused either
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def _remove_unused(folder: Path) -> None:
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if time.time() - os.fstat(descriptor).st_mtime > FRESH:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(descriptor)
