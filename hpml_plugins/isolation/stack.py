"""The Python stack of a process that is about to be ended: where a point, a rank or an import
hung."""

from __future__ import annotations

import faulthandler
import re
import signal
from pathlib import Path

from hpml_plugins.errors import plugin_frame
from hpml_plugins.terminal import one_line

#: s from writing the stack until the process is ended, and the smallest share of the limit at which
#: it is written.
BEFORE_END, EARLIEST = 0.2, 0.8


def write_stack_before(limit: float, file: int) -> None:
    """Write the stacks of all threads shortly before `limit` s have passed; an earlier call no
    longer counts.

    file: a descriptor that stays open. A timer and a handler in C: a thread that waits would keep
    ranks from being forked, and a handler in Python would not run while a C function blocks. A
    plugin that uses SIGALRM itself takes the timer away, and its stack is then not known.
    """
    faulthandler.register(signal.SIGALRM, file)
    signal.setitimer(signal.ITIMER_REAL, max(0.01, EARLIEST * limit, limit - BEFORE_END))


def describe_stack(text: str) -> str:
    """`in all_reduce (distributed_c10d.py:3061) of step (mine.py:9)`: the innermost frame, and the
    plugin's.

    text: what a process printed; its last stack counts, of a crash that of the thread that crashed,
    else of the main thread. Empty where there is none.
    """
    crash = (
        text.rpartition("Fatal Python error")[2]
        .partition("Current thread 0x")[2]
        .partition("\n\n")[0]
    )
    # the last one that faulthandler writes
    main_thread = text.rpartition("hread 0x")[2].partition("\n\n")[0]
    frames = re.findall(r'^  File "(.*)", line (\d+) in (\S+)', crash or main_thread, re.MULTILINE)
    if not frames:
        return ""
    own = plugin_frame([file for file, _, _ in reversed(frames)])
    shown = [frames[0], *([frames[len(frames) - 1 - own]] if own is not None else [])]
    places = (f"{name} ({Path(file).name}:{line})" for file, line, name in dict.fromkeys(shown))
    return one_line(f"in {' of '.join(places)}")  # a plugin may print what looks like a stack
