"""Locks for a single writer over all nodes of a shared file system. A lock always ends with its
holder.

A lock uses flock: the kernel releases it when the process ends, but not because the process is
stopped, slow or old. Over NFS the server holds it (Linux): if a node loses power, the server may
keep its lock until it notices.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from hpml_plugins import clocks
from hpml_plugins.errors import HpmlError, unwritable
from hpml_plugins.store.declarations import DECLARATIONS
from hpml_plugins.store.files import (
    machine_folder,
    open_result,
    open_unfollowed,
    refuse_irregular,
    remove_partial_files,
)
from hpml_plugins.store.records import RECORDS

#: s to wait for another writer of benchmarks.json, which takes milliseconds.
DECLARATIONS_TIMEOUT = 30.0
#: s between two attempts to take a lock.
RETRY = 0.05


class Locked(HpmlError):
    """Another process holds the lock."""


class Lock(AbstractContextManager["Lock"]):
    """A locked file that contains the name of its holder. Use it as a context manager, or release
    it."""

    def __init__(self, path: Path, timeout: float = 0.0) -> None:
        """Take the lock. Raises Locked, naming the holder, if it is not free within `timeout` s."""
        self.path = path
        deadline = clocks.monotonic() + timeout
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            while (descriptor := _try_to_lock(path)) is None:
                if clocks.monotonic() >= deadline and path.exists():
                    raise Locked(f"held by {_holder(path)}", str(path))
                clocks.sleep(RETRY)
            self._descriptor: int | None = descriptor
            holder = (
                f"{socket.gethostname()} (process {os.getpid()}, since"
                f" {time.strftime('%Y-%m-%d %H:%M:%S')})"
            )
            with suppress(OSError):  # on a full disk the lock works without a name too
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, holder.encode(), 0)
        except OSError as error:
            raise unwritable(error, path) or HpmlError(
                f"cannot be locked: {error.strerror}; keep results on a file system with flock",
                str(path),
            ) from None

    def check(self) -> None:
        """Raise Locked if the file at this path is no longer the locked one. Call it before
        writing.

        If the file was removed (for example by `git clean -x`), another process could lock a new
        file and write the same results.
        """
        if self._descriptor is None or not _is_at(self._descriptor, self.path):
            what = (
                "is no longer locked by this process: the lock file was removed, and"
                f" {_holder(self.path)} may write"
            )
            raise Locked(
                f"{what} there; what was stored is kept, start the run again",
                str(self.path.parent),
            )

    def release(self) -> None:
        """Release the lock. Calling it again does nothing."""
        if self._descriptor is not None:
            with suppress(OSError):
                os.ftruncate(self._descriptor, 0)
            # works even if a forked process has the file open
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = None

    def __exit__(self, *_: object) -> None:
        self.release()


def _try_to_lock(path: Path) -> int | None:
    """A descriptor of the locked file; None if another process holds it. Raises OSError."""
    with suppress(FileNotFoundError):
        refuse_irregular(path)
    descriptor = open_unfollowed(path, os.O_RDWR | os.O_CREAT)
    locked = False
    with suppress(BlockingIOError):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # otherwise it was removed meanwhile and protects nothing
            locked = _is_at(descriptor, path)
            if locked and os.fstat(descriptor).st_nlink > 1:
                # A hard link: writing here would also change another file. Only this name is
                # removed.
                path.unlink()
                locked = False
        finally:
            if not locked:
                os.close(descriptor)
    return descriptor if locked else None


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether the open file is the one at this path."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _holder(path: Path) -> str:
    """The holder named in a lock file."""
    with suppress(OSError, HpmlError), open_result(path) as file:
        return file.read(200).decode(errors="replace") or "another process"
    return "another process"


def lock_machine(results: Path, machine: str, *, timeout: float = 0.0) -> Lock:
    """Lock results/<machine>/ for this process. Raises Locked, saying who holds it and what to do.

    Symbolic links are refused, because results also come from others and must not make us write
    elsewhere. `results` itself may be a link, which only the user can create.
    """
    folder = machine_folder(results, machine)
    for each in (folder, folder / RECORDS):
        if each.is_symlink():
            raise HpmlError(
                "is a symbolic link, which is not followed when writing; replace it by a folder",
                str(each),
            )
    try:
        lock = Lock(folder / ".lock", timeout)
    except Locked as locked:
        raise Locked(
            f"machine {machine!r} is being measured: {locked.what}; wait until it is done, or give"
            " this node a name of its own: asv run --machine NAME",
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
