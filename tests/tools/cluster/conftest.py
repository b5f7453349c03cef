from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import toy_slurm
from asv_project import Project, make_project
from cluster_site import PLUGIN, Site
from support import unavailable, wait_for

__all__ = ["make_project"]


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[toy_slurm.Slurm]:
    """A running Slurm with the nodes n1 and n2."""
    if lacking := toy_slurm.missing():
        unavailable(
            f"THE TESTS ON A REAL SLURM DID NOT RUN, for want of {', '.join(lacking)}: apt-get"
            " install slurm-wlm"
        )
    cluster = toy_slurm.Slurm(tmp_path_factory.mktemp("slurm"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def site(make_project: Callable[[str], Project]) -> Site:
    """A project with twelve points that take a while, and no Slurm."""
    project = make_project("version: 1\nplugins:\n  - {name: slow, path: slow.py}\n")
    project.write("slow.py", PLUGIN)
    project.commit("slow")
    return Site(project, {})


@pytest.fixture
def slurm_site(site: Site, slurm: toy_slurm.Slurm) -> Site:
    """The same with a target for each node of the Slurm."""
    wait_for(lambda: slurm.states() == ["idle", "idle"], "idle nodes", slurm.log)
    site.env.update(slurm.env)
    site.cluster("""
        version: 1
        targets:
          - {name: first, partition: a, hours: 1}
          - {name: second, constraint: fn2, hours: 1, machine: two}
        """)
    return site
