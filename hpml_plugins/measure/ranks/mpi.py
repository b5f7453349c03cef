"""mpirun as the launcher of ranks, so that what they run may use MPI (mpi4py) in addition to torch.distributed."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys

from hpml_plugins.measure.ranks.group import Group

#: s that mpirun has to end its ranks when their time is up.
GRACE = 5.0
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
_OF_THE_JOB = ("SLURM_", "OMPI_COMM_WORLD_", "PMIX_", "PMI_")


def why_no_mpi() -> str:
    """What this machine lacks to start ranks by mpirun; empty where it lacks nothing."""
    if not shutil.which("mpirun"):
        return "needs mpirun, which is not on this node (on Debian: apt-get install openmpi-bin)"
    if not importlib.util.find_spec("mpi4py"):
        return "needs module mpi4py, which is not installed (pip install mpi4py)"
    return ""


def command(group: Group) -> list[str]:
    """Starts the ranks on this machine; the worker's own command follows."""
    return ["mpirun", "-np", str(group.count), sys.executable]


def environment() -> dict[str, str]:
    """The variables that mpirun is started with."""
    return SETTINGS | {name: value for name, value in os.environ.items() if not name.startswith(_OF_THE_JOB)}
