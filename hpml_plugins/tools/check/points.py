"""Run in a fresh process: measure points of a plugin, as they are and spoilt, and say what happened as JSON."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from hpml_plugins.host.loading import load_plugin
from hpml_plugins.host.locating import locate
from hpml_plugins.host.offers import Offers, own_sources
from hpml_plugins.measure import Context, SamplingPlan, import_before_fork, measure_point, shared
from hpml_plugins.model.benchmark import Benchmark, Params, Value
from hpml_plugins.node import detect_node
from hpml_plugins.tools.check.fault_injection import Kind, disturbed_torch, spoilt
from hpml_plugins.tools.check.observation import Watching
from hpml_plugins.tools.check.target import Target

#: Short samples: it is the code that is checked, not the machine.
PLAN = SamplingPlan(budget=0.05, warm_up=0.01, fewest=3)
_MARK = "hpml check: "


class Watched(msgspec.Struct, frozen=True):
    """What was seen inside. undeclared: not in `Requires`.  results: how many values went through `bench.result`."""

    undeclared_imports: list[str] = []
    undeclared_programs: list[str] = []
    results: int = 0


class Tried(msgspec.Struct, frozen=True):
    """One point measured. kind: how it was spoilt, or "".  relaxed: without the GPUs that it asks for.

    status: a Record's, or "unfinished" where the check's time ended it and not its own timeout.
    """

    benchmark: str
    params: dict[str, Value]
    kind: str
    status: str
    reason: str
    checks: list[str]
    watched: Watched | None
    relaxed: bool


def smallest_first(benchmark: Benchmark) -> list[Params]:
    """The points, those of small numbers first."""
    ranks = {
        name: sorted(value for value in values if isinstance(value, int | float))
        for name, values in benchmark.grid.items()
    }

    def size(params: Params) -> int:
        return sum(ranks[name].index(value) for name, value in params.items() if value in ranks[name])

    return sorted(benchmark.points(), key=size)


def try_points(target: Target, limit: float) -> Iterator[Tried]:
    """The smallest point of each benchmark as it is and spoilt; then all other points until `limit` s have passed."""
    plugin = load_plugin(target.source.entry, target.folder)
    file = locate(target.source, target.folder).file or target.folder
    node = detect_node()
    context = Context(node=node, plugin=target.source.name, watch=False, plan=PLAN)
    chosen = [(_relaxed(each) if not node.gpus else each, smallest_first(each)) for each in plugin.benchmarks]
    import_before_fork(shared(module for benchmark, _ in chosen for module in benchmark.requires.modules))

    deadline = time.monotonic() + limit
    share = limit / max(1, len(chosen))

    def attempt(benchmark: Benchmark, params: Params, kind: Kind | None = None) -> Tried:
        seconds = min(benchmark.timeout, max(share, deadline - time.monotonic()))
        record = measure_point(_observed(benchmark, file, kind), params, context, timeout=seconds)
        told = [text.removeprefix(_MARK) for text in record.warnings if text.startswith(_MARK)]
        watched = msgspec.json.decode(told[0], type=Watched) if told else None
        relaxed = benchmark.requires != _declared(plugin.benchmarks, benchmark.name).requires
        out_of_time = "timed out" in record.reason and seconds < benchmark.timeout
        status = "unfinished" if out_of_time else record.status
        return Tried(benchmark.name, params, kind or "", status, record.reason, record.checks, watched, relaxed)

    with Offers().in_force(own_sources(plugin)):
        for benchmark, points in chosen:
            yield (first := attempt(benchmark, points[0]))
            if first.status == "ok" and first.checks:
                yield (off := attempt(benchmark, points[0], "off"))
                if off.watched and off.watched.results:
                    yield attempt(benchmark, points[0], "nan")
                elif "torch" in sys.modules:
                    yield attempt(benchmark, points[0], "noise")
        for benchmark, points in chosen:
            for params in points[1:]:
                if time.monotonic() > deadline:
                    return
                yield attempt(benchmark, params)


def with_what_they_need(modules: set[str]) -> set[str]:
    """The modules, and the packages that their distributions require: numba brings llvmlite."""
    found = set(modules)
    for module in modules:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            for text in importlib.metadata.requires(module) or ():
                if "extra ==" not in text:
                    found.add(re.split(r"[^A-Za-z0-9_-]", text)[0].replace("-", "_").lower())
    return found


def _declared(benchmarks: Sequence[Benchmark], name: str) -> Benchmark:
    return next(each for each in benchmarks if each.name == name)


def _relaxed(benchmark: Benchmark) -> Benchmark:
    """Without what it needs of GPUs, so that it can be tried on a CPU or in numba's CUDA simulator."""
    return replace(benchmark, requires=replace(benchmark.requires, gpus=0, gpu_memory=0))


def _observed(benchmark: Benchmark, file: Path, kind: Kind | None) -> Benchmark:
    @functools.wraps(benchmark.measure)
    def measure(bench: Any, **params: Any) -> Any:
        results = 0

        def spoil(value: Any) -> Any:
            nonlocal results
            results += 1
            return spoilt(value, kind) if kind in ("off", "nan") else value

        bench.spoil = spoil
        watching = Watching(file)
        try:
            with watching, disturbed_torch() if kind == "noise" else contextlib.nullcontext():
                return benchmark.measure(bench, **params)
        finally:
            modules = with_what_they_need({module.partition(".")[0] for module in benchmark.requires.modules})
            programs = {Path(tool).name for tool in benchmark.requires.tools}
            seen = Watched(sorted(watching.imports - modules), sorted(watching.programs - programs), results)
            bench.warn(_MARK + msgspec.json.encode(seen).decode())

    return replace(benchmark, measure=measure)


if __name__ == "__main__":
    for tried in try_points(Target.read(sys.argv[1]), float(sys.argv[2])):
        sys.stdout.write(msgspec.json.encode(tried).decode() + "\n")
        sys.stdout.flush()
