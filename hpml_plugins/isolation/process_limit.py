"""Guards against what one point can do to the whole machine: a fork bomb, and all of its memory."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

#: How many processes a point may have at once. Eight ranks with sixteen loaders each are 137; sets another limit.
MOST, VARIABLE = 2048, "HPML_PROCESS_LIMIT"


class Crowd:
    """Counts the descendants of this process. Where /proc does not tell, nothing is guarded.

    Walking through /proc would disturb what is measured, so it is done only once the machine has that many more tasks
    than there were at first: one small file says how many.
    """

    def __init__(self) -> None:
        given = os.environ.get(VARIABLE, "")
        self.most = int(given) if given.isdecimal() else MOST
        self._before = _tasks()

    def fault(self) -> str:
        """Why the point has to be ended now; empty where it has not."""
        if _tasks() - self._before <= self.most:
            return ""
        count = len(descendants(os.getpid()))
        return f"more than {self.most} processes at once ({VARIABLE} sets another limit)" if count > self.most else ""


def descendants(pid: int) -> set[int]:
    """The children of a process, theirs, and so on."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208
        if entry.isdigit():
            with suppress(OSError), open(f"/proc/{entry}/stat", "rb") as file:  # noqa: PTH123
                children.setdefault(int(file.read().rpartition(b")")[2].split()[1]), []).append(int(entry))
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        new = [child for child in children.get(waiting.pop(), []) if child not in found]
        found.update(new)
        waiting += new
    return found


def be_first_to_go() -> None:
    """Let the kernel, when memory runs out, end this process and its children before any other. Linux only."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _tasks() -> int:
    try:
        return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    except (OSError, ValueError, IndexError):
        return 0
