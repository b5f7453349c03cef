"""`check`: load a plugin and measure its points in fresh processes, and judge what was seen."""

from __future__ import annotations

import importlib.metadata
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec

from hpml_plugins.errors import UsageError, nearest
from hpml_plugins.host import GROUP, locate, make_host
from hpml_plugins.model import Finding
from hpml_plugins.node import detect_node
from hpml_plugins.registry import PluginSource, name_of_file, plugin_name, read_registry
from hpml_plugins.store import results_folder
from hpml_plugins.terminal import one_line
from hpml_plugins.tools.check.judging import (
    MOST_POINTS,
    CheckedPlugin,
    Loaded,
    Tried,
    judge_definition,
    judge_loading,
    judge_names,
    judge_points,
)

#: s that loading may take in a fresh process, however busy the machine.
_LOADING = 60.0


def find_plugin(name: str, registry: Path = Path("registry.yaml")) -> CheckedPlugin:
    """The plugin called NAME: in the registry, else a file, else an entry point, else a module.

    Raises UsageError if there is none.
    """
    folder = str(registry.resolve().parent)
    entries = read_registry(registry).plugins if registry.is_file() else ()
    for entry in entries:
        if entry.name == name:
            return CheckedPlugin(entry.source, folder)
    file = Path(name)
    if os.path.isfile(name):  # noqa: PTH113  # Path.is_file raises for a name that is too long
        source = PluginSource(name_of_file(file), path=str(file.resolve()))
        return CheckedPlugin(source, folder, file=name)
    if name.endswith(".py"):
        raise UsageError(f"{name}: no such file")
    if name in importlib.metadata.entry_points(group=GROUP).names:
        return CheckedPlugin(PluginSource(plugin_name(name), entry_point=name), folder)
    source = PluginSource(plugin_name(name), module=name)
    is_name = all(part.isidentifier() for part in name.split("."))
    if is_name and locate(source, Path(folder)).file:
        return CheckedPlugin(source, folder)
    what = f"{name!r} is not a plugin of {registry}, a file, an entry point or a module"
    raise UsageError(f"{what}; {nearest(name, [entry.name for entry in entries])}")


def check(
    plugin: CheckedPlugin, *, limit: float = 120.0, most: int | None = MOST_POINTS
) -> Iterator[Finding]:
    """Load the plugin twice in fresh processes, measure its points in another, and check all of it
    against the rules.

    limit: s for measuring points; points not reached are reported.  most: points of each benchmark,
    None for all of them; see `sample_points`. Nothing of the plugin is imported into this process.
    """
    loads = []
    for seed in ("1", "2"):
        fault, output, errors = _run("load", plugin, PYTHONHASHSEED=seed, timeout=_LOADING)
        if fault:
            what = f"the process that imported it {fault}: {one_line(errors)[-300:]}"
            yield Finding("loads", "broken", what.rstrip(": "))
            return
        loads.append(msgspec.json.decode(output, type=Loaded))
    yield from judge_loading(*loads)
    if loads[0].error:
        return
    yield from judge_names(loads[0], _names_of_others(plugin))
    yield from judge_definition(loads[0], results_folder(Path(plugin.folder)))
    simulated = {} if detect_node().gpus else {"NUMBA_ENABLE_CUDASIM": "1"}
    options = [str(limit), *([] if most is None else [str(most)])]
    fault, output, errors = _run(
        "points", plugin, *options, timeout=2 * limit + _LOADING, **simulated
    )
    tried = [msgspec.json.decode(line, type=Tried) for line in output.splitlines()]
    yield from judge_points(plugin, loads[0], tried, most)
    if fault:
        yield Finding(
            "points", "broken", f"measuring them {fault}: {one_line(errors)[-300:]}"
        )


def _names_of_others(plugin: CheckedPlugin) -> dict[str, str]:
    """Benchmark → plugin, of the other plugins of the registry in the plugin's folder."""
    file = Path(plugin.folder, "registry.yaml")
    if not file.is_file():
        return {}
    registry = read_registry(file)
    own = locate(plugin.source, registry.folder).file
    others = [
        each
        for each in registry.plugins
        if locate(each.source, registry.folder).file != own
    ]
    host = make_host(replace(registry, plugins=tuple(others)))
    return {each.benchmark: each.plugin.name for each in host.benchmarks()}


def _run(
    task: str, plugin: CheckedPlugin, *args: str, timeout: float, **env: str
) -> tuple[str, bytes, str]:
    """How the worker failed, "" if it did not; the complete lines of its stdout, and stderr."""
    encoded = msgspec.json.encode(plugin).decode()
    command = [
        sys.executable,
        "-m",
        "hpml_plugins.tools.check.worker",
        task,
        encoded,
        *args,
    ]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **env}
    # files, because a process that the plugin leaves would hold pipes open
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        worker = subprocess.Popen(
            command, env=variables, stdout=output, stderr=errors, start_new_session=True
        )
        try:
            status = worker.wait(timeout)
            fault = f"ended with exit status {status}" if status else ""
        except subprocess.TimeoutExpired:
            fault = f"was not done after {timeout:g} s"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()
        output.seek(0)
        errors.seek(0)
        lines = output.read()
        return (
            fault,
            lines[: lines.rfind(b"\n") + 1],
            errors.read().decode(errors="replace"),
        )
