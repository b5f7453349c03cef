"""How long the command that everybody types first takes to answer."""

from __future__ import annotations

import os
import pkgutil
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from hpml_plugins import Bench, Benchmark, Metric, Requires, Samples

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
    rounds=1,
)


def measure_startup(bench: Bench) -> dict[str, Samples]:
    """CPU time of `hpml list` with the built-in plugins, beside that of importing the libraries it is made with.

    Both run alternately, with byte code cached by the first, uncounted run.  ratio: of runs that followed one another.
    """
    names = sorted(each.name for each in pkgutil.iter_modules([str(Path(__file__).parents[1])]))
    lines = [f"  - {{name: {name}, module: hpml_plugins.plugins.{name}}}" for name in names]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "registry.yaml").write_text("\n".join(["version: 1", "plugins:", *lines]))
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONPYCACHEPREFIX": folder}
        env.pop("PYTHONDONTWRITEBYTECODE", None)

        def cpu(*arguments: str) -> float:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, *arguments], cwd=folder, env=env, check=True, capture_output=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

        runs = [
            (cpu("-m", "hpml_plugins", "list"), cpu("-c", "import click, rich.table, msgspec, yaml")) for _ in range(11)
        ]
    commands, libraries = (Samples.of(values, "s") for values in zip(*runs[1:], strict=True))
    return {"list": commands, "baseline": libraries, "ratio": commands / libraries}


STARTUP = Benchmark(
    "harness_startup",
    measure_startup,
    [
        Metric("list", "s", "lower", "CPU time of `hpml list`"),
        Metric("baseline", "s", "lower", "CPU time of importing click, rich.table, msgspec and yaml"),
        Metric("ratio", "1", "lower", "list / baseline; the target is 2"),
    ],
    requires=Requires(modules=("rich",)),
    description="CPU time of `hpml list` beside that of importing the libraries it is made with.",
    rounds=1,
)
