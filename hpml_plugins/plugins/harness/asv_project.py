"""A project made on the spot, for timing `asv run` from outside: points that use torch and do nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import hpml_plugins
from hpml_plugins import HpmlError

_PLUGIN = """
from hpml_plugins import Benchmark, Metric, Requires, hookimpl

def measure(bench, *, number):
    import torch, torchvision
    torch.zeros(1, device="cuda" if torch.cuda.is_available() else "cpu")
    return {"zero": 0.0 * number}

@hookimpl
def hpml_benchmarks():
    requires = Requires(modules=("torch", "torchvision"))
    grid = {"number": list(range(POINTS))}
    return [Benchmark("empty", measure, [Metric("zero", "s", "lower")], grid=grid, requires=requires)]
"""
_PYPROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "hpml-plugins"
version = "0"
[tool.setuptools.packages.find]
include = ["hpml_plugins*"]
"""
_SUITE = """
from pathlib import Path
from hpml_plugins.suite import track_functions as _track_functions
globals().update(_track_functions(Path(__file__).resolve().parent.parent))
"""
_CONF = {
    "version": 1,
    "project": "empty",
    "repo": ".",
    "branches": ["main"],
    "environment_type": "node",
    "plugins": [".hpml_plugins.asv"],
    "env_dir": "env",
}


@dataclass(frozen=True)
class Run:
    """One `asv run`. seconds: wall time of the command.  measured: how many points have a result."""

    seconds: float
    measured: int


def run_asv(points: int, launch: str) -> Run:
    """Time a second `asv run` of a fresh project (the first builds the commit). Raises HpmlError when it fails."""
    with tempfile.TemporaryDirectory(prefix="hpml-asv-") as folder:
        project = Path(folder)
        _write(project, points)
        command = [sys.executable, "-m", "asv", "run", "--launch-method", launch]
        env = {name: value for name, value in os.environ.items() if not name.startswith(("ASV", "HPML"))}
        env |= {"HOME": folder, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONSAFEPATH": "1"}
        env["ASV_PYTHONPATH"] = os.environ.get("ASV_PYTHONPATH", "")
        _run([*command, "--bench", "just-discover"], project, env)
        started = time.perf_counter()
        _run(command, project, env)
        seconds = time.perf_counter() - started
        return Run(seconds, _count(project))


def _write(project: Path, points: int) -> None:
    package = Path(hpml_plugins.__file__).parent
    shutil.copytree(package, project / "hpml_plugins", ignore=shutil.ignore_patterns("__pycache__"))
    files = {
        "asv.conf.json": json.dumps(_CONF),
        "pyproject.toml": _PYPROJECT,
        "benchmarks/__init__.py": _SUITE,
        "empty.py": _PLUGIN.replace("POINTS", str(points)),
        "registry.yaml": "version: 1\nplugins:\n  - {name: empty, path: empty.py}\n",
        ".gitignore": "env/\nresults/\n",
    }
    for name, text in files.items():
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(text)
    who = ["-c", "user.name=harness", "-c", "user.email=harness@example.invalid", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], [*who, "commit", "-qm", "empty"]):
        _run(["git", *words], project, dict(os.environ))


def _run(command: list[str], folder: Path, env: dict[str, str]) -> None:
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stdout + done.stderr).strip().splitlines()[-3:]
        raise HpmlError(f"{' '.join(command[:4])} ended with status {done.returncode}: {' / '.join(last)}")


def _count(project: Path) -> int:
    (file,) = project.glob("results/*/*-node-*.json")
    result = json.loads(file.read_text())
    row = dict(zip(result["result_columns"], result["results"]["empty.track_zero"], strict=False))
    return sum(value == 0.0 for value in row["result"])
