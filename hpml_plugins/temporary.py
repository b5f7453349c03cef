"""Temporary folders that are also removed on SIGTERM and SIGHUP, which skip exit handlers by
default; and the user's cache."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Folder → the process that created it: forks of this process do not remove it.
_makers: dict[Path, int] = {}


@contextmanager
def temporary_folder(prefix: str, parent: Path | str | None = None) -> Iterator[Path]:
    """A new folder, removed at the end of the block, or when SIGTERM or SIGHUP ends this process.

    parent: the parent folder; by default that of all temporary files. Folders of a point left by
    SIGKILL are removed by its supervisor (`isolation`).
    """
    _remove_when_terminated()
    folder = Path(parent or tempfile.gettempdir(), prefix + secrets.token_hex(8)).absolute()
    _makers[folder] = os.getpid()  # before creating it: a signal may arrive in between
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        if _makers.pop(folder, 0) == os.getpid():
            shutil.rmtree(folder, ignore_errors=True)


def user_cache() -> Path:
    """The user's cache by the XDG rules; losing it only costs time."""
    base = os.environ.get("XDG_CACHE_HOME", "")  # relative paths are ignored
    return (Path(base) if Path(base).is_absolute() else absolute("~/.cache")) / "hpml"


def absolute(path: str) -> Path:
    """The absolute path, with `~` expanded. For a user without a home, `~` is kept, and the path
    does not exist."""
    return Path(os.path.abspath(os.path.expanduser(path)))  # noqa: PTH100, PTH111  (Path.expanduser raises)


def _remove_when_terminated() -> None:
    """Install handlers for signals without one: `hpml` has its own, which end every block, and
    nohup ignores SIGHUP."""
    if threading.current_thread() is not threading.main_thread():
        return  # Python sets handlers only in the main thread
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)


def _end(number: int, _: object) -> None:
    signal.signal(number, signal.SIG_DFL)
    for folder, maker in _makers.items():
        if maker == os.getpid():
            shutil.rmtree(folder, ignore_errors=True)
    os.kill(os.getpid(), number)
