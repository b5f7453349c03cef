"""Temporary folders that SIGTERM and SIGHUP remove too, which by default run nothing at exit; and
the user's cache."""

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

#: Folder → the process that made it: its forks remove nothing.
_makers: dict[Path, int] = {}


@contextmanager
def temporary_folder(prefix: str, parent: Path | str | None = None) -> Iterator[Path]:
    """A new folder, removed at the end of the block, or when SIGTERM or SIGHUP ends this process.

    parent: where it is made; that of all temporary files when left out. What SIGKILL leaves of a
    point is removed by its supervisor (`isolation`).
    """
    _remove_when_terminated()
    folder = Path(parent or tempfile.gettempdir(), prefix + secrets.token_hex(8)).absolute()
    _makers[folder] = os.getpid()  # before it is there: a signal may come in between
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        if _makers.pop(folder, 0) == os.getpid():
            shutil.rmtree(folder, ignore_errors=True)


def user_cache() -> Path:
    """The user's cache by the XDG rules: nothing is lost with it but time."""
    base = os.environ.get(
        "XDG_CACHE_HOME", ""
    )  # counts as not set where it is not absolute
    return (Path(base) if Path(base).is_absolute() else absolute("~/.cache")) / "hpml"


def absolute(path: str) -> Path:
    """The absolute path, `~` resolved. For a user without a home `~` stays, and nothing is found
    there."""
    return Path(os.path.abspath(os.path.expanduser(path)))  # noqa: PTH100, PTH111  (Path.expanduser raises)


def _remove_when_terminated() -> None:
    """Handle the signals where nobody does: `hpml` has handlers of its own, which end every block,
    and nohup ignores SIGHUP."""
    if threading.current_thread() is not threading.main_thread():
        return  # Python sets handlers in the main thread alone
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _end)


def _end(number: int, _: object) -> None:
    signal.signal(number, signal.SIG_DFL)
    for folder, maker in _makers.items():
        if maker == os.getpid():
            shutil.rmtree(folder, ignore_errors=True)
    os.kill(os.getpid(), number)
