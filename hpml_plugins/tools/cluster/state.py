"""What a job's folder says about it: the order, and what the job itself has told."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from hpml_plugins.store import atomic_write

_T = TypeVar("_T")
ORDER, STATE, COMMITS = "order.json", "state.json", "commits.txt"


class JobOrder(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was asked of a job. id: Slurm's, or the process that runs it here; "" when it was not taken.

    submitted: Unix time, s.
    """

    target: str
    machine: str
    executor: Literal["slurm", "local"]
    commits: int
    submitted: float
    host: str
    id: str = ""
    problem: str = ""


class JobState(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the job says of itself.

    attempts: how often it was started.  started, ended: Unix time, s, of this attempt.
    """

    phase: Literal["running", "done", "failed", "interrupted"]
    host: str
    attempts: int
    started: float
    ended: float = 0.0
    reason: str = ""


def write_order(folder: Path, order: JobOrder) -> None:
    """Write the order of a job's folder."""
    atomic_write(folder / ORDER, msgspec.json.encode(order))


def write_state(folder: Path, state: JobState) -> None:
    """Write what the job says of itself."""
    atomic_write(folder / STATE, msgspec.json.encode(state))


def read_order(folder: Path) -> JobOrder | None:
    """The order, None where there is no readable one."""
    return _read(folder / ORDER, JobOrder)


def read_state(folder: Path) -> JobState | None:
    """What the job said last, None before it has started."""
    return _read(folder / STATE, JobState)


def _read(path: Path, kind: type[_T]) -> _T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError):
        return None
