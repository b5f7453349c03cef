"""srun as the launcher of ranks on several nodes of a Slurm job: it starts torch's launcher once on each node."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path

from hpml_plugins.errors import UsageError
from hpml_plugins.measure.ranks.group import Group

#: s that srun has to end the ranks on all nodes when their time is up.
GRACE = 10.0
#: What of Slurm's variables a step inside a step must not inherit: sizes and places of the enclosing one.
_KEPT = ("SLURM_CONF", "SLURM_JOB_ID", "SLURM_CLUSTER_NAME")


def nodes_here(environ: Mapping[str, str] = os.environ) -> int:
    """How many nodes this run may use: those of its Slurm job, else one."""
    count = environ.get("SLURM_JOB_NUM_NODES", "")
    return int(count) if count.isdigit() and shutil.which("srun") else 1


def check(count: int, nodes: int) -> None:
    """Raises UsageError when the nodes do not share the ranks evenly, or the job has fewer."""
    if count % nodes:
        raise UsageError(f"{count} ranks cannot be shared out evenly to {nodes} nodes")
    if (here := nodes_here()) < nodes:
        raise UsageError(f"{nodes} nodes are needed, this run has {here}; cluster.yaml: `nodes: {nodes}`")


def command(group: Group) -> list[str]:
    """Starts the ranks on their nodes; the worker's own command follows."""
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    srun = ["srun", f"--jobid={os.environ['SLURM_JOB_ID']}", "--overlap", f"--nodes={group.nodes}"]
    srun += [f"--ntasks={group.nodes}", "--ntasks-per-node=1", "--kill-on-bad-exit=1"]
    launcher = [sys.executable, "-m", "torch.distributed.run", f"--nnodes={group.nodes}"]
    launcher += [f"--nproc-per-node={group.per_node}", "--max-restarts=0", "--rdzv-backend=c10d"]
    launcher += [f"--rdzv-endpoint={socket.gethostname()}:{port}", f"--rdzv-id={uuid.uuid4().hex}"]
    return [*srun, *launcher]


def environment() -> dict[str, str]:
    """The variables that srun is started with."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SLURM_") or name in _KEPT}


def shared_folder() -> str:
    """A folder that all nodes see: the job's, or that of the results."""
    for name in ("SUBMITIT_FOLDER", "HPML_RESULTS"):  # the latter is set by asv's environment of ours
        if (path := os.environ.get(name)) and Path(path).is_dir():
            return path
    return str(Path.cwd())
