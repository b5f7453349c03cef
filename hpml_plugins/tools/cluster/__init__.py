"""All nodes of all GPU types with one command: targets of cluster.yaml are planned, submitted to Slurm, watched.

The engine is Slurm, and submitit hands it the jobs. Without Slurm, and without a cluster.yaml, the same command
measures here.
"""
