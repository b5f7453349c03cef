"""All nodes of all GPU types with one command: jobs for the targets of cluster.yaml, submitted to
Slurm by submitit.

Without Slurm, and without a cluster.yaml, the same command measures here.
"""

from hpml_plugins.tools.cluster.config import Cluster

__all__ = ["Cluster"]
