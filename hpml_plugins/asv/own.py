"""asv's own benchmarks (`time_`, `peakmem_`, `track_`) beside those of plugins: one round of a
point as a Record."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from asv.runner import Spawner, run_benchmark

from hpml_plugins.asv.run import AsvTask, selected_tasks
from hpml_plugins.host import Declared
from hpml_plugins.model.record import MetricSamples, Record, Status
from hpml_plugins.registry import PluginSource
from hpml_plugins.store.asv_results import METRIC
from hpml_plugins.store.declarations import Declaration, read_declarations, value_of
from hpml_plugins.terminal import one_line

#: asv's benchmarks choose their number of samples; a round corresponds to one of their
#: processes.
_ONE_PROCESS = {"rounds": 1}


def own_tasks(benchmarks: Any, timeout: float) -> list[AsvTask]:
    """The points of asv's own benchmarks that asv has selected. benchmarks: as discovered by asv.
    timeout: s, for benchmarks without one."""
    tasks: list[AsvTask] = []
    for name, each in read_declarations(benchmarks).items():
        if each.is_ours:
            continue
        seconds = each.timeout or timeout
        declared = _declared(name, each, seconds)
        entry = {**benchmarks[name], "timeout": seconds}
        tasks += selected_tasks(benchmarks, name, entry, declared)
    return tasks


def _declared(name: str, declaration: Declaration, timeout: float) -> Declared:
    grids = zip(declaration.param_names, declaration.params, strict=True)
    grid = {parameter: list(map(value_of, texts)) for parameter, texts in grids}
    source = PluginSource("asv")
    return Declared(source, name, declaration.version, grid, timeout, [], needs_gpu=False)


class _SetupFailed(Exception):
    """`setup_cache` of a benchmark failed; contains its output."""


def run_own(
    spawner: Spawner, task: AsvTask, timeout: float, caches: dict[str, str]
) -> Record:
    """Measure a round of a point in one process. timeout: s, if shorter than the benchmark's own.
    caches: asv's key of a `setup_cache` → the folder that it created at this commit; missing ones
    are created and added."""
    entry = {**task.entry, "timeout": min(task.entry["timeout"], timeout)}
    status, reason, samples = _measure(spawner, entry, task.number, caches)
    metrics = {}
    if samples:
        symbol = read_declarations({entry["name"]: entry})[entry["name"]].symbol
        # asv considers lower values better, whatever the unit
        metrics[METRIC] = MetricSamples(symbol, "lower", samples)
    return Record(
        benchmark=task.declared.benchmark,
        plugin=task.declared.plugin.name,
        version=task.declared.version,
        params=dict(task.params),
        status=status,
        reason=reason,
        metrics=metrics,
        started=time.time(),
    )


def _measure(
    spawner: Spawner, entry: dict[str, Any], number: int, caches: dict[str, str]
) -> tuple[Status, str, list[float]]:
    """The status of a round, why it has no number, and its samples."""
    try:
        folder = _cache_folder(spawner, entry, caches)
    except _SetupFailed as error:
        return "failed", str(error), []
    found = run_benchmark(
        entry,
        spawner,
        profile=False,
        selected_idx=[number],
        extra_params=_ONE_PROCESS,
        cwd=folder,
    )
    samples = found.samples[number] or [found.result[number]]
    if found.errcode:
        return "failed", _last_line(found.stderr) or f"exit status {found.errcode}", []
    if not all(isinstance(each, int | float) for each in samples):
        return "failed", "it did not return a number", []
    if not all(map(math.isfinite, samples)):
        return "skipped", "asv skips it, or it returned no finite number", []
    return "ok", "", list(map(float, samples))


def _cache_folder(
    spawner: Spawner, entry: Mapping[str, Any], caches: dict[str, str]
) -> str | None:
    """The folder in which a benchmark's processes run; None for any folder. Raises an error."""
    key = entry.get("setup_cache_key")
    if key is None:
        return None
    if key not in caches:
        timeout = entry.get("setup_cache_timeout") or entry["timeout"]
        made, printed = spawner.create_setup_cache(entry["name"], timeout, "{}")
        if made is None:
            raise _SetupFailed(f"setup_cache failed: {_last_line(printed)}")
        caches[key] = made
    return caches[key]


def _last_line(printed: str | None) -> str:
    lines = (printed or "").strip().splitlines()
    return one_line(lines[-1]) if lines else ""
