"""Run a function in a separate process, so that any failure becomes an outcome, with the stack if
it hung or crashed."""

from __future__ import annotations

import ctypes
import faulthandler
import functools
import getpass
import json
import multiprocessing
import os
import re
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from hpml_plugins import clocks
from hpml_plugins.errors import Failure, environment_number, plugin_frame
from hpml_plugins.isolation.leftovers import end_with_parent, leave_mark
from hpml_plugins.temporary import temporary_folder
from hpml_plugins.terminal import one_line

if TYPE_CHECKING:
    import psutil

_PR_SET_CHILD_SUBREAPER = 36
#: `send(message)`: the isolated function reports with it, any number of times.
Send = Callable[[bytes], None]
#: Characters of the process's output that are kept when it dies.
OUTPUT_TAIL = 8000
#: s between two checks whether the process is alive: waking more often would disturb what it
#: measures.
LISTENING = 0.5
#: s to wait after a process died of SIGTERM before this counts as a failure. Whatever ends a
#: whole run (Slurm that cancels or preempts, systemd) signals its processes one after another: if
#: this process is signalled next, the benchmark has not failed.
NEXT_IN_LINE = 1.0
#: The most processes that a point may have at once: eight ranks with sixteen loaders each are
#: 137.
MOST_PROCESSES = 2048
#: The environment variable that sets another limit.
LIMIT_VARIABLE = "HPML_PROCESS_LIMIT"
#: s between SIGTERM and SIGKILL.
GRACE = 2.0
#: s that the supervisor has to end all processes and to report.
PATIENCE = 20.0
#: B of the longest message.
MOST_MESSAGE = 1 << 30
#: B of the length that precedes each message.
_HEADER = 8
#: The first message, with which the time limit begins, as the timer of the stack does: on a busy
#: machine a large process takes long to fork.
_STARTED = b""
#: s before the time-out at which the stack is written: on a busy machine the process may have to
#: wait that long for a core.
BEFORE_END = 1.0
#: The stack is written no earlier than after this share of the time limit.
EARLIEST = 0.8
#: What the folder of the temporary files of a point is called.
TEMPORARY = "hpml-point-"
#: Signals that end a run: from a terminal, a lost connection, Slurm.
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Explanations of signals whose names say too little.
_MEANINGS = {
    "SIGSEGV": " (segmentation fault)",
    "SIGKILL": " (killed, perhaps for want of memory)",
    "SIGABRT": " (aborted)",
}
#: faulthandler ends with one line of several kilobytes, which would displace the stack of the
#: crash from the kept output.
_MODULES = re.compile(rb"^Extension modules: .*\n?", re.MULTILINE)


class _Report(NamedTuple):
    """The final report of the supervisor. code: the exit code of the function's process.  left: see
    `ProcessOutcome`.  limit: the limit that it exceeded, in words."""

    code: int
    left: bool
    limit: str


class Fault(NamedTuple):
    """Why a function did not return."""

    kind: Failure
    text: str


@dataclass(frozen=True)
class ProcessOutcome:
    """How it ended. fault: empty if the function returned; else why it did not, and where it
    crashed or hung.  kind: of the fault.

    output: the end of what it printed.  left: whether it left processes behind, which were ended.
    """

    fault: str
    kind: Failure
    output: str
    left: bool


def run_isolated(
    function: Callable[[Send], None],
    timeout: float,
    on_message: Callable[[bytes], None],
    watch: Callable[[], str] = lambda: "",
) -> ProcessOutcome:
    """Run `function(send)` in a separate process, and end it and everything it started, however
    this process ends.

    timeout: s from its start, after which it is ended.  on_message: called in this process with
    each message sent.  watch: called repeatedly in this process while it waits; a fault that it
    returns ends the function. The processes are forks and keep what was imported before; the
    function must be the first to touch CUDA.

    A supervisor between the two adopts what the function starts, so that daemons are found too. It
    has its own process group, outlives this process, and ends the function when this process asks
    for it or is gone.
    """
    most = environment_number(LIMIT_VARIABLE, MOST_PROCESSES)
    ours, theirs = socket.socketpair()
    receiver, sender = os.pipe()
    _adopt_orphans()  # of a killed supervisor
    with tempfile.TemporaryFile() as output:
        arguments = (
            function,
            ours,
            receiver,
            theirs,
            sender,
            output.fileno(),
            os.getpid(),
            timeout,
            most,
        )
        supervisor = multiprocessing.get_context("fork").Process(
            target=_supervise, args=arguments
        )
        supervisor.start()
        theirs.close()
        os.close(sender)
        try:
            fault = _listen(ours, receiver, timeout, on_message, watch)
        finally:
            report = _end(supervisor, ours)
            os.close(receiver)
        printed = _tail(output)
        left = report is not None and report.left
        fault = fault or _fault_of(report)
        if fault is None:
            return ProcessOutcome("", Failure.NONE, printed[-OUTPUT_TAIL:], left)
        # a process that exited by itself has no stack
        stack = "" if fault.kind is Failure.EXIT else describe_stack(printed)
        text = f"{fault.text} {stack}".rstrip()
        return ProcessOutcome(text, fault.kind, printed[-OUTPUT_TAIL:], left=False)


def _fault_of(report: _Report | None) -> Fault | None:
    """Why the function did not return, from the supervisor's report or the lack of one."""
    if report is None:
        return Fault(Failure.SUPERVISOR, "its supervising process was killed or stopped")
    if report.limit:
        return Fault(Failure.LIMIT, report.limit)
    if report.code == -signal.SIGTERM:
        clocks.sleep(NEXT_IN_LINE)
    kind = Failure.SIGNAL if report.code < 0 else Failure.EXIT
    return Fault(kind, describe_exit(report.code)) if report.code else None


def _adopt_orphans() -> None:
    """Linux: make orphaned descendants children of this process instead of process 1."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _supervise(
    function: Callable[[Send], None],
    of_parent: socket.socket,
    receiver: int,
    channel: socket.socket,
    sender: int,
    output: int,
    parent: int,
    timeout: float,
    most: float,
) -> None:
    """Fork the function's process, wait for its end or that of the run, end what is left, report,
    and exit.

    channel: when it is closed, the function is ended.  parent: the run's process.
    """
    try:
        of_parent.close()
        os.close(receiver)
        for number in _ENDING:
            signal.signal(number, signal.SIG_IGN)
        # a signal to the whole group of the run must not reach the process that cleans up after
        # it
        os.setpgid(0, 0)
        _adopt_orphans()
        supervisor = os.getpid()
        before = _count_processes()
        with temporary_folder(TEMPORARY) as folder:
            if not (child := os.fork()):
                channel.close()
                _keep_temporary_files(folder)
                _run(function, sender, output, supervisor, timeout)
            os.close(sender)
            code, limit = _await(child, channel, parent, before, most)
            left = _end_all(child if code is None else None)
        channel.sendall(json.dumps((code or 0, left, limit)).encode())
    finally:
        os._exit(0)


def _keep_temporary_files(folder: Path) -> None:
    """Make Python create the temporary files of this process in that folder, which the supervisor
    removes.

    Programs that it starts keep the same TMPDIR. torch's compiler has its cache in a temporary
    folder, also for later points: that one is not moved.
    """
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name
        user = f"uid_{os.getuid()}"
    cache = Path(tempfile.gettempdir(), f"torchinductor_{user}")
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache))
    tempfile.tempdir = str(folder)


def _await(
    child: int, channel: socket.socket, parent: int, before: int, most: float
) -> tuple[int | None, str]:
    """The exit code of the function's process, None while it is running; and the limit that it
    exceeded.

    before: the number of processes of the machine before.  most: the number that the function may
    have.
    """
    watched: list[socket.socket | int] = [channel]
    with suppress(OSError, AttributeError):  # not available before Linux 5.3
        watched.append(os.pidfd_open(child))
    while True:
        ready = wait(watched, LISTENING if len(watched) > 1 else LISTENING / 10)
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status), ""
        if channel in ready or os.getppid() != parent:
            return None, ""
        # Finding descendants means reading every process, which would disturb the measurement;
        # counting is cheap.
        if _count_processes() - before > most and _count_descendants() > most:
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)  # all at once, before they multiply
            return (
                None,
                f"more than {most:g} processes at once ({LIMIT_VARIABLE} sets another limit)",
            )


def _run(
    function: Callable[[Send], None],
    sender: int,
    output: int,
    supervisor: int,
    timeout: float,
) -> None:
    """Call the function in its process, and exit."""
    os.setsid()
    # Linux: if memory runs out, end this process and its children before any other
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    end_with_parent(supervisor)  # a supervisor killed by SIGKILL cannot end its children
    for number in _ENDING:
        signal.signal(number, signal.SIG_DFL)
    leave_mark(supervisor)
    os.dup2(output, 1)
    os.dup2(output, 2)
    # The caller (a test runner, asv) may have replaced Python's own streams: reopen the
    # descriptors.
    sys.stdout = open(1, "w", buffering=1, closefd=False, errors="backslashreplace")  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False, errors="backslashreplace")  # noqa: SIM115
    faulthandler.enable(2)
    write_stack_before(timeout, output)
    _send(sender, _STARTED)
    status = 0
    try:
        function(functools.partial(_send, sender))
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        status = 1
        traceback.print_exc()
    with suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    # Skip what libraries do at exit: it takes time, and crashes on a GPU that a kernel left
    # broken.
    os._exit(status & 0xFF)


def _send(descriptor: int, message: bytes) -> None:
    rest = memoryview(len(message).to_bytes(_HEADER, "big") + message)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _take_messages(content: bytearray) -> Iterator[bytes]:
    """Remove the complete messages from the received bytes and yield them."""
    while len(content) >= _HEADER and len(content) >= (
        end := _HEADER + int.from_bytes(content[:_HEADER], "big")
    ):
        message = bytes(content[_HEADER:end])
        del content[:end]
        yield message


def _listen(
    channel: socket.socket,
    receiver: int,
    timeout: float,
    on_message: Callable[[bytes], None],
    watch: Callable[[], str],
) -> Fault | None:
    """Receive messages until the supervisor reports or is gone. Returns why the function must be
    ended before that.

    Never blocks on the function, which may close its end of the pipe and run on, or leave a message
    half written.
    """
    deadline = clocks.monotonic() + timeout + PATIENCE
    started = ended = False
    content = bytearray()
    os.set_blocking(receiver, False)
    watched: list[socket.socket | int] = [channel, receiver]
    while True:
        received = b""
        with suppress(BlockingIOError):
            if not (received := os.read(receiver, 1 << 20)):
                watched = [channel]
        content += received
        for message in _take_messages(content):
            if started:
                on_message(message)
            else:
                started = True
                deadline = clocks.monotonic() + timeout
        if ended and not received:
            return None
        if len(content) > MOST_MESSAGE:
            return Fault(
                Failure.LIMIT, f"sent a message of more than {MOST_MESSAGE / 1e6:,.0f} MB"
            )
        if (remaining := deadline - clocks.monotonic()) <= 0 and not ended:
            return Fault(Failure.TIMEOUT, f"timed out after {timeout:g} s")
        if not ended and (seen := watch()):
            return Fault(Failure.STOPPED, seen)
        ended = ended or channel in wait(watched, min(remaining, LISTENING))


def _end(supervisor: BaseProcess, channel: socket.socket) -> _Report | None:
    """Have the supervisor end what is still running. Returns its report; None if it was killed or
    stopped."""
    report = b""
    channel.settimeout(PATIENCE)
    with channel, suppress(OSError):
        channel.shutdown(socket.SHUT_WR)
        report = channel.recv(4096)
    supervisor.kill()
    supervisor.join()
    if report:
        return _Report(*json.loads(report))
    _end_all(None)
    return None


def _count_processes() -> int:
    return sum(name.isdigit() for name in os.listdir("/proc"))  # noqa: PTH208


def _count_descendants() -> int:
    import psutil

    return len(psutil.Process().children(recursive=True))


def describe_exit(code: int) -> str:
    """Describe how a process ended, from multiprocessing's exit code; empty for status 0."""
    if code >= 0:
        return f"ended with exit status {code} before it reported" if code else ""
    number = -code
    name = (
        signal.Signals(number).name if number in [*signal.Signals] else f"signal {number}"
    )
    return f"died of {name}{_MEANINGS.get(name, '')}"


def _end_all(leader: int | None) -> bool:
    """End every process of the point below this one, in any session. Returns whether any was still
    running.

    leader: the function's process, while it runs.
    """
    if leader is None:
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
    import psutil  # takes a tenth of the start of a command, and is rarely needed

    rounds = 0
    patience = clocks.monotonic() + PATIENCE / 2
    while True:
        # Dead processes are reaped; the children of a dead daemon become ours and are found in
        # the next pass.
        _, living = psutil.wait_procs(_isolated(), 0)
        # An overloaded machine may use up all patience in the first round: SIGKILL is sent at
        # least once all the same.
        if not living or (rounds > 1 and clocks.monotonic() > patience):
            return rounds > 0
        number = signal.SIGKILL if rounds else signal.SIGTERM
        rounds += 1
        if leader and leader in [process.pid for process in living]:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(leader, number)  # all at once
        for process in living:
            with suppress(psutil.Error):
                process.send_signal(number)
        psutil.wait_procs(living, GRACE)


def _isolated() -> list[psutil.Process]:
    """The children of this process in other sessions, and all their descendants."""
    import psutil

    session = os.getsid(0)
    found = []
    for child in psutil.Process().children():
        with suppress(OSError, psutil.Error):
            if os.getsid(child.pid) != session:
                found += [child, *child.children(recursive=True)]
    return found


def _tail(output: IO[bytes]) -> str:
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - 4 * OUTPUT_TAIL))
    return _MODULES.sub(b"", output.read()).decode("utf-8", "replace").strip()


def write_stack_before(limit: float, file: int) -> None:
    """Write the stacks of all threads shortly before `limit` s have passed; replaces an earlier
    call.

    file: a descriptor that stays open. Uses a timer and a handler in C: a waiting thread would keep
    ranks from being forked, and a handler in Python would not run while a C function blocks. A
    plugin that uses SIGALRM itself disables the timer, and its stack is then unknown.
    """
    faulthandler.register(signal.SIGALRM, file)
    signal.setitimer(signal.ITIMER_REAL, max(0.01, EARLIEST * limit, limit - BEFORE_END))


def describe_stack(text: str) -> str:
    """`in all_reduce (distributed_c10d.py:3061) of step (mine.py:9)`: the innermost frame, and that
    of the plugin.

    text: the output of a process, of which the last stack is used: of the crashing thread, or else
    of the main thread. Empty if there is none.
    """
    crash = (
        text.rpartition("Fatal Python error")[2]
        .partition("Current thread 0x")[2]
        .partition("\n\n")[0]
    )
    # the last one that faulthandler writes
    main_thread = text.rpartition("hread 0x")[2].partition("\n\n")[0]
    frames = re.findall(
        r'^  File "(.*)", line (\d+) in (\S+)', crash or main_thread, re.MULTILINE
    )
    if not frames:
        return ""
    outermost_first = frames[::-1]
    own = plugin_frame([file for file, _, _ in outermost_first])
    shown = frames[:1]
    if own is not None and outermost_first[own] != frames[0]:
        shown.append(outermost_first[own])
    places = [f"{name} ({Path(file).name}:{line})" for file, line, name in shown]
    # a plugin may print what looks like a stack
    return one_line(f"in {' of '.join(places)}")
