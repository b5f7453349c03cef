"""Where a project's targets and jobs are."""

from __future__ import annotations

from pathlib import Path

from hpml_plugins.tools.cluster.reader import DEFAULT_PATH, Cluster, here, read_cluster


def find_cluster(project: Path, file: Path | None = None) -> Cluster:
    """The targets of the named file, of the project's cluster.yaml, or this machine where there is neither."""
    path = file or project / DEFAULT_PATH
    if file or path.exists():
        return read_cluster(path, project)
    from hpml_plugins.node import detect_node, machine_name

    return here(project, machine_name(detect_node()))
