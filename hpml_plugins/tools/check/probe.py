"""Run in a fresh process: load one plugin and say, as JSON, what it offers, what that cost and what it did."""

from __future__ import annotations

import ast
import contextlib
import io
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from hpml_plugins.host.loading import LoadedPlugin, load_plugin
from hpml_plugins.host.locating import locate
from hpml_plugins.host.offers import ask
from hpml_plugins.measure import SHARED
from hpml_plugins.model.benchmark import Value
from hpml_plugins.tools.check.target import Target

HEAVY = (*SHARED, "pandas", "tensorflow", "jax")


class Seen(msgspec.Struct, frozen=True):
    """A benchmark as it was declared. metrics: name, unit, direction."""

    name: str
    version: str
    metrics: list[tuple[str, str, str]]
    grid: dict[str, list[Value]]
    description: str


class Probe(msgspec.Struct, frozen=True):
    """What loading gave. seconds: CPU time.  did: what it did to the process.  constant: checks of a constant."""

    error: str
    seconds: float
    heavy: list[str]
    did: list[str]
    benchmarks: list[Seen]
    problems: list[str]
    constant: list[str]


def probe(target: Target) -> Probe:
    """Load the plugin into this process and look."""
    before, folder, variables = set(sys.modules), Path.cwd(), dict(os.environ)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    printed = io.StringIO()
    started = time.process_time()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        plugin = load_plugin(target.source.entry, target.folder)
    seconds = time.process_time() - started
    did = [f"prints {printed.getvalue()[:60].strip()!r}"] if printed.getvalue() else []
    did += ["changes the working directory"] if Path.cwd() != folder else []
    did += ["changes environment variables"] if dict(os.environ) != variables else []
    did += ["starts threads"] if threading.active_count() > 1 else []
    changed = [number for number, handler in handlers.items() if signal.getsignal(number) is not handler]
    did += ["handles signals"] if changed else []
    heavy = sorted({name.partition(".")[0] for name in set(sys.modules) - before} & set(HEAVY))
    return Probe(
        error=str(plugin.error or ""),
        seconds=seconds,
        heavy=heavy,
        did=did,
        benchmarks=list(_seen(plugin)),
        problems=ask(plugin, facts=True).problems + list(_figures(plugin)),
        constant=list(_constant_checks(target)),
    )


def _seen(plugin: LoadedPlugin) -> Iterator[Seen]:
    for each in plugin.benchmarks:
        metrics = [(metric.name, metric.unit, str(metric.direction)) for metric in each.metrics]
        grid = {name: list(values) for name, values in each.grid.items()}
        yield Seen(each.name, each.version, metrics, grid, each.description)


def _figures(plugin: LoadedPlugin) -> Iterator[str]:
    from hpml_plugins.errors import HpmlError
    from hpml_plugins.report.figures import collect

    try:
        collect(plugin)
    except HpmlError as error:
        yield str(error)


def _constant_checks(target: Target) -> Iterator[str]:
    """Where the plugin's files call `….check(True, …)`, or with another constant, which checks nothing."""
    file = locate(target.source, target.folder).file
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
            if node.func.attr == "check" and node.args and isinstance(node.args[0], ast.Constant):
                yield f"{path}:{node.lineno}"


if __name__ == "__main__":
    sys.stdout.write(msgspec.json.encode(probe(Target.read(sys.argv[1]))).decode())
    sys.stdout.flush()
    os._exit(0)  # a thread that the plugin left would keep this process
