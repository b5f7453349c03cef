"""Run a function in a process of its own, so that whatever it does ends in an outcome."""

from __future__ import annotations

import ctypes
import faulthandler
import itertools
import multiprocessing
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, TYPE_CHECKING

from hpml_plugins.errors import environment_number
from hpml_plugins.isolation.parent_death import end_with_parent

if TYPE_CHECKING:
    import psutil

_PR_SET_CHILD_SUBREAPER = 36
#: `send(message)`: what the isolated function reports with, any number of times.
Send = Callable[[bytes], None]
#: How much of what the process printed is kept when it dies, B.
OUTPUT_TAIL = 8000
#: s between two looks at whether the process lives: waking more often would disturb what it measures.
LISTENING = 0.5
#: s from a process's death by SIGTERM until it counts. Who ends a whole run (Slurm that cancels or preempts, systemd)
#: signals its processes one after the other: this one is next then, and what was ended is no failure of the benchmark.
NEXT_IN_LINE = 1.0
#: How many processes a point may have at once: eight ranks with sixteen loaders each are 137. Another limit is set by:
MOST_PROCESSES, LIMIT_VARIABLE = 2048, "HPML_PROCESS_LIMIT"
#: faulthandler ends with one line of several kilobytes that would push the stack of the crash out of what is kept.
_MODULES = re.compile(rb"^Extension modules: .*\n?", re.MULTILINE)


@dataclass(frozen=True)
class ProcessOutcome:
    """How it ended. fault: empty when the function returned; else why it did not, in words.  output: tail.

    left: whether it left processes behind, which were ended.
    """

    fault: str
    output: str
    left: bool


def run_isolated(
    function: Callable[[Send], None],
    timeout: float,
    on_message: Callable[[bytes], None],
    watch: Callable[[], str] = lambda: "",
) -> ProcessOutcome:
    """Run `function(send)` in a forked process with its own process group.

    timeout: s, after which the whole group is ended.  on_message: called in this process with each `send`. The fork
    keeps what was imported before it; the function must be the first to touch CUDA. Nothing of the group is left.
    watch: called in this process again and again while it waits; a fault that it returns ends the group.
    """
    receiver, sender = multiprocessing.Pipe(duplex=False)
    with suppress(OSError, AttributeError):  # Linux: daemons become children of this process, and can be found
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryFile() as output:
        process = multiprocessing.get_context("fork").Process(
            target=_child, args=(function, receiver, sender, output.fileno(), os.getpid())
        )
        process.start()
        sender.close()
        try:
            fault = _listen(process, receiver, timeout, on_message, watch)
        finally:
            left = _end_all(process)
            receiver.close()
        return ProcessOutcome(fault, _tail(output), left and not fault)


def _child(
    function: Callable[[Send], None], receiver: Connection, sender: Connection, output: int, parent: int
) -> None:
    os.setsid()
    with suppress(OSError):  # Linux: where memory runs out, this process and its children are ended before any other
        Path("/proc/self/oom_score_adj").write_text("1000")
    end_with_parent(parent)  # who is killed outright ends nobody
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    receiver.close()
    os.dup2(output, 1)
    os.dup2(output, 2)
    # Python's own streams may have been replaced by whoever called (a test runner, asv): back to the descriptors.
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    faulthandler.enable(2)
    function(sender.send_bytes)
    sender.close()
    sys.stdout.flush()
    sys.stderr.flush()
    # What libraries do at exit is nobody's result: it takes its time, and crashes on a GPU that a kernel left broken.
    os._exit(0)


def _listen(
    process: multiprocessing.process.BaseProcess,
    receiver: Connection,
    timeout: float,
    on_message: Callable[[bytes], None],
    watch: Callable[[], str],
) -> str:
    deadline = time.monotonic() + timeout
    most = environment_number(LIMIT_VARIABLE, MOST_PROCESSES)
    before = _count_processes()
    while True:
        # Who descends from whom takes a look at every process, which would disturb what is measured; counting is cheap.
        if _count_processes() - before > most and _count_descendants() > most:
            with suppress(ProcessLookupError):
                os.killpg(process.pid or 0, signal.SIGKILL)  # all at once, before they are more
            return f"more than {most:g} processes at once ({LIMIT_VARIABLE} sets another limit)"
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            return f"timed out after {timeout:g} s"
        if fault := watch():
            return fault
        try:
            if not receiver.poll(min(remaining, LISTENING)):
                # A grandchild may hold the pipe open after the process died: its death is what counts.
                if process.exitcode is not None and not receiver.poll(0):
                    return _fault(process.exitcode)
                continue
            message = receiver.recv_bytes()
        except (EOFError, OSError):
            process.join(max(0.0, deadline - time.monotonic()))
            if process.exitcode is None:
                return f"timed out after {timeout:g} s"
            return _fault(process.exitcode)
        on_message(message)


def _count_processes() -> int:
    return sum(name.isdigit() for name in os.listdir("/proc"))  # noqa: PTH208


def _count_descendants() -> int:
    import psutil

    return len(psutil.Process().children(recursive=True))


def _fault(code: int) -> str:
    if code == -signal.SIGTERM:
        time.sleep(NEXT_IN_LINE)
    return describe_exit(code)


def describe_exit(code: int) -> str:
    """How a process ended, from multiprocessing's exit code, in words; empty for status 0."""
    if code == 0:
        return ""
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        meaning = {
            "SIGSEGV": " (segmentation fault)",
            "SIGKILL": " (killed, perhaps for want of memory)",
            "SIGABRT": " (aborted)",
        }
        return f"died of {name}{meaning.get(name, '')}"
    return f"ended with exit status {code} before it reported"


def _end_all(leader: multiprocessing.process.BaseProcess) -> bool:
    """End every process of the point, whichever session it went to. Returns whether any but the leader still ran."""
    if leader.exitcode is not None and not _has_children():
        return False
    import psutil  # takes a tenth of the start of a command, and is seldom needed

    found, patience = False, time.monotonic() + 10
    for number in itertools.chain([signal.SIGTERM], itertools.repeat(signal.SIGKILL)):
        # Those that had died are reaped; what a daemon leaves becomes our child when it dies, and is found next time.
        _, living = psutil.wait_procs(_isolated(but=leader), 0)
        if (not living and leader.exitcode is not None) or time.monotonic() > patience:
            break
        found = found or bool(living)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(leader.pid or 0, number)  # all at once
        for process in living:
            with suppress(psutil.Error):
                process.send_signal(number)
        leader.join(2.0)
        psutil.wait_procs(living, 2.0)
    return found


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _isolated(but: multiprocessing.process.BaseProcess) -> list[psutil.Process]:
    """The children of this process in sessions other than its own, and all that descend from them."""
    import psutil

    session, found = os.getsid(0), []
    for child in psutil.Process().children():
        with suppress(OSError, psutil.Error):
            if os.getsid(child.pid) != session:
                found += [child, *child.children(recursive=True)]
    return [process for process in found if process.pid != but.pid]


def _tail(output: IO[bytes]) -> str:
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - 4 * OUTPUT_TAIL))
    return _MODULES.sub(b"", output.read())[-OUTPUT_TAIL:].decode("utf-8", "replace").strip()
