"""The newest result of every point on every GPU type, out of asv's results."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Benchmarks = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, order=True)
class GpuType:
    """What a column stands for.

    kind: 0 a GPU, 1 no GPU, 2 unknown; columns stand in this order.  gpu, num_gpu: asv's machine parameters.
    cpu: told apart only where there is no GPU, for then the CPU is what computes.
    """

    kind: int
    gpu: str
    num_gpu: str
    cpu: str = ""

    @property
    def label(self) -> str:
        """`NVIDIA H200 ×2`, `no GPU (CPU name)` or `unknown`."""
        if self.kind == 1:
            return f"no GPU ({self.cpu or 'unknown CPU'})"
        return f"{self.gpu} ×{self.num_gpu}" if self.num_gpu else self.gpu


@dataclass(frozen=True)
class Reading:
    """One result of one point. value: None when it failed, NaN when not measured. date: ms since 1970."""

    value: float | None
    low: float | None
    high: float | None
    commit: str
    date: float
    started: float
    machine: str

    @property
    def measured(self) -> bool:
        """Whether there is a number."""
        return self.value is not None and math.isfinite(self.value)

    @property
    def recency(self) -> tuple[bool, float, float]:
        """What the newest has most of.

        A point that was left out never hides an older result: asv stores NaN for every point that a partial run
        did not choose.
        """
        left_out = self.value is not None and math.isnan(self.value)
        return (not left_out, self.date, self.started)


@dataclass
class Readings:
    """All that one page shows. newest: (asv's benchmark name, index of the point) → GPU type → reading."""

    newest: dict[tuple[str, int], dict[GpuType, Reading]] = field(default_factory=dict)
    machines: dict[GpuType, set[str]] = field(default_factory=dict)
    commits: set[str] = field(default_factory=set)

    def add(self, point: tuple[str, int], gpu_type: GpuType, reading: Reading) -> None:
        """Take a reading in, unless a newer one is there."""
        cells = self.newest.setdefault(point, {})
        old = cells.get(gpu_type)
        if old is None or reading.recency >= old.recency:
            cells[gpu_type] = reading


def gpu_type(params: Mapping[str, Any]) -> GpuType:
    """The GPU type of a machine, by the parameters of its results. One that says nothing is `unknown`."""
    gpu = str(params.get("gpu") or "").strip()
    if not gpu or gpu == "unknown":
        return GpuType(2, "unknown", _text(params.get("num_gpu")))
    if gpu == "none":
        return GpuType(1, gpu, "", _text(params.get("cpu")))
    return GpuType(0, gpu, _text(params.get("num_gpu")))


def collect(results: Iterable[Any], benchmarks: Benchmarks) -> Readings:
    """The newest reading of every point and GPU type.

    results: asv's `Results`, in any order.  benchmarks: asv's, by name. A result of another version of a
    benchmark does not count.
    """
    readings = Readings()
    for result in results:
        where = gpu_type(result.params)
        machine = _text(result.params.get("machine"))
        readings.machines.setdefault(where, set()).add(machine)
        readings.commits.add(result.commit_hash)
        for name in result.get_result_keys(benchmarks):
            for index, value, stats in _points(result, name, benchmarks[name]):
                started = float(result.started_at.get(name) or 0)
                low, high = stats.get("ci_99_a"), stats.get("ci_99_b")
                reading = Reading(value, low, high, result.commit_hash, float(result.date or 0), started, machine)
                readings.add((name, index), where, reading)
    return readings


def _points(result: Any, name: str, benchmark: Mapping[str, Any]) -> Iterator[tuple[int, Any, Mapping[str, Any]]]:
    params = benchmark.get("params") or []
    values = result.get_result_value(name, params)
    stats = result.get_result_stats(name, params)
    # asv gives None for a failure and for a point that the grid did not have yet; only the first is news.
    known = set(itertools.product(*(result.get_result_params(name) or [])))
    for index, point in enumerate(itertools.product(*params)):
        if point in known:
            yield index, values[index], stats[index] or {}


def _text(value: Any) -> str:
    return "" if value is None else str(value).strip()
