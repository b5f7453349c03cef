"""One writer at a time, over all nodes of a shared file system, and never a lock that a dead one holds.

flock: the kernel lets go when the process ends, however it ends; over NFS it is the server's (Linux). A node that is
cut off or loses power may leave its lock with the server, so a holder also touches the file every few seconds, and one
that has been silent for long is taken for dead.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import msgspec

from hpml_plugins.errors import HpmlError, unwritable

#: s between two signs of life, and the silence after which a holder is taken for dead.
BEAT, SILENCE = 15.0, 120.0
#: What a file system says that has no such locks.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


class Holder(msgspec.Struct, frozen=True):
    """Who has a lock. started: Unix time, s."""

    host: str = "another process"
    pid: int = 0
    started: float = 0.0

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.started))
        return f"{self.host} (process {self.pid}, since {since})" if self.pid else self.host


class Held(HpmlError):
    """Somebody else has the lock."""

    def __init__(self, path: Path, holder: Holder) -> None:
        self.holder = holder
        super().__init__(f"held by {holder}", str(path))


@dataclass
class Lock:
    """A lock that this process has until `release`, or until it ends. exclusive: False where there are no locks."""

    path: Path
    descriptor: int | None
    _ended: threading.Event

    @property
    def exclusive(self) -> bool:
        """Whether the file system keeps others out."""
        return self.descriptor is not None

    def release(self) -> None:
        """Let go. Once more does nothing."""
        self._ended.set()
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None

    def __enter__(self) -> Lock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def take(path: Path, *, wait: float = 0.0, silence: float = SILENCE) -> Lock:
    """Take the lock of that file; the file stays. Raises Held when another has it for longer than `wait` s.

    silence: s without a sign of life after which the holder is taken for dead.
    """
    try:
        return _take(path, wait, silence)
    except OSError as error:
        raise unwritable(error, path) or error from None


def _take(path: Path, wait: float, silence: float) -> Lock:
    path.parent.mkdir(parents=True, exist_ok=True)
    patience = time.monotonic() + wait
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder, inode = _holder(descriptor), os.fstat(descriptor).st_ino
            os.close(descriptor)
            if _put_aside(path, inode, silence):
                continue
            if time.monotonic() >= patience:
                raise Held(path, holder) from None
            time.sleep(0.02)
            continue
        except OSError as error:
            os.close(descriptor)
            if error.errno in _NO_LOCKS:
                return Lock(path, None, threading.Event())
            raise HpmlError(f"cannot be locked: {error.strerror}", str(path)) from None
        if _is_at(path, descriptor):
            return _signed(path, descriptor)
        os.close(descriptor)  # put aside by another between opening and locking


def _signed(path: Path, descriptor: int) -> Lock:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, msgspec.json.encode(Holder(socket.gethostname(), os.getpid(), time.time())), 0)
    ended = threading.Event()

    def live() -> None:
        while not ended.wait(BEAT):
            with suppress(OSError):
                os.utime(descriptor)

    threading.Thread(target=live, daemon=True, name="lock").start()
    return Lock(path, descriptor, ended)


def _holder(descriptor: int) -> Holder:
    try:
        return msgspec.json.decode(os.pread(descriptor, 4096, 0), type=Holder)
    except msgspec.DecodeError:
        return Holder()  # it is just signing


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return path.stat().st_ino == os.fstat(descriptor).st_ino
    except FileNotFoundError:
        return False


def _put_aside(path: Path, inode: int, silence: float) -> bool:
    """Take the file of a silent holder away, so that the next one locks a new file. False: it is alive."""
    # By the file server's clock, which nodes need not share. One at a time, or a second would take the new file away.
    beside = path.with_name(f"{path.name}.takeover")
    with beside.open("w") as guard:
        os.utime(guard.fileno())
        now = os.fstat(guard.fileno()).st_mtime
        try:
            found = path.stat()
            if found.st_ino != inode or now - found.st_mtime < silence:
                return False
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.stat().st_ino == inode:
                path.unlink()
        except (FileNotFoundError, BlockingIOError):
            return False
    return True
