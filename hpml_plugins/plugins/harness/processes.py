"""Runs commands for a benchmark, and creates the projects that they need."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpml_plugins import HpmlError

STARTED = 1_700_000_000
DAY = 86_400
_PLUGIN = """
from hpml_plugins import Benchmark, Metric, Requires, hookimpl

def measure(bench, *, number):
    import torch, torchvision
    torch.zeros(1, device="cuda" if torch.cuda.is_available() else "cpu")
    return {"zero": 0.0 * number}

@hookimpl
def hpml_benchmarks():
    metrics, grid = [Metric("zero", "s", "lower")], {"number": list(range(POINTS))}
    return [Benchmark("NAME", measure, metrics, grid=grid, requires=Requires(modules=MODULES))]
"""
_LEFT_OUT = ("ASV", "HPML", "PYTHONDONTWRITEBYTECODE")


@dataclass(frozen=True)
class Run:
    """A successful command. seconds: wall time.  cpu: CPU time of all its processes, s."""

    seconds: float
    cpu: float
    output: str


def run(command: Sequence[str], folder: Path, **environment: str) -> Run:
    """Run a command. Raises HpmlError with its last lines if it fails.

    environment: further variables; those of asv and of this run are removed. Python finds the
    modules of this process.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith(_LEFT_OUT)}
    env |= {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "PYTHONSAFEPATH": "1",
        **environment,
    }
    before, started = _cpu(), time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    seconds, cpu = time.perf_counter() - started, _cpu() - before
    if done.returncode:
        last = (done.stdout + done.stderr).strip().splitlines()[-3:]
        raise HpmlError(
            f"{' '.join(command[:4])} ended with status {done.returncode}: {' / '.join(last)}"
        )
    return Run(seconds, cpu, done.stdout + done.stderr)


def run_python(folder: Path, *arguments: str, **environment: str) -> Run:
    """Run this Python with these arguments, as `run` does."""
    return run([sys.executable, *arguments], folder, **environment)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def write_plugin(file: Path, points: int, modules: Sequence[str] = ()) -> None:
    """Write a plugin with an empty benchmark, named like the file, with `points` points, that needs
    these modules."""
    text = (
        _PLUGIN.replace("NAME", file.stem)
        .replace("POINTS", str(points))
        .replace("MODULES", repr(tuple(modules)))
    )
    file.write_text(text)


def write_registry(project: Path, *plugins: str) -> None:
    """Write the registry.yaml of these plugins, each the inside of a YAML mapping: "name: p, path:
    p.py"."""
    entries = ", ".join(f"{{{plugin}}}" for plugin in plugins)
    (project / "registry.yaml").write_text(f"version: 1\nplugins: [{entries}]\n")


def write_configuration(project: Path, file: str = "asv.conf.json", **settings: Any) -> None:
    """Write the asv configuration of a project, with further settings."""
    settings = {"version": 1, "project": "made", "repo": ".", "branches": ["main"], **settings}
    (project / file).write_text(json.dumps(settings))


def make_commits(project: Path, count: int) -> list[str]:
    """Make a git repository of the folder's contents, with `count` commits a day apart; returns
    their hashes, oldest first."""
    run(["git", "init", "-q", "-b", "main"], project)
    run(["git", "add", "-A"], project)
    who = [
        "-c",
        "user.name=made",
        "-c",
        "user.email=made@example.invalid",
        "-c",
        "commit.gpgsign=false",
    ]
    for place in range(count):
        date = f"{STARTED + place * DAY} +0000"
        dates = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
        run(["git", *who, "commit", "--allow-empty", "-qm", f"change {place}"], project, **dates)
    return run(["git", "rev-list", "--reverse", "main"], project).output.split()
