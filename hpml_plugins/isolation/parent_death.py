"""A process that ends when its parent does.

Run as a script, it starts another one that way: `parent_death.py PARENT SCRIPT [ARG ...]`. Needs
nothing but Python.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys
from contextlib import suppress

_PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int | None = None) -> None:
    """Let the kernel kill this process when its parent dies, however that dies. Linux only;
    elsewhere nothing.

    Forking clears it: each process asks for itself.  parent: who it should be; ends at once if it
    already is not.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if parent is not None and os.getppid() != parent:
            os._exit(1)


if __name__ == "__main__":
    end_with_parent(int(sys.argv[1]))
    sys.argv = sys.argv[2:]
    runpy.run_path(sys.argv[0], run_name="__main__")
