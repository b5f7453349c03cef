"""How long it takes to plan a whole site."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from hpml_plugins import Bench, Benchmark, Metric, Samples

TARGETS, COMMITS = 64, 100


def measure(bench: Bench) -> dict[str, Samples]:
    """Time of `hpml submit --dry-run --commits ALL`, whole process: all scripts written, nothing submitted."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        targets = "\n".join(f"  - {{name: t{number}, partition: p, gpus: 8}}" for number in range(TARGETS))
        (root / "cluster.yaml").write_text(f"version: 1\ntargets:\n{targets}\n")
        (root / "registry.yaml").write_text("version: 1\nplugins: []\n")
        (root / "asv.conf.json").write_text('{"version": 1, "repo": ".", "branches": ["main"], "project": "p"}')
        who = "committer A <a@example.invalid> {0} +0000\ndata 1\n.\n\n"
        history = "".join("commit refs/heads/main\n" + who.format(number) for number in range(COMMITS))
        subprocess.run(["git", "init", "-q", "."], cwd=root, check=True)
        subprocess.run(["git", "fast-import", "--quiet"], cwd=root, check=True, input=history.encode())
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, "-m", "hpml_plugins", "submit", "--dry-run", "--commits", "ALL"]
        printed: list[str] = []

        def step() -> None:
            done = subprocess.run(command, cwd=root, env=env, check=True, capture_output=True, text=True)
            printed[:] = [done.stdout]

        time = bench.time(step, device="cpu", budget=10)
        scripts, commits = printed[0].count("#!/bin/bash"), printed[0].count(f", {COMMITS} commits")
        bench.check(scripts == commits == TARGETS, f"{scripts} scripts, {commits} of them for {COMMITS} commits")
        return {"time": time}


PLAN = Benchmark(
    "harness_plan",
    measure,
    [Metric("time", "s", "lower", "whole process")],
    timeout=120,
    description=f"Time to plan {TARGETS} targets × {COMMITS} commits and to write their sbatch scripts.",
    rounds=1,
)
