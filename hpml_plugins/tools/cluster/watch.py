"""What became of jobs: Slurm's word, the job's own, and its log."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpml_plugins.tools.cluster.state import JobOrder, JobState, read_order, read_state

#: Slurm's states in which a job has not ended.
_WAITING = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "SUSPENDED", "RESV_DEL_HOLD")
_RUNNING = ("RUNNING", "COMPLETING", "CONFIGURING", "STAGE_OUT", "SIGNALING", "STOPPED", "RESIZING")
_ENDED_BY_SLURM = {
    "TIMEOUT": "its time was up",
    "NODE_FAIL": "its node failed",
    "CANCELLED": "cancelled",
    "PREEMPTED": "its node was given to another job",
    "OUT_OF_MEMORY": "out of memory",
    "BOOT_FAIL": "its node did not boot",
    "DEADLINE": "it could not be done before its deadline",
}


@dataclass(frozen=True)
class SlurmWord:
    """What Slurm says of a job: state and reason in its own words, and the nodes."""

    state: str
    reason: str = ""
    nodes: str = ""


@dataclass(frozen=True)
class Job:
    """A job as a user wants to see it. state: pending, running, done, failed, cancelled, lost.  progress: 0 to 1."""

    folder: Path
    order: JobOrder
    state: str
    reason: str
    node: str
    attempts: int
    progress: float | None

    @property
    def log(self) -> Path:
        """The file of its output."""
        return self.folder / f"{self.order.id}_0_log.out"

    @property
    def errors(self) -> Path:
        """The file of its messages."""
        return self.folder / f"{self.order.id}_0_log.err"


def jobs_in(folder: Path) -> list[Job]:
    """All jobs of a folder, the oldest first."""
    found = [(path, order) for path in sorted(folder.glob("*")) if (order := read_order(path))]
    words = ask_slurm([order.id for _, order in found if order.executor == "slurm" and order.id])
    return [judge(path, order, words.get(order.id)) for path, order in found]


def judge(folder: Path, order: JobOrder, word: SlurmWord | None) -> Job:
    """Put together what is known of a job."""
    told = read_state(folder)
    state, reason = _judge(order, told, word)
    progress = None if told is None else 1.0 if state == "done" else read_progress(folder / f"{order.id}_0_log.out")
    node = (word.nodes if word else "") or (told.host if told else "")
    return Job(folder, order, state, reason, node, told.attempts if told else 0, progress)


def _judge(order: JobOrder, told: JobState | None, word: SlurmWord | None) -> tuple[str, str]:
    if not order.id:
        return "failed", order.problem or "it was never submitted"
    if word and word.state in _WAITING:
        again = f", after {told.attempts} attempt{'s' * (told.attempts > 1)}" if told else ""
        return "pending", f"{word.reason or word.state}{again}"
    if word and word.state in _RUNNING:
        return "running", "" if told and told.phase == "running" else "starting or ending"
    if word and word.state in _ENDED_BY_SLURM:
        return "cancelled" if word.state == "CANCELLED" else "failed", _ENDED_BY_SLURM[word.state]
    if told is None:
        if order.executor == "local" and _is_alive(order):
            return "running", "starting"
        said = f"Slurm says {word.state}" if word else "nobody knows it any more"
        return ("failed" if word else "lost"), f"{said}, and it never started asv; its log says why"
    if told.phase == "running":
        if order.executor == "local" and _is_alive(order):
            return "running", ""
        return "lost", f"it ended on {told.host} without a word (killed, or the node died)"
    if told.phase == "interrupted" and order.executor == "local" and _is_alive(order):
        return "pending", told.reason
    return {"done": "done"}.get(told.phase, "failed"), told.reason


def ask_slurm(ids: Sequence[str]) -> dict[str, SlurmWord]:
    """What Slurm says of these jobs: squeue for those it remembers, sacct, where there is accounting, for others."""
    if not ids:
        return {}
    found = {}
    wanted = set(ids)
    for line in _ask("squeue", "-h", "-t", "all", "-u", str(os.getuid()), "-o", "%i|%T|%r|%N"):
        number, state, reason, nodes = (*line.split("|"), "", "", "", "")[:4]
        if number in wanted:
            found[number] = SlurmWord(state, "" if reason == "None" else reason, nodes)
    forgotten = sorted(wanted - set(found))
    if forgotten:
        for line in _ask("sacct", "-n", "-P", "-X", "-j", ",".join(forgotten), "-o", "JobID,State,NodeList"):
            number, state, nodes = (*line.split("|"), "", "", "")[:3]
            found[number] = SlurmWord(state.split(" ")[0], "", nodes)  # "CANCELLED by 0"
    return found


def cancel(jobs: Iterable[Job]) -> list[Job]:
    """Cancel those that have not ended; returns them."""
    import signal
    from contextlib import suppress

    ended = []
    for job in jobs:
        if job.state not in ("pending", "running"):
            continue
        if job.order.executor == "slurm":
            _ask("scancel", job.order.id)
        elif _is_alive(job.order):
            with suppress(ProcessLookupError):
                os.kill(int(job.order.id), signal.SIGINT)
        ended.append(job)
    return ended


def read_progress(log: Path) -> float | None:
    """The last share that asv's log tells of, 0 to 1. None before the first."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 65536))
            shares = re.findall(rb"^\[ *([\d.]+)%\]", file.read(), re.MULTILINE)
    except OSError:
        return None
    return float(shares[-1]) / 100 if shares else None


def tail(path: Path, count: int) -> list[str]:
    """The last lines of a file."""
    try:
        return path.read_text(errors="replace").splitlines()[-count:] if count else []
    except OSError:
        return []


def _is_alive(order: JobOrder) -> bool:
    if order.host != socket.gethostname():
        return True  # only its own machine can tell
    try:
        return b"submitit" in Path("/proc", order.id, "cmdline").read_bytes()
    except OSError:
        return False


def _ask(*command: str) -> list[str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []
