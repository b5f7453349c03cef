"""Handing planned jobs to Slurm, or running them here one after the other."""

from __future__ import annotations

import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hpml_plugins.errors import HpmlError, UsageError, one_line
from hpml_plugins.store import atomic_write
from hpml_plugins.tools.cluster import executors
from hpml_plugins.tools.cluster.plan import Order, Planned
from hpml_plugins.tools.cluster.state import COMMITS, JobOrder, write_order

Say = Callable[[str], None]


def submit(planned: Planned, order: Order, jobs: Path) -> tuple[Path, Any]:
    """Submit one job. Returns its folder and submitit's job. A refusal of Slurm's is kept in the folder and raised."""
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    target = planned.target
    make = executors.slurm_executor if target.executor == "slurm" else executors.local_executor
    folder = new_folder(jobs, target.name)
    said = JobOrder(
        target.name, target.machine_name, target.executor, len(planned.commits), time.time(), socket.gethostname()
    )
    folder.mkdir(parents=True)
    try:
        executor = make(target, order, folder)
    except HpmlError:
        folder.rmdir()
        raise
    atomic_write(folder / COMMITS, "".join(f"{commit}\n" for commit in planned.commits).encode())
    write_order(folder, said)
    if target.executor == "local":
        # Started from a shell's background, a job would inherit that SIGINT is ignored, and could not be cancelled.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        job = executor.submit(executors.asv_run(target, order, folder))
    except (FailedJobError, FailedSubmissionError, OSError) as error:
        problem = one_line(str(error))
        write_order(folder, _but(said, problem=problem))
        raise UsageError(f"target {target.name!r} was not taken: {problem}") from None
    write_order(folder, _but(said, id=job.job_id))
    return folder, job


def wait_here(job: Any) -> None:
    """Wait for a local job and show its log meanwhile. An interrupt ends it."""
    shown = [0, 0]
    try:
        while True:
            done = job.done()
            for place, (path, stream) in enumerate(((job.paths.stdout, sys.stdout), (job.paths.stderr, sys.stderr))):
                shown[place] = _show(path, stream, shown[place])
            if done:
                return
            time.sleep(0.1)
    except KeyboardInterrupt:
        job.cancel(check=False)
        raise


def new_folder(jobs: Path, target: str) -> Path:
    """The name of a folder that is not there yet: when and what."""
    stem = f"{time.strftime('%Y%m%d-%H%M%S')}-{target}"
    folder, number = jobs / stem, 1
    while folder.exists():
        number += 1
        folder = jobs / f"{stem}-{number}"
    return folder


def _show(path: Path, stream: Any, start: int) -> int:
    if not path.exists():
        return start
    with path.open("rb") as file:
        file.seek(start)
        text = file.read()
    stream.write(text.decode(errors="replace"))
    stream.flush()
    return start + len(text)


def _but(order: JobOrder, **changes: Any) -> JobOrder:
    import msgspec

    return msgspec.structs.replace(order, **changes)
