"""pytest-benchmark, `--benchmark-json=FILE` and the files of `--benchmark-autosave`.

Source: files of 5.3.1. With `--benchmark-save-data` each round is a sample, else the median of the
rounds is the one sample.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from hpml_plugins.tools.importing.reading import (
    CLOCK,
    ForeignPoint,
    Source,
    metric,
    parameters,
    unix_time,
)

TOOL = "pytest-benchmark"
_CPU_TIMERS = ("process_time", "thread_time")


class _Stats(msgspec.Struct):
    median: float
    rounds: int
    data: list[float] = []


class _Benchmark(msgspec.Struct):
    fullname: str
    stats: _Stats
    params: dict[str, Any] | None = None
    param: Any = None
    options: dict[str, Any] = {}


class _File(msgspec.Struct):
    benchmarks: list[_Benchmark]
    machine_info: dict[str, Any]
    commit_info: dict[str, Any] = {}
    datetime: str = ""
    version: str = ""


def read(path: Path, text: str, found: Any) -> Source | None:
    """See `formats`."""
    if not (isinstance(found, dict) and {"machine_info", "benchmarks"} <= found.keys()):
        return None
    file = msgspec.convert(found, _File)
    started = unix_time(file.datetime)
    commit = str(file.commit_info.get("id") or "")
    known = re.fullmatch(r"[0-9a-f]{40}", commit) is not None
    dirty = known and bool(file.commit_info.get("dirty"))
    return Source(
        TOOL,
        [_reading(each, started) for each in file.benchmarks],
        version=file.version,
        machine=str(file.machine_info.get("node") or ""),
        commit=commit if known else "",
        node=_node(file.machine_info),
        warnings=("measured with changes that were not committed",) if dirty else (),
    )


def _reading(found: _Benchmark, started: float) -> ForeignPoint:
    stats = found.stats
    timer = str(found.options.get("timer") or "")
    how = {"timer": "other" if timer in _CPU_TIMERS else CLOCK}
    if not stats.data:
        how["statistic"] = f"median of {stats.rounds} rounds"
    time = metric("s", "lower", stats.data or [stats.median], **how)
    test = found.fullname.partition("[")[0]
    params = found.params
    if params is None:
        params = {} if found.param is None else {"param": found.param}
    return ForeignPoint(test, parameters(params), {"time": time}, started=started)


def _node(info: dict[str, Any]) -> dict[str, Any]:
    """The facts that a Record also has."""
    cpu = info.get("cpu")
    facts = {
        "os": f"{info.get('system') or ''} {info.get('release') or ''}".strip(),
        "arch": info.get("machine"),
        "python": info.get("python_version"),
    }
    if isinstance(cpu, dict):
        facts |= {"cpu": cpu.get("brand_raw"), "num_cpu": cpu.get("count")}
    return {
        name: fact for name, fact in facts.items() if isinstance(fact, str | int) and fact
    }
