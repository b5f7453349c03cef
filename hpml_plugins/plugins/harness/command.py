"""The benchmarks of the command line: `harness_list`, `harness_startup` and `harness_plan`."""

from __future__ import annotations

import pkgutil
import tempfile
from pathlib import Path

from hpml_plugins import Bench, Benchmark, Metric, Requires, Samples
from hpml_plugins.plugins.harness import processes

TARGETS, COMMITS = 64, 100


def measure_list(bench: Bench, *, plugins: int) -> dict[str, Samples]:
    """Time of `hpml list` with a number of small plugins, from the start of the process to its
    end."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(plugins):
            processes.write_plugin(folder / f"p{number}.py", points=3)
        processes.write_registry(
            folder, *(f"name: p{number}, path: p{number}.py" for number in range(plugins))
        )
        return {
            "time": bench.time(
                lambda: processes.run_python(folder, "-m", "hpml_plugins", "list"),
                device="cpu",
                budget=5,
            )
        }


LIST = Benchmark(
    "harness_list",
    measure_list,
    [Metric("time", "s", "lower", "whole process")],
    grid={"plugins": [10, 200]},
    version="2",  # 1: ten plugins, no parameter
    description="Time of `hpml list` over small plugins.",
    rounds=1,
)


def measure_startup(bench: Bench) -> dict[str, Samples]:
    """CPU time of `hpml list` with the built-in plugins, and of importing the libraries that it
    uses.

    Both run alternately, with byte code cached by the first, uncounted run.  ratio: of consecutive
    runs.
    """
    names = sorted(each.name for each in pkgutil.iter_modules([str(Path(__file__).parents[1])]))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        processes.write_registry(
            folder, *(f"name: {each}, module: hpml_plugins.plugins.{each}" for each in names)
        )

        def cpu(*arguments: str) -> float:
            return processes.run_python(folder, *arguments, PYTHONPYCACHEPREFIX=name).cpu

        runs = [
            (
                cpu("-m", "hpml_plugins", "list"),
                cpu("-c", "import click, rich.table, msgspec, yaml"),
            )
            for _ in range(11)
        ]
    commands, libraries = (Samples.of(values, "s") for values in zip(*runs[1:], strict=True))
    return {"list": commands, "baseline": libraries, "ratio": commands / libraries}


STARTUP = Benchmark(
    "harness_startup",
    measure_startup,
    [
        Metric("list", "s", "lower", "CPU time of `hpml list`"),
        Metric(
            "baseline", "s", "lower", "CPU time of importing click, rich.table, msgspec and yaml"
        ),
        Metric("ratio", "1", "lower", "list / baseline; the target is 2"),
    ],
    requires=Requires(modules=("rich",)),
    description="CPU time of `hpml list`, and of importing the libraries it is made with.",
    rounds=1,
)


def measure_plan(bench: Bench) -> dict[str, Samples]:
    """Time of `hpml submit --dry-run --commits ALL`, whole process: all scripts written, nothing
    submitted."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        targets = "\n".join(
            f"  - {{name: t{number}, partition: p, gpus: 8}}" for number in range(TARGETS)
        )
        (folder / "cluster.yaml").write_text(f"version: 1\ntargets:\n{targets}\n")
        processes.write_registry(folder)
        processes.write_configuration(folder)
        processes.make_commits(folder, COMMITS)
        printed = ""

        def step() -> None:
            nonlocal printed
            printed = processes.run_python(
                folder, "-m", "hpml_plugins", "submit", "--dry-run", "--commits", "ALL"
            ).output

        time = bench.time(step, device="cpu", budget=10)
        scripts, commits = printed.count("#!/bin/bash"), printed.count(f", {COMMITS} commits")
        bench.check(
            scripts == commits == TARGETS,
            f"{scripts} scripts, {commits} of them for {COMMITS} commits",
        )
        return {"time": time}


PLAN = Benchmark(
    "harness_plan",
    measure_plan,
    [Metric("time", "s", "lower", "whole process")],
    timeout=120,
    description=(
        f"Time to plan {TARGETS} targets × {COMMITS} commits and to write their sbatch scripts."
    ),
    rounds=1,
)
