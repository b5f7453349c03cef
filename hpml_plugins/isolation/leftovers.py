"""Keep processes from outliving their run: end with the parent, and find processes that a killed
run left behind.

Leftover processes are found by a mark that every process of a point inherits. Usually a supervisor
ends them when its run is gone (`process`); they remain only if the supervisor was killed too.

Run as a script, it starts another script that ends with its parent: `leftovers.py PARENT SCRIPT
[ARG ...]`. Needs only Python.
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

#: The name of an environment variable, inherited by programs, and of a memory mapping, inherited
#: by forks.
MARK = "HPML_POINT_OF"
_PLACE = re.compile(rf"{MARK}=(\d+)/(\d+)/(\d+)".encode())
_mapping: list[mmap.mmap] = []
_PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int | None = None) -> None:
    """Have the kernel kill this process when its parent dies, for whatever reason. Linux only; no
    effect elsewhere.

    Forking clears the setting: each process calls this itself.  parent: the expected parent; exits
    at once if it is already gone.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if parent is not None and os.getppid() != parent:
            os._exit(1)


def leave_mark(supervisor: int) -> None:
    """Mark this process, and everything it will start, as belonging to that supervisor. Linux only;
    no effect elsewhere."""
    with suppress(OSError, AttributeError):
        os.environ[MARK] = _identity(supervisor)
        descriptor = os.memfd_create(f"{MARK}={os.environ[MARK]}")
        os.ftruncate(descriptor, 1)
        _mapping[:] = [mmap.mmap(descriptor, 1)]
        os.close(descriptor)


def end_leftovers() -> list[str]:
    """Kill the processes of points whose supervisors are gone. Returns one line for each.

    Processes of other PID namespaces, whose numbers have no meaning here, and of other users are
    left alone.
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
    """Identify a process uniquely despite reused numbers: PID namespace, number, start in clock
    ticks.

    Raises OSError if it has ended.
    """
    state, *rest = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    if state in "ZX":  # ended, but not yet reaped
        raise ProcessLookupError
    return f"{Path('/proc/self/ns/pid').stat().st_ino}/{process}/{rest[18]}"


def _is_alive(namespace: str, process: str, start: str) -> bool:
    """Whether it is alive, or unknown because it is in another namespace."""
    if int(namespace) != Path("/proc/self/ns/pid").stat().st_ino:
        return True
    with suppress(OSError):
        return _identity(process) == f"{namespace}/{process}/{start}"
    return False


if __name__ == "__main__":
    end_with_parent(int(sys.argv[1]))
    sys.argv = sys.argv[2:]
    runpy.run_path(sys.argv[0], run_name="__main__")
