"""Programs that start ranks: mpirun on this node, so that they may use MPI, and srun on the nodes
of a Slurm job."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

from hpml_plugins.measure.ranks.group import RankGroup

#: Settings that make Open MPI (4; and 5, by PRRTE) start on this machine only, with as many
#: ranks as requested, also as root, and without binding ranks to cores. Other MPIs ignore them.
#: Variables set by the caller are kept.
MPI_SETTINGS = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
}
#: Variables of a job: mpirun would start its ranks through Slurm, or consider itself a rank.
_OF_THE_JOB = ("SLURM_", "OMPI_COMM_WORLD_", "PMIX_", "PMI_")
#: Slurm's variables that a nested step inherits, without sizes and places of the enclosing step.
_KEPT = ("SLURM_CONF", "SLURM_JOB_ID", "SLURM_CLUSTER_NAME")


def why_no_mpi() -> str:
    """What this machine lacks to start ranks with mpirun; empty if nothing."""
    if not shutil.which("mpirun"):
        return "needs mpirun, which is not on this node (on Debian: apt-get install openmpi-bin)"
    if not importlib.util.find_spec("mpi4py"):
        return "needs module mpi4py, which is not installed (pip install mpi4py)"
    return ""


def command(group: RankGroup) -> list[str]:
    """The command that starts the ranks; the worker's command follows. srun starts torch's launcher
    once per node."""
    if group.nodes == 1:
        return ["mpirun", "-np", str(group.count), sys.executable]
    import socket
    import uuid

    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    srun = [
        "srun",
        f"--jobid={os.environ['SLURM_JOB_ID']}",
        "--overlap",
        f"--nodes={group.nodes}",
    ]
    srun += [f"--ntasks={group.nodes}", "--ntasks-per-node=1", "--kill-on-bad-exit=1"]
    launcher = [sys.executable, "-m", "torch.distributed.run", f"--nnodes={group.nodes}"]
    launcher += [
        f"--nproc-per-node={group.per_node}",
        "--max-restarts=0",
        "--rdzv-backend=c10d",
    ]
    launcher += [
        f"--rdzv-endpoint={socket.gethostname()}:{port}",
        f"--rdzv-id={uuid.uuid4().hex}",
    ]
    return [*srun, *launcher]


def environment(group: RankGroup) -> dict[str, str]:
    """The variables for the program; its ranks find the same modules as this process."""
    own = os.environ.items()
    if group.nodes == 1:
        variables = MPI_SETTINGS | {
            name: value for name, value in own if not name.startswith(_OF_THE_JOB)
        }
    else:
        variables = {
            name: value
            for name, value in own
            if not name.startswith("SLURM_") or name in _KEPT
        }
    path = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)
    # `-m` would search the current folder first
    return {**variables, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}


def shared_folder() -> str:
    """A folder visible to all nodes: that of the job, or that of the results."""
    # HPML_RESULTS is set by our asv environment
    for name in ("SUBMITIT_FOLDER", "HPML_RESULTS"):
        if (path := os.environ.get(name)) and Path(path).is_dir():
            return path
    return str(Path.cwd())
