"""One writer at a time, over all nodes of a shared file system. A lock ends with its holder, however that ends.

filelock takes a flock, which the kernel releases with the process; over NFS it is the server's (Linux). A node that
loses power may leave its lock with the server until that notices.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from hpml_plugins.errors import HpmlError, unwritable
from hpml_plugins.store.declarations import DECLARATIONS
from hpml_plugins.store.files import atomic_write, read_object_or_empty, refuse_links, remove_partial_files
from hpml_plugins.store.records import RECORDS

#: s to wait for another writer of benchmarks.json, who needs milliseconds.
DECLARATIONS_TIMEOUT = 30.0


class Locked(HpmlError):
    """Another process holds the lock."""


class Lock:
    """A file lock that names its holder to those who wait. Use it as a context manager, or release it."""

    def __init__(self, path: Path, timeout: float = 0.0) -> None:
        """Take the lock. Raises Locked, with the holder, where it is not free within `timeout` s."""
        from filelock import FileLock, Timeout  # imports asyncio: commands that lock nothing start without it

        self._lock = FileLock(str(path), timeout=timeout)
        self._owner = path.with_name(f"{path.name}-owner")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
            owner = {"host": socket.gethostname(), "pid": os.getpid(), "started": time.time()}
            atomic_write(self._owner, msgspec.json.encode(owner), durable=False)
        except Timeout:
            raise Locked(f"held by {_describe(read_object_or_empty(self._owner))}", str(path)) from None
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

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class MachineLocked(Locked):
    """Another process writes results under this machine's name."""


def lock_machine(results: Path, machine: str, *, timeout: float = 0.0) -> Lock:
    """Lock results/<machine>/ for this process. Raises MachineLocked, saying who holds it and what to do."""
    folder = results / machine
    refuse_links(folder, folder / RECORDS)
    try:
        lock = Lock(folder / ".lock", timeout)
    except Locked as locked:
        raise MachineLocked(
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


def _describe(owner: dict[str, object]) -> str:
    if not isinstance(owner.get("pid"), int) or not isinstance(owner.get("started"), int | float):
        return "another process"
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(str(owner["started"]))))
    return f"{owner.get('host')} (process {owner['pid']}, since {since})"
