"""`check`: load a plugin and measure its points in fresh processes, and judge what was seen."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec

from hpml_plugins.errors import UsageError, nearest
from hpml_plugins.host import GROUP, locate, make_host
from hpml_plugins.model import Finding
from hpml_plugins.node import detect_node
from hpml_plugins.registry import PluginSource, plugin_name, read_registry
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
    """The plugin that NAME means: of the registry, else a file, else an entry point, else a module.

    Raises UsageError where it is none of these.
    """
    here = registry.resolve().parent
    if registry.is_file():
        for entry in read_registry(registry).plugins:
            if entry.name == name:
                return CheckedPlugin(entry.source, str(here))
    if name.endswith(".py") or Path(name).is_file():
        if not Path(name).is_file():
            raise UsageError(f"{name}: no such file")
        path = Path(name).resolve()
        return CheckedPlugin(
            PluginSource(plugin_name(path.stem), path=str(path)), str(here), file=name
        )
    if name in importlib.metadata.entry_points(group=GROUP).names:
        return CheckedPlugin(PluginSource(plugin_name(name), entry_point=name), str(here))
    source = PluginSource(plugin_name(name), module=name)
    if not all(part.isidentifier() for part in name.split(".")) or not locate(source, here).file:
        known = (
            [entry.name for entry in read_registry(registry).plugins] if registry.is_file() else []
        )
        what = (
            f"{name!r} is no plugin of {registry}, no file, no entry point and no module;"
            f" {nearest(name, known)}"
        )
        raise UsageError(what)
    return CheckedPlugin(source, str(here))


def check(
    plugin: CheckedPlugin, *, limit: float = 120.0, most: int | None = MOST_POINTS
) -> Iterator[Finding]:
    """Load the plugin twice in fresh processes, measure its points in another, and hold all of it
    to the rules.

    limit: s for measuring points; those not reached are named.  most: points of each benchmark,
    None for all of them; see `sample_points`. Nothing of the plugin is imported into this process.
    """
    loads = []
    for seed in ("1", "2"):
        code, output, errors = _run("load", plugin, PYTHONHASHSEED=seed, timeout=_LOADING)
        if code != 0:
            text = one_line(errors)[-300:]
            yield Finding(
                "loads", "broken", f"the process that imported it {code}: {text}".rstrip(": ")
            )
            return
        loads.append(msgspec.json.decode(output, type=Loaded))
    yield from judge_loading(*loads)
    if loads[0].error:
        return
    yield from judge_names(loads[0], _names_of_others(plugin))
    yield from judge_definition(loads[0], results_folder(Path(plugin.folder)))
    simulated = {} if detect_node().gpus else {"NUMBA_ENABLE_CUDASIM": "1"}
    options = [str(limit), *([] if most is None else [str(most)])]
    code, output, errors = _run(
        "points", plugin, *options, timeout=2 * limit + _LOADING, **simulated
    )
    tried = [msgspec.json.decode(line, type=Tried) for line in output.splitlines()]
    yield from judge_points(plugin, loads[0], tried, most)
    if code != 0:
        yield Finding("points", "broken", f"measuring them {code}: {one_line(errors)[-300:]}")


def _names_of_others(plugin: CheckedPlugin) -> dict[str, str]:
    """Benchmark → plugin, of the other plugins of the registry in the plugin's folder."""
    file = Path(plugin.folder, "registry.yaml")
    if not file.is_file():
        return {}
    registry = read_registry(file)
    own = locate(plugin.source, registry.folder).file
    others = [each for each in registry.plugins if locate(each.source, registry.folder).file != own]
    host = make_host(replace(registry, plugins=tuple(others)))
    return {each.benchmark: each.plugin.name for each in host.benchmarks()}


def _run(
    task: str, plugin: CheckedPlugin, *args: str, timeout: float, **env: str
) -> tuple[int | str, str, str]:
    """Exit status (or how it ended, in words), the complete lines of stdout, and stderr of the
    worker."""
    spelled = msgspec.json.encode(plugin).decode()
    command = [sys.executable, "-m", "hpml_plugins.tools.check.worker", task, spelled, *args]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **env}
    try:
        done = subprocess.run(
            command, env=variables, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired as stuck:
        out = (
            stuck.stdout
            if isinstance(stuck.stdout, str)
            else (stuck.stdout or b"").decode(errors="replace")
        )
        return f"was not done after {timeout:g} s", out[: out.rfind("\n") + 1], ""
    if done.returncode == 0:
        return 0, done.stdout, done.stderr
    return (
        f"ended with exit status {done.returncode}",
        done.stdout[: done.stdout.rfind("\n") + 1],
        done.stderr,
    )
