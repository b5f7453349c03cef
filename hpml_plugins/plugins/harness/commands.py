"""How long the command that everybody types first takes to answer."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from hpml_plugins import Bench, Benchmark, Metric, Samples

#: Declares no benchmark of its own beyond one: what is timed is starting, reading and loading.
_PLUGIN = """
from hpml_plugins import Benchmark, Metric, hookimpl

def measure(bench, *, size):
    return {"zero": 0.0}

@hookimpl
def hpml_benchmarks():
    return [Benchmark(__name__, measure, [Metric("zero", "s", "lower")], grid={"size": [1, 2, 3]})]
"""


def measure(bench: Bench, *, plugins: int) -> dict[str, Samples]:
    """Time of `hpml list` over so many small plugins, from starting the process to its end."""
    with tempfile.TemporaryDirectory() as folder:
        lines = ["version: 1", "plugins:"]
        for number in range(plugins):
            Path(folder, f"p{number}.py").write_text(_PLUGIN)
            lines.append(f"  - {{name: p{number}, path: p{number}.py}}")
        Path(folder, "registry.yaml").write_text("\n".join(lines))
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

        def step() -> None:
            command = [sys.executable, "-m", "hpml_plugins", "list"]
            subprocess.run(command, cwd=folder, env=env, check=True, capture_output=True)

        return {"time": bench.time(step, device="cpu", budget=5)}


LIST = Benchmark(
    "harness_list",
    measure,
    [Metric("time", "s", "lower", "whole process")],
    grid={"plugins": [10, 200]},
    version="2",  # 1: ten plugins, no parameter
    description="Time of `hpml list` over small plugins.",
)
