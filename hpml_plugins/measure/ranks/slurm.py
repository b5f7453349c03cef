"""Ranks on several nodes of a Slurm job: srun starts torch's launcher once on each node."""

from __future__ import annotations

import os
import pickle
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hpml_plugins.errors import RankFailed, UsageError, describe
from hpml_plugins.measure.bench import Bench
from hpml_plugins.measure.ranks.group import Backend, Report, Team

ORDER = "order.pickle"
#: s between two looks at srun, and that it has to end the ranks on all nodes when their time is up.
LOOK, GRACE = 0.1, 10.0
#: What of Slurm's variables a step inside a step must not inherit: sizes and places of the outer one.
_KEPT = ("SLURM_CONF", "SLURM_JOB_ID", "SLURM_CLUSTER_NAME")


def nodes_here(environ: Mapping[str, str] = os.environ) -> int:
    """How many nodes this run may use: those of its Slurm job, else one."""
    told = environ.get("SLURM_JOB_NUM_NODES", "")
    return int(told) if told.isdigit() and shutil.which("srun") else 1


def run_on_nodes(
    bench: Bench,
    function: Callable[..., Any],
    count: int,
    nodes: int,
    args: tuple[Any, ...],
    *,
    backend: Backend,
    limit: float,
    environment: dict[str, str],
) -> list[Report]:
    """Run `function(rank, *args)` on `count` ranks, as many on each node; their reports, by rank.

    limit: s.  Raises UsageError when the nodes do not share the ranks evenly or the job has fewer, RankFailed when a
    rank left no report.
    """
    if count % nodes:
        raise UsageError(f"{count} ranks cannot be shared out evenly to {nodes} nodes")
    if (here := nodes_here()) < nodes:
        raise UsageError(f"{nodes} nodes are needed, this run has {here}; cluster.yaml: `nodes: {nodes}`")
    with tempfile.TemporaryDirectory(prefix=".hpml-ranks-", dir=_shared_folder()) as folder:
        team = Team(
            folder, count, backend, os.getpid(), bench.node, bench.params, bench.seed, bench.plan, limit,
            environment, nodes,
        )  # fmt: skip
        try:
            Path(folder, ORDER).write_bytes(pickle.dumps((team, function, args)))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise UsageError(f"ranks on other nodes need a function of a module: {describe(error)}") from error
        said = _run(_command(team, folder), limit)
        reports = [team.read(index) for index in range(count)]
    failed = sorted((report.at, index) for index, report in enumerate(reports) if report and report.kind != "ok")
    missing = [index for index, report in enumerate(reports) if report is None]
    if missing and not failed:
        raise RankFailed(f"rank {missing[0]} ended without a report: {said}")
    return [report or Report("failed", "ended without a report") for report in reports]


def _command(team: Team, folder: str) -> list[str]:
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    srun = ["srun", f"--jobid={os.environ['SLURM_JOB_ID']}", "--overlap", f"--nodes={team.nodes}"]
    srun += [f"--ntasks={team.nodes}", "--ntasks-per-node=1", "--kill-on-bad-exit=1"]
    launcher = [sys.executable, "-m", "torch.distributed.run", f"--nnodes={team.nodes}"]
    launcher += [f"--nproc-per-node={team.count // team.nodes}", "--max-restarts=0", "--rdzv-backend=c10d"]
    launcher += [f"--rdzv-endpoint={socket.gethostname()}:{port}", f"--rdzv-id={uuid.uuid4().hex}"]
    return [*srun, *launcher, "-m", "hpml_plugins.measure.ranks.multi_node_worker", folder]


def _run(command: list[str], limit: float) -> str:
    """Run srun until it ends; its last words. Raises RankFailed when the time is up."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_") or name in _KEPT}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT)
        patience = time.monotonic() + limit
        try:
            while process.poll() is None:
                if time.monotonic() > patience:
                    raise RankFailed(f"ranks on {command[3].partition('=')[2]} nodes timed out after {limit:.3g} s")
                time.sleep(LOOK)
        finally:
            if process.poll() is None:
                process.terminate()  # srun ends its ranks, here and elsewhere
                try:
                    process.wait(GRACE)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        log.seek(0)
        text = log.read().decode(errors="replace")
    sys.stderr.write(text)
    lines = [line for line in text.splitlines() if line.strip()]
    return f"srun ended with status {process.returncode}" + (f": {lines[-1].strip()}" if lines else "")


def _shared_folder() -> str:
    """A folder that all nodes see: the job's, or that of the results."""
    for name in ("SUBMITIT_FOLDER", "HPML_RESULTS"):  # the latter is set by asv's environment of ours
        if (path := os.environ.get(name)) and Path(path).is_dir():
            return path
    return str(Path.cwd())
