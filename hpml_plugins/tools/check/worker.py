"""Run in a fresh process: load one plugin, or measure its points as they are and with faults;
report it as JSON."""

from __future__ import annotations

import ast
import builtins
import contextlib
import functools
import importlib.metadata
import io
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec

from hpml_plugins.errors import HpmlError
from hpml_plugins.host import Declared, ask_for_offers, load_plugin, locate, own_sources
from hpml_plugins.measure import (
    SHARED,
    Context,
    SamplingPlan,
    import_before_fork,
    measure_point,
)
from hpml_plugins.model import Benchmark, Failure, Finding, Params, use_sources
from hpml_plugins.node import detect_node
from hpml_plugins.registry import PluginEntry
from hpml_plugins.report import collect
from hpml_plugins.tools.check.fault_injection import InjectedFault, corrupted
from hpml_plugins.tools.check.judging import (
    CheckedPlugin,
    Loaded,
    Observed,
    Tried,
    points_to_try,
    sample_points,
)
from hpml_plugins.workloads.datasets import SOURCES

HEAVY = (*SHARED, "pandas", "tensorflow", "jax")
#: Short samples: the code is checked, not the machine.
PLAN = SamplingPlan(budget=0.05, warm_up=0.01, fewest=3)
_MARK = "hpml check: "


def load(checked: CheckedPlugin) -> Loaded:
    """Load the plugin into this process and inspect the process."""
    before = set(sys.modules)
    folder = Path.cwd()
    variables = dict(os.environ)
    handlers = {
        number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)
    }
    printed = io.StringIO()
    started = time.process_time()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        plugin = load_plugin(checked.source, Path(checked.folder))
    seconds = time.process_time() - started
    effects = {
        f"prints {printed.getvalue()[:60].strip()!r}": bool(printed.getvalue()),
        "changes the working directory": Path.cwd() != folder,
        "changes environment variables": dict(os.environ) != variables,
        "starts threads": threading.active_count() > 1,
        "handles signals": any(
            signal.getsignal(number) is not handler for number, handler in handlers.items()
        ),
    }
    if heavy := sorted(
        {name.partition(".")[0] for name in set(sys.modules) - before} & set(HEAVY)
    ):
        effects[f"imports {', '.join(heavy)}"] = True
    problems = list(ask_for_offers(plugin).problems)
    try:
        collect(plugin)
    except HpmlError as error:
        problems.append(str(error))
    fix = "do that in measure, or not at all"
    seen = [what for what, happened in effects.items() if happened]
    findings = [Finding("import", "broken", f"{what} when loaded", fix) for what in seen]
    findings += [Finding("hooks", "broken", problem) for problem in problems]
    findings += _constant_checks(checked)
    entry = PluginEntry(plugin.entry.name)
    benchmarks = [Declared.of(each, entry) for each in plugin.benchmarks]
    return Loaded(str(plugin.error or ""), seconds, benchmarks, findings)


def _constant_checks(checked: CheckedPlugin) -> Iterator[Finding]:
    """Find calls of `….check(True, …)`, or with another constant, in the plugin's files: they check
    nothing."""
    file = locate(checked.source, Path(checked.folder)).file
    if file is None:
        return
    for path in sorted(file.parent.rglob("*.py")) if file.name == "__init__.py" else [file]:
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            continue
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            first = next(iter(node.args), None)
            if node.func.attr == "check" and isinstance(first, ast.Constant):
                what = f"{path}:{node.lineno}: bench.check of a constant checks nothing"
                yield Finding("check", "broken", what, "compare the result")


def _try_points(checked: CheckedPlugin, limit: float, most: int | None) -> Iterator[Tried]:
    """The smallest point of each benchmark as it is and with faults; then others until `limit` s
    have passed.

    most: how many of each, see `sample_points`.
    """
    plugin = load_plugin(checked.source, Path(checked.folder))
    file = locate(checked.source, Path(checked.folder)).file or Path(checked.folder)
    node = detect_node()
    context = Context(node=node, plugin=checked.source.name, watch=False, plan=PLAN)
    relaxed = {
        each.name: not node.gpus and _without_gpus(each).requires != each.requires
        for each in plugin.benchmarks
    }
    chosen = [
        (
            _without_gpus(each) if relaxed[each.name] else each,
            sample_points(each.grid, points_to_try(most, relaxed=relaxed[each.name])),
        )
        for each in plugin.benchmarks
    ]
    import_before_fork(
        module for benchmark, _ in chosen for module in benchmark.requires.modules
    )
    deadline = time.monotonic() + limit
    share = limit / max(1, len(chosen))

    def attempt(
        benchmark: Benchmark, params: Params, fault: InjectedFault | None = None
    ) -> Tried:
        seconds = min(benchmark.timeout, max(share, deadline - time.monotonic()))
        record = measure_point(
            _observed(benchmark, file, fault), params, context, timeout=seconds
        )
        notes = [
            text.removeprefix(_MARK) for text in record.warnings if text.startswith(_MARK)
        ]
        return Tried(
            record=record,
            fault=fault or "",
            unfinished=record.failure is Failure.TIMEOUT and seconds < benchmark.timeout,
            relaxed=relaxed[benchmark.name],
            observed=msgspec.json.decode(notes[0], type=Observed) if notes else None,
        )

    with use_sources({**SOURCES, **own_sources(plugin)}):
        for benchmark, points in chosen:
            yield (first := attempt(benchmark, points[0]))
            if first.status == "ok" and first.record.checks:
                yield (off := attempt(benchmark, points[0], "off"))
                if off.observed and off.observed.results:
                    yield attempt(benchmark, points[0], "nan")
        for benchmark, points in chosen:
            for params in points[1:]:
                if time.monotonic() > deadline:
                    return
                yield attempt(benchmark, params)


def _without_gpus(benchmark: Benchmark) -> Benchmark:
    """Without its requirement of GPUs, so that it can be tried on a CPU or in numba's CUDA
    simulator."""
    return replace(benchmark, requires=replace(benchmark.requires, gpus=0, gpu_memory=0))


def with_dependencies(modules: set[str]) -> set[str]:
    """The modules, and the packages that their distributions require: numba brings llvmlite."""
    found = set(modules)
    for module in modules:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            for text in importlib.metadata.requires(module) or ():
                if "extra ==" not in text:
                    found.add(
                        re.split(r"[^A-Za-z0-9_-]", text)[0].replace("-", "_").lower()
                    )
    return found


def _observed(benchmark: Benchmark, file: Path, fault: InjectedFault | None) -> Benchmark:
    """The benchmark with a `measure` that injects the fault and adds its observations as a warning
    of the Record."""

    @functools.wraps(benchmark.measure)
    def measure(bench: Any, **params: Any) -> Any:
        seen = Observed()

        def result(value: Any) -> Any:
            seen.results += 1
            return corrupted(value, fault) if fault else value

        bench.corrupt = result
        bench.time = _watching_output(bench.time, seen)
        try:
            with _observing(file, seen):
                return benchmark.measure(bench, **params)
        finally:
            seen.imports -= with_dependencies(
                {module.partition(".")[0] for module in benchmark.requires.modules}
            )
            seen.programs -= {Path(tool).name for tool in benchmark.requires.tools}
            bench.warn(_MARK + msgspec.json.encode(seen).decode())

    return replace(benchmark, measure=measure)


def _watching_output(time: Callable[..., Any], seen: Observed) -> Callable[..., Any]:
    """`bench.time`, which notes whether the step prints; a point's output is a file."""

    def printed() -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        return os.fstat(1).st_size

    @functools.wraps(time)
    def timed(step: Callable[[], object], *args: Any, **options: Any) -> Any:
        def watched() -> object:
            before = printed()
            result = step()
            seen.prints = seen.prints or printed() > before
            return result

        return time(watched, *args, **options)

    return timed


#: Modules through which a plugin starts a program: `subprocess`, and those of `Bench.run_program`.
_STARTERS = (
    "subprocess",
    *(f"hpml_plugins.measure.{name}" for name in ("program", "sampling", "bench")),
)


@contextlib.contextmanager
def _observing(file: Path, seen: Observed) -> Iterator[None]:
    """Record what the plugin in `file` imports and starts. Imports by `importlib` are not detected.

    For a process that ends soon: the audit hook cannot be removed.
    """
    file = file.resolve()
    alone = file.name != "__init__.py" and "site-packages" in file.parts
    ignored = {file.stem, file.parent.name, "hpml_plugins", *sys.stdlib_module_names}
    plain_import = builtins.__import__

    def is_own(name: str | None) -> bool:
        path = Path(name or "/").resolve()
        return path == file or (not alone and path.is_relative_to(file.parent))

    def observed_import(
        name: str,
        globals: Any = None,
        locals: Any = None,
        fromlist: Any = (),
        level: int = 0,
    ) -> Any:
        module = plain_import(name, globals, locals, fromlist, level)
        top = name.partition(".")[0]
        foreign = (
            level == 0
            and top not in ignored
            and not is_own(getattr(sys.modules.get(top), "__file__", None))
        )
        if foreign and is_own((globals or {}).get("__file__")):
            seen.imports.add(top)
        return module

    def audit(event: str, args: tuple[Any, ...]) -> None:
        if event != "subprocess.Popen":
            return
        frame = sys._getframe(1)
        while frame.f_back and frame.f_globals.get("__name__") in _STARTERS:
            frame = frame.f_back
        program = str(args[0] or (args[1] or ["?"])[0])
        on_path = shutil.which(Path(program).name)
        # A file that is not on the PATH belongs to the plugin: shipped or compiled by it.
        named = os.sep not in program or (
            on_path and Path(program).resolve() == Path(on_path).resolve()
        )
        if is_own(frame.f_globals.get("__file__")) and program != sys.executable and named:
            seen.programs.add(Path(program).name)

    sys.addaudithook(audit)
    with mock.patch.object(builtins, "__import__", observed_import):
        yield


def main() -> None:
    """Run the task named on the command line: `load PLUGIN` or `points PLUGIN SECONDS [MOST]`."""
    task, encoded, *options = sys.argv[1:]
    checked = msgspec.json.decode(encoded, type=CheckedPlugin)
    most = int(options[1]) if options[1:] else None
    facts: Any = (
        [load(checked)] if task == "load" else _try_points(checked, float(options[0]), most)
    )
    for fact in facts:
        sys.stdout.write(msgspec.json.encode(fact).decode() + "\n")
        sys.stdout.flush()
    os._exit(0)  # a thread that the plugin left would keep this process


if __name__ == "__main__":
    main()
