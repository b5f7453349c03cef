"""Submitted jobs: the files in a job's folder, and a job's state from those, Slurm and its log."""

from __future__ import annotations

import math
import os
import re
import signal
import socket
import subprocess
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec

from hpml_plugins.errors import HpmlError
from hpml_plugins.model import counted
from hpml_plugins.store import atomic_write, open_result
from hpml_plugins.terminal import warn

T = TypeVar("T", "JobOrder", "JobState")
ORDER = "order.json"
STATE = "state.json"
COMMITS = "commits.txt"

#: Slurm's states of jobs that have not ended.
_WAITING = (
    "PENDING",
    "REQUEUED",
    "REQUEUE_HOLD",
    "REQUEUE_FED",
    "SPECIAL_EXIT",
    "SUSPENDED",
    "RESV_DEL_HOLD",
)
_RUNNING = (
    "RUNNING",
    "COMPLETING",
    "CONFIGURING",
    "STAGE_OUT",
    "SIGNALING",
    "STOPPED",
    "RESIZING",
)
#: States of a job that ended by itself and has reported how.
_ENDED = ("COMPLETED", "FAILED")
#: Not a state of Slurm's: it did not answer, so the job may be in any state.
NO_ANSWER = "NO_ANSWER"
#: Phases that a job reports: asv runs, has measured everything, is paused and will be restarted,
#: was cancelled by the user, or stopped before it was done.
Phase = Literal["running", "done", "paused", "cancelled", "stopped"]


class JobOrder(msgspec.Struct, frozen=True, omit_defaults=True):
    """A submitted job.  id: Slurm's, or the process that runs it here; "" if it was refused, with
    the problem."""

    target: str
    machine: str
    executor: Literal["slurm", "local"]
    host: str
    id: Annotated[str, msgspec.Meta(pattern=r"^[0-9_]{0,30}$(?!\n)")] = ""
    problem: str = ""


class JobState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The job's own report. attempts: how often it was started."""

    phase: Phase
    host: str
    attempts: int
    reason: str = ""


def write_commits(path: Path, commits: Sequence[str]) -> None:
    """Write a list of commits as asv's HASHFILE takes it."""
    atomic_write(path, "".join(f"{commit}\n" for commit in commits).encode())


def write_file(folder: Path, content: JobOrder | JobState) -> None:
    """Write the order or the state of a job's folder."""
    atomic_write(
        folder / (ORDER if isinstance(content, JobOrder) else STATE),
        msgspec.json.encode(content),
    )


def read_file(
    folder: Path, kind: type[T], on_damage: Callable[[str], None] | None = None
) -> T | None:
    """The order, or the state that the job reported last; None if none is readable.

    on_damage: called with the problem for a link, a FIFO or the like, which is not read.
    """
    try:
        with open_result(folder / (ORDER if kind is JobOrder else STATE)) as file:
            return msgspec.json.decode(file.read(), type=kind)
    except HpmlError as error:
        if on_damage:
            on_damage(str(error))
    except (
        OSError,
        ValueError,
        RecursionError,
    ):  # msgspec's errors, text that is not UTF-8
        pass
    return None


@dataclass(frozen=True)
class _SlurmState:
    """A job according to Slurm: state and reason in its own words, and the nodes."""

    state: str
    reason: str = ""
    nodes: str = ""


class Job(JobOrder, frozen=True, kw_only=True, omit_defaults=False):
    """A job as a user sees it. state: pending, running, done, failed, cancelled, lost, or unknown
    while Slurm does not answer.  progress: 0 to 1.

    log: the file of its output.
    """

    state: str
    reason: str
    node: str
    attempts: int
    progress: float | None
    log: Path


def find_jobs(folder: Path, on_damage: Callable[[str], None] | None = None) -> list[Job]:
    """All jobs of a folder, the oldest first. on_damage: as of `read_file`."""
    found = [
        (path, order)
        for path in sorted(folder.glob("*"))
        if (order := read_file(path, JobOrder, on_damage))
    ]
    answers = ask_slurm(
        [order.id for _, order in found if order.executor == "slurm" and order.id]
    )
    return [describe_job(path, order, answers.get(order.id)) for path, order in found]


def describe_job(folder: Path, order: JobOrder, slurm: _SlurmState | None) -> Job:
    """A job from its order, its own report and Slurm's."""
    report = read_file(folder, JobState)
    state, reason = _state(order, report, slurm, folder)
    log = folder / f"{order.id}_0_log.out"
    return Job(
        **msgspec.structs.asdict(order),
        state=state,
        reason=reason,
        node=(slurm.nodes if slurm else "") or (report.host if report else ""),
        attempts=report.attempts if report else 0,
        progress=None if report is None else 1.0 if state == "done" else read_progress(log),
        log=log,
    )


def _state(
    order: JobOrder, report: JobState | None, slurm: _SlurmState | None, folder: Path
) -> tuple[str, str]:
    """The state and its reason."""
    if not order.id:
        return "failed", order.problem
    if slurm and slurm.state == NO_ANSWER:
        if report is None or report.phase in ("running", "paused"):
            return "unknown", "Slurm does not answer; ask again before you submit it again"
        slurm = None
    if slurm and slurm.state in _WAITING:
        attempts = f", after {counted(report.attempts, 'attempt')}" if report else ""
        return "pending", f"{slurm.reason or slurm.state}{attempts}"
    if slurm and slurm.state in _RUNNING:
        is_running = report and report.phase == "running"
        return "running", "" if is_running else "starting or ending"
    if slurm and slurm.state not in _ENDED:
        state = "cancelled" if slurm.state == "CANCELLED" else "failed"
        return state, f"Slurm says {slurm.state}"
    alive = order.executor == "local" and _is_alive(order, folder)
    if report is None:
        if alive:
            return "running", "starting"
        known = f"Slurm says {slurm.state}" if slurm else "Slurm no longer knows it"
        reason = f"{known}, and it never started asv; see its log"
        return "failed" if slurm else "lost", reason
    if report.phase == "running":
        if alive:
            return "running", ""
        reason = f"it ended on {report.host} without a report (killed, or the node died)"
        return "lost", reason
    if report.phase == "paused":
        return "pending" if alive else "failed", report.reason
    return "failed" if report.phase == "stopped" else report.phase, report.reason


def ask_slurm(ids: Sequence[str]) -> dict[str, _SlurmState]:
    """These jobs according to Slurm: its accounting, if any, and squeue, which is the most recent.
    Jobs that neither lists are NO_ANSWER if squeue does not answer."""
    if not ids:
        return {}
    found = {}
    accounted = _run(
        "sacct", "-n", "-P", "-X", "-j", ",".join(ids), "-o", "JobID,State,Reason,NodeList"
    )
    queued = _run("squeue", "-h", "-t", "all", "-u", str(os.getuid()), "-o", "%i|%T|%r|%N")
    if queued is None:
        found = dict.fromkeys(ids, _SlurmState(NO_ANSWER))
    for line in [*(accounted or ()), *(queued or ())]:
        number, state, reason, nodes = f"{line}|||".split("|")[:4]
        # "CANCELLED by 0"
        found[number] = _SlurmState(
            state.partition(" ")[0], "" if reason == "None" else reason, nodes
        )
    return found


def cancel(jobs: Iterable[Job]) -> list[Job]:
    """Cancel the jobs that have not ended, and return them. A local job of another machine is
    reported and not cancelled.

    Only a process that is certainly the job's is signalled, because its number may have been
    reused.
    """
    cancelled = []
    for job in jobs:
        if job.state not in ("pending", "running"):
            continue
        if job.executor == "slurm":
            _run("scancel", job.id)
        elif job.host != socket.gethostname():
            warn(f"job {job.id} ({job.target}) runs on {job.host}; cancel it there")
            continue
        elif _runs_here(job.id, job.log.parent):
            with suppress(ProcessLookupError):
                os.kill(int(job.id), signal.SIGINT)
        cancelled.append(job)
    return cancelled


def read_progress(log: Path) -> float | None:
    """The last progress in asv's log, 0 to 1; None before the first."""
    shares = re.findall(rb"^\[ *([\d.]+)%\]", _end_of(log, 65536), re.MULTILINE)
    return float(shares[-1]) / 100 if shares else None


def tail(path: Path, count: int) -> list[str]:
    """The last lines of a file, of its last 4 MiB."""
    if count:
        return _end_of(path, 4 << 20).decode(errors="replace").splitlines()[-count:]
    return []


def _end_of(log: Path, size: int) -> bytes:
    """The last bytes of a log of any size; empty for anything but a regular file."""
    with suppress(OSError, HpmlError), open_result(log, math.inf) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - size))
        return file.read(size)
    return b""


def _is_alive(order: JobOrder, folder: Path) -> bool:
    if order.host != socket.gethostname():
        return True  # only its own machine can check
    return _runs_here(order.id, folder)


def _runs_here(number: str, folder: Path) -> bool:
    """Whether that process is the one that submitit started for the job in this folder, of this
    user."""
    place = Path("/proc", number)
    try:
        words = place.joinpath("cmdline").read_bytes().split(b"\0")
        is_ours = place.stat().st_uid == os.getuid()
    except OSError:
        return False
    is_submitit = any(word.startswith(b"submitit") for word in words)
    names_folder = any(
        Path(os.fsdecode(word)).resolve() == folder.resolve()
        for word in words
        if b"/" in word
    )
    return bool(number) and is_ours and is_submitit and names_folder


def _run(*command: str) -> list[str] | None:
    """The printed lines; None if it cannot be run, fails or takes too long."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.splitlines() if done.returncode == 0 else None
