"""Ranks that mpirun starts, so that what they run may talk over MPI (mpi4py) beside torch.distributed.

As a module it is one such rank: `mpirun … python -m hpml_plugins.measure.ranks.mpi FOLDER`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hpml_plugins.errors import RankFailed, Skipped, UsageError, describe
from hpml_plugins.isolation.parent_death import end_with_parent
from hpml_plugins.isolation.process import describe_exit
from hpml_plugins.measure.bench import Bench
from hpml_plugins.measure.ranks.group import Backend, Report, Team
from hpml_plugins.measure.ranks.stacks import where
from hpml_plugins.measure.ranks.worker import live

ORDER, PROGRESS = "order.pickle", "progress.json"
#: s between two looks at mpirun, and that it has to end its ranks when their time is up.
LOOK, GRACE = 0.1, 5.0
#: How Open MPI (4; and 5, by PRRTE) is told to start on this machine alone, as many ranks as asked for, also as root,
#: and to leave the choice of cores to them. Other MPIs do not look at these. What the caller has set stands.
SETTINGS = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
}
#: A job's own variables: mpirun would start its ranks through Slurm, or take itself for a rank.
_OUTER = ("SLURM_", "OMPI_COMM_WORLD_", "PMIX_", "PMI_")
#: Where an MPI says which rank a process is: Open MPI; MPICH and its kin.
_RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK")
_DIED = re.compile(r"rank (\d+) .*?exited on\s+signal (\d+)", re.DOTALL)


def why_no_mpi() -> str:
    """What this machine lacks to start ranks by mpirun; empty where it lacks nothing."""
    if not shutil.which("mpirun"):
        return "needs mpirun, which is not on this node (on Debian: apt-get install openmpi-bin)"
    if not importlib.util.find_spec("mpi4py"):
        return "needs module mpi4py, which is not installed (pip install mpi4py)"
    return ""


def run_by_mpirun(
    bench: Bench,
    function: Callable[..., Any],
    count: int,
    args: tuple[Any, ...],
    *,
    backend: Backend,
    limit: float,
    environment: dict[str, str],
) -> list[Report]:
    """Run `function(rank, *args)` on `count` ranks that mpirun starts on this machine; their reports, by rank.

    limit: s.  Raises Skipped where there is no MPI, UsageError for a function that is not a module's, RankFailed when a
    rank left no report or the time is up.
    """
    if reason := why_no_mpi():
        raise Skipped(reason)
    with tempfile.TemporaryDirectory(prefix="hpml-ranks-") as folder:
        team = Team(
            folder, count, backend, 0, bench.node, bench.params, bench.seed, bench.plan, limit, environment
        )  # fmt: skip
        try:
            Path(folder, ORDER).write_bytes(pickle.dumps((team, function, args)))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise UsageError(f"ranks that mpirun starts need a function of a module: {describe(error)}") from error
        said = _run(["mpirun", "-np", str(count), sys.executable, "-m", __name__, folder], team, bench, limit)
        reports = [team.read(index) for index in range(count)]
    if not any(report and report.kind != "ok" for report in reports):
        for index, report in enumerate(reports):
            if report is None:
                raise RankFailed(_how_it_ended(index, said))
    return [report or Report("failed", "ended without a report") for report in reports]


def _run(command: list[str], team: Team, bench: Bench, limit: float) -> str:
    """Run mpirun until it ends; what it and its ranks printed. Raises RankFailed when the time is up."""
    deadline = time.monotonic() + limit
    parent = os.getpid()
    told = ""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command,
            env=_environment(),
            stdin=subprocess.DEVNULL,  # mpirun would read what is meant for others
            stdout=log,
            stderr=subprocess.STDOUT,
            preexec_fn=lambda: end_with_parent(parent),
        )
        try:
            while process.poll() is None:
                told = _tell(bench, Path(team.folder, PROGRESS), told)
                if time.monotonic() > deadline:
                    pids = {index: pid for index in range(team.count) if (pid := _pid(team, index))}
                    raise RankFailed(f"ranks timed out after {limit:.3g} s: {where(team, pids)}")
                time.sleep(LOOK)
        finally:
            _end(process, team)
        log.seek(0)
        text = log.read().decode(errors="replace")
    sys.stderr.write(text)
    return text


def _end(process: subprocess.Popen[bytes], team: Team) -> None:
    """End mpirun, and those of its ranks that it leaves behind."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for index in range(team.count):
        if (pid := _pid(team, index)) and _is_ours(pid, team):
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def _pid(team: Team, index: int) -> int:
    """Of the process that a rank is; 0 before it is one."""
    try:
        return int(team.pid_of(index).read_text())
    except (OSError, ValueError):
        return 0


def _is_ours(pid: int, team: Team) -> bool:
    """Whether that process is still the rank: a number may have gone to another."""
    try:
        return os.fsencode(team.folder) in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _tell(bench: Bench, path: Path, told: str) -> str:
    with suppress(OSError):
        text = path.read_text()
        if text != told:
            bench.progress(*json.loads(text))
        return text
    return told


def _environment() -> Mapping[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OUTER)}
    return {**SETTINGS, **kept, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def _how_it_ended(index: int, said: str) -> str:
    """What mpirun says of the rank that took the others down; else of this one, which left no report."""
    if died := _DIED.search(said):
        return f"rank {died[1]} {describe_exit(-int(died[2]))}"
    lines = [line.strip() for line in said.splitlines() if line.strip(" -=")]
    return f"rank {index} ended without a report" + (f": {lines[-1]}" if lines else "")


class _Whiteboard:
    """What rank 0 says of its progress, in a file that the starting process looks at."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def send(self, told: object) -> None:
        """Put it there, whole."""
        partial = self._path.with_suffix(".partial")
        partial.write_text(json.dumps(told))
        partial.rename(self._path)


def main(folder: str) -> None:
    """Take the place that mpirun gave, run the order. A rank that failed ends at once, and mpirun the others."""
    index = int(next(os.environ[name] for name in _RANKS if name in os.environ))
    team, function, args = pickle.loads(Path(folder, ORDER).read_bytes())
    team.pid_of(index).write_text(str(os.getpid()))
    signal.alarm(int(team.timeout) + 60)  # mpirun killed outright takes nobody with it
    try:
        live(index, team, function, args, _Whiteboard(Path(folder, PROGRESS)))
    except BaseException:
        # The others wait in their collectives: MPI's own end, which Python would call, would wait for them.
        sys.stderr.flush()
        os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1])
