"""One writer at a time, over all nodes of a shared file system. A lock ends with its holder, however that ends.

filelock takes a flock, which the kernel releases with the process; over NFS it is the server's (Linux). A node that
loses power may leave its lock with the server until that notices.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from hpml_plugins.errors import HpmlError, unwritable
from hpml_plugins.store.declarations import DECLARATIONS
from hpml_plugins.store.files import atomic_write, remove_partial_files
from hpml_plugins.store.records import RECORDS

#: s to wait for another writer of benchmarks.json, who needs milliseconds.
DECLARATIONS_TIMEOUT = 30.0


class Locked(HpmlError):
    """Another process holds the lock."""


class Lock(AbstractContextManager["Lock"]):
    """A file lock that names its holder to those who wait. Use it as a context manager, or release it."""

    def __init__(self, path: Path, timeout: float = 0.0) -> None:
        """Take the lock. Raises Locked, with the holder, where it is not free within `timeout` s."""
        from filelock import FileLock, Timeout  # imports asyncio: commands that lock nothing start without it

        self._lock = FileLock(str(path), timeout=timeout)
        self._owner = path.with_name(f"{path.name}-owner")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
            since = time.strftime("%Y-%m-%d %H:%M:%S")
            owner = f"{socket.gethostname()} (process {os.getpid()}, since {since})"
            atomic_write(self._owner, owner.encode(), durable=False)
        except Timeout:
            owner = "another process"
            with suppress(OSError):
                owner = self._owner.read_text(encoding="utf-8", errors="replace")
            raise Locked(f"held by {owner}", str(path)) from None
        except NotImplementedError as error:  # filelock's word for a file system without flock
            raise HpmlError(f"cannot be locked: {error}; keep results on a file system with flock", str(path)) from None
        except OSError as error:
            self._lock.release()
            raise unwritable(error, path) or error from None

    def release(self) -> None:
        """Release the lock. Calling it again does nothing."""
        if self._lock.is_locked:
            with suppress(OSError):
                self._owner.unlink(missing_ok=True)
        self._lock.release()

    def __exit__(self, *_: object) -> None:
        self.release()


def lock_machine(results: Path, machine: str, *, timeout: float = 0.0) -> Lock:
    """Lock results/<machine>/ for this process. Raises Locked, saying who holds it and what to do.

    A symbolic link is refused: results come from others too, and must not have us write elsewhere. `results` itself may
    be a link: that is the user's own doing.
    """
    folder = results / machine
    for each in (folder, folder / RECORDS):
        if each.is_symlink():
            raise HpmlError("is a symbolic link, which nothing is written through; put a folder there", str(each))
    try:
        lock = Lock(folder / ".lock", timeout)
    except Locked as locked:
        raise Locked(
            f"machine {machine!r} is being measured: {locked.what}; wait until it is done, or give this node a name "
            "of its own: asv run --machine NAME",
            str(folder),
        ) from None
    for each in (folder, folder / RECORDS):
        remove_partial_files(each)
    return lock


def lock_declarations(results: Path) -> Lock:
    """The lock of benchmarks.json, which every node writes."""
    lock = Lock(results / ".benchmarks.lock", DECLARATIONS_TIMEOUT)
    remove_partial_files(results, DECLARATIONS)
    return lock
