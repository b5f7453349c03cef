"""A small project of its own, with a history: the real package, a toy registry, three commits."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from repositories import commit_all, make_repository
from support import PATIENCE, ROOT, TOY

#: Eight points, the third of which always fails; each takes a tenth of a second.
EIGHT_POINTS = """
    import os
    import time
    from hpml_plugins import Benchmark, Metric, hookimpl

    def measure(bench, *, number):
        bench.progress("asleep", 0.25)
        time.sleep(float(os.environ.get("SLOW_SECONDS", "0.1")))
        if number == 3:
            raise ValueError("always")
        return {"square": number ** 2, "cube": number ** 3}

    METRICS = [Metric("square", "1", "lower"), Metric("cube", "1", "lower")]

    @hookimpl
    def hpml_benchmarks():
        return [Benchmark("slow", measure, METRICS, grid={"number": list(range(1, 9))})]
"""
#: What asv's file then says of slow.track_square.
SQUARES = [1.0, 4.0, None, 16.0, 25.0, 36.0, 49.0, 64.0]
#: Compiled modules are copied too, or each project would compile the package anew; not those that
#: another process is just writing.
IGNORED = shutil.ignore_patterns("*.egg-info", "*.pyc.*")


@dataclass(frozen=True)
class Project:
    """A checkout in which asv can be run as a user runs it."""

    path: Path
    home: Path

    def run(self, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command there, without network where this machine lets us take it away."""
        return subprocess.run(
            [*no_network(), *command],
            cwd=self.path,
            env={
                **os.environ,
                "HOME": str(self.home),
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                **env,
            },
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def asv(self, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run asv there, with this interpreter."""
        return self.run(sys.executable, "-m", "asv", *args, **env)

    def write(self, name: str, text: str) -> None:
        """Write a dedented file."""
        (self.path / name).write_text(textwrap.dedent(text).lstrip("\n"))

    def commit(self, message: str) -> str:
        """Commit everything and return the hash."""
        return commit_all(self.path, message)


def no_network() -> list[str]:
    """`unshare -n`, which gives a process no network at all, where it is allowed."""
    tried = (
        subprocess.run(["unshare", "-rn", "true"], capture_output=True, check=False)
        if shutil.which("unshare")
        else None
    )
    return ["unshare", "-rn"] if tried and tried.returncode == 0 else []


@pytest.fixture(scope="session")
def make_project(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Project]:
    """Make a project with this registry text and one commit."""

    def make(registry: str) -> Project:
        path = tmp_path_factory.mktemp("project")
        shutil.copytree(ROOT / "hpml_plugins", path / "hpml_plugins", ignore=IGNORED)
        shutil.copytree(ROOT / "benchmarks", path / "benchmarks", ignore=IGNORED)
        for name in ("pyproject.toml", "asv.conf.json", ".gitignore", "README.md"):
            shutil.copy(ROOT / name, path / name)
        project = Project(path, tmp_path_factory.mktemp("home"))
        project.write("registry.yaml", registry)
        project.write("toy.py", TOY)
        make_repository(path, "first")
        return project

    return make


def of_eight_points(make_project: Callable[[str], Project]) -> Project:
    """A project of EIGHT_POINTS, its commit built, without results."""
    project = make_project("version: 1\nplugins:\n  - {name: slow, path: slow.py}\n")
    project.write("slow.py", EIGHT_POINTS)
    project.commit("slow")
    assert project.asv("run", "--bench", "just-discover").returncode == 0
    return project
