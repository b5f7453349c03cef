"""The overhead of a point: alone, through `asv run`, and until the first kernel of a new
process."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import hpml_plugins
from hpml_plugins import Bench, Benchmark, HpmlError, Metric, Requires, Samples
from hpml_plugins.model import MetricSamples
from hpml_plugins.plugins.harness import processes

POINTS = 20


def measure_inner(
    bench: Bench, benchmark: Benchmark, params: dict[str, Any], *, watch: bool = True
) -> Mapping[str, MetricSamples]:
    """The metrics of a point measured in a separate process. Raises HpmlError if it fails."""
    from hpml_plugins.testing import Context, measure_point

    record = measure_point(benchmark, params, Context(bench.node, watch=watch))
    if record.status != "ok":
        raise HpmlError(f"the inner point failed: {record.reason}")
    return record.metrics


def measure_a_point(bench: Bench) -> dict[str, Samples]:
    """Time from requesting an empty point to its Record: the forks of two processes."""
    nothing = Benchmark("nothing", lambda bench: {"zero": 0.0}, [Metric("zero", "s", "lower")])
    return {"overhead": bench.time(lambda: measure_inner(bench, nothing, {}), device="cpu")}


POINT = Benchmark(
    "harness_point",
    measure_a_point,
    [Metric("overhead", "s", "lower", "of an empty point")],
    description="Time to measure a point that does nothing, in a process of its own.",
    rounds=1,
)
_PYPROJECT = """
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


def measure_through_asv(bench: Bench, *, launch: str) -> Mapping[str, Any]:
    """Overhead per point of a real `asv run` whose points use torch and torchvision and do nothing.

    launch: asv's launch method.  per_point: start, discovery and the one import of torch included.
    """
    bench.progress(f"{POINTS} points by {launch}", 0.1)
    seconds, measured = run_asv(POINTS, launch)
    bench.progress(f"1 point by {launch}", 0.8)
    seconds_of_one, one = run_asv(1, launch)
    bench.check(measured == POINTS and one == 1, "asv did not measure every point")
    return {"per_point": seconds / POINTS, "marginal": (seconds - seconds_of_one) / (POINTS - 1)}


def run_asv(points: int, launch: str) -> tuple[float, int]:
    """Time a second `asv run` of a new project, s (the first builds the commit); and how many
    points have a result."""
    with tempfile.TemporaryDirectory(prefix="hpml-asv-") as folder:
        project = Path(folder)
        package = Path(hpml_plugins.__file__).parent
        shutil.copytree(
            package, project / "hpml_plugins", ignore=shutil.ignore_patterns("__pycache__")
        )
        (project / "benchmarks").mkdir()
        (project / "benchmarks" / "__init__.py").write_text(_SUITE)
        (project / "pyproject.toml").write_text(_PYPROJECT)
        (project / ".gitignore").write_text("env/\nresults/\n")
        processes.write_plugin(project / "empty.py", points, ("torch", "torchvision"))
        processes.write_registry(project, "name: empty, path: empty.py")
        processes.write_configuration(
            project, environment_type="node", plugins=[".hpml_plugins.asv"]
        )
        processes.make_commits(project, 1)
        env = {"HOME": folder, "ASV_PYTHONPATH": os.environ.get("ASV_PYTHONPATH", "")}
        asv = ("-m", "asv", "run", "--launch-method", launch)
        processes.run_python(project, *asv, "--bench", "just-discover", **env)
        seconds = processes.run_python(project, *asv, **env).seconds
        (file,) = project.glob("results/*/*-node-*.json")
        result = json.loads(file.read_text())
        row = dict(
            zip(result["result_columns"], result["results"]["empty.track_zero"], strict=False)
        )
        return seconds, sum(value == 0.0 for value in row["result"])


ASV = Benchmark(
    "harness_asv",
    measure_through_asv,
    [
        Metric("per_point", "s", "lower", "the whole `asv run` over its points"),
        Metric("marginal", "s", "lower", "one more point: (20 points − 1 point) / 19"),
    ],
    grid={"launch": ["forkserver"]},
    requires=Requires(modules=("asv", "torch", "torchvision"), tools=("git",)),
    timeout=900,
    description=(
        "Overhead per point of `asv run` with torch and torchvision in use, 20 points that do"
        " nothing."
    ),
    rounds=1,
)


def _first_kernel(bench: Bench) -> dict[str, float]:
    started = time.perf_counter()
    import torch

    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    context = time.perf_counter() - started

    from hpml_plugins.plugins.harness.kernels import first_launch

    first_launch()
    return {"context": context, "first_kernel": time.perf_counter() - started}


def measure_first_kernel(bench: Bench) -> dict[str, Samples]:
    """CUDA context and a numba kernel's first launch, in separate processes, with the libraries
    imported before."""
    from hpml_plugins.testing import import_before_fork

    import_before_fork(["torch", "numba.cuda"])  # as asv's fork server does
    inner = Benchmark("first", _first_kernel, FIRST_KERNEL.metrics, requires=Requires(gpus=1))
    points = [measure_inner(bench, inner, {}, watch=False) for _ in range(6)]
    # the first one compiles: the compiled code is cached between processes
    return {
        name: Samples.of([each[name].samples[0] for each in points[1:]], "s") for name in points[0]
    }


FIRST_KERNEL = Benchmark(
    "harness_first_kernel",
    measure_first_kernel,
    [Metric("context", "s", "lower"), Metric("first_kernel", "s", "lower", "context included")],
    requires=Requires(gpus=1, modules=("torch", "numba.cuda")),
    timeout=120,
    description="CUDA context, and the first launch of a numba kernel in a fresh process.",
    rounds=1,
)
