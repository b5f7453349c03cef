"""No process outlives its run: one that ends with its parent, and the processes that a killed run
has left all the same.

The latter are found by a mark that all that a point starts inherits. A supervisor ends them when
its run is gone (`process`); they are left only where it was killed too.

Run as a script, it starts another one that ends with its parent: `leftovers.py PARENT SCRIPT [ARG
...]`. Needs nothing but Python.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import runpy
import signal
import sys
from contextlib import suppress
from pathlib import Path

#: The variable, and the name of a mapping of memory: programs inherit the one, forks the other.
MARK = "HPML_POINT_OF"
_PLACE = re.compile(rf"{MARK}=(\d+)/(\d+)/(\d+)".encode())
_mapping: list[mmap.mmap] = []
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


def leave_mark(supervisor: int) -> None:
    """Mark this process, and all that it will start, as belonging to that supervisor. Linux only;
    elsewhere nothing."""
    with suppress(OSError, AttributeError):
        os.environ[MARK] = _identity(supervisor)
        descriptor = os.memfd_create(f"{MARK}={os.environ[MARK]}")
        os.ftruncate(descriptor, 1)
        _mapping[:] = [mmap.mmap(descriptor, 1)]
        os.close(descriptor)


def end_leftovers() -> list[str]:
    """Kill the processes of points whose supervisors are gone. Returns a line on each.

    Those of other PID namespaces, whose numbers mean nothing here, and of other users are left
    alone.
    """
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            marked = _PLACE.search((folder / "environ").read_bytes()) or _PLACE.search(
                (folder / "maps").read_bytes()
            )
            if marked and not _is_alive(*map(bytes.decode, marked.groups())):
                name = (folder / "comm").read_text(errors="replace").strip()
                os.kill(int(folder.name), signal.SIGKILL)
                found.append(
                    f"ended a process that a killed run had left: {name!r} (process {folder.name})"
                )
    return found


def _identity(process: int | str) -> str:
    """A process, told from all others that had or will have its number: PID namespace, number,
    start in clock ticks.

    Raises OSError where it has ended.
    """
    state, *rest = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    if state in "ZX":  # it has ended, and nobody has asked how
        raise ProcessLookupError
    return f"{Path('/proc/self/ns/pid').stat().st_ino}/{process}/{rest[18]}"


def _is_alive(namespace: str, process: str, start: str) -> bool:
    """Whether it lives, or cannot be asked for: it is of another namespace."""
    if int(namespace) != Path("/proc/self/ns/pid").stat().st_ino:
        return True
    with suppress(OSError):
        return _identity(process) == f"{namespace}/{process}/{start}"
    return False


if __name__ == "__main__":
    end_with_parent(int(sys.argv[1]))
    sys.argv = sys.argv[2:]
    runpy.run_path(sys.argv[0], run_name="__main__")
