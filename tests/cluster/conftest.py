from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import toy_slurm
from asv_project import Project, make_project
from support import unavailable

from hpml_plugins.model.record import Record
from hpml_plugins.records import read

__all__ = ["make_project"]

PLUGIN = """
    import os
    import time
    from hpml_plugins import Benchmark, Metric, hookimpl

    def measure(bench, *, number):
        time.sleep(float(os.environ.get("TOY_SECONDS", "0.3")))
        return {"square": number ** 2}

    @hookimpl
    def hpml_benchmarks():
        grid = {"number": list(range(12))}
        return [Benchmark("slow", measure, [Metric("square", "1", "lower")], grid=grid)]
"""


@dataclass
class Site:
    """A project whose cluster.yaml names a machine of each node of a Slurm that runs here."""

    project: Project
    env: dict[str, str]

    def hpml(self, *args: str) -> subprocess.CompletedProcess[str]:
        """The command there, with the network: Slurm talks over it."""
        return subprocess.run(
            [sys.executable, "-m", "hpml_plugins", *args],
            cwd=self.project.path,
            env={**os.environ, "HOME": str(self.project.home), "COLUMNS": "200", **self.env},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def cluster(self, text: str) -> None:
        (self.project.path / "cluster.yaml").write_text(textwrap.dedent(text).lstrip("\n"))

    def records(self, machine: str) -> list[Record]:
        files = self.project.path.glob(f"results/{machine}/records/*.jsonl")
        return [record for path in files for record in read(path)]


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[toy_slurm.Slurm]:
    """A running Slurm with the nodes n1 and n2."""
    if lacking := toy_slurm.missing():
        unavailable(
            f"THE TESTS ON A REAL SLURM DID NOT RUN, for want of {', '.join(lacking)}: apt-get install slurm-wlm"
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
    toy_slurm.wait_for(lambda: slurm.states() == ["idle", "idle"], "idle nodes", slurm.log)
    site.env.update(slurm.env)
    site.cluster(
        """
        version: 1
        targets:
          - {name: first, partition: a, hours: 1}
          - {name: second, constraint: fn2, hours: 1, machine: two}
        """
    )
    return site
