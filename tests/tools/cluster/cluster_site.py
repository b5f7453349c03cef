"""A project to submit from."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass

from asv_project import Project
from support import PATIENCE

from hpml_plugins.model.record import Record
from hpml_plugins.store import read_file

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
            env={
                **os.environ,
                "HOME": str(self.project.home),
                "COLUMNS": "200",
                **self.env,
            },
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def cluster(self, text: str) -> None:
        (self.project.path / "cluster.yaml").write_text(textwrap.dedent(text).lstrip("\n"))

    def records(self, machine: str) -> list[Record]:
        files = self.project.path.glob(f"results/{machine}/records/*.jsonl")
        return [record for path in files for record in read_file(path)]
