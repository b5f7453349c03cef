"""Ending processes that left the process group they were started in: daemons, in sessions of their own."""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Let descendants whose parents die become this process's children, so that they can be found. Linux only."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_orphans(but: int) -> bool:
    """End every child of this process that is in another session, and reap it. Returns whether one was alive.

    but: the child to leave alone. Children that this process started itself share its session.
    """
    session, found = os.getsid(0), False
    for _ in range(10):  # what an orphan leaves becomes our child when it dies
        orphans = [pid for pid in _children() if pid != but and _session(pid) not in (session, None)]
        if not orphans:
            break
        for pid in orphans:
            with suppress(OSError):
                found = os.waitpid(pid, os.WNOHANG) == (0, 0) or found
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
    return found


def _children() -> list[int]:
    found: list[int] = []
    for task in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, task.read_text().split())
    return found


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None
