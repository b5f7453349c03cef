"""nvbench, `--json FILE` and `--jsonbin FILE`, version 1 of its format.

Source: nvbench/json_printer.cu and nvbench/detail/measure_*.cu of NVIDIA/nvbench, 66212f1. With
`--jsonbin` the files beside FILE hold the samples; otherwise the median is the one sample, or the
mean if an older version did not write the median.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from hpml_plugins.errors import HpmlError
from hpml_plugins.model import Direction, MetricSamples
from hpml_plugins.store import open_result, path_in
from hpml_plugins.tools.importing.reading import (
    CLOCK,
    EVENTS,
    ForeignPoint,
    Source,
    metric,
    metric_name,
    parameters,
    value_of,
)

TOOL = "nvbench"
#: Metric → tag of its summaries, timer.
_TIMES = {
    "time": ("nv/cold/time/gpu", EVENTS),
    "batch_time": ("nv/batch/time/gpu", EVENTS),
    "cpu_time": ("nv/cold/time/cpu", CLOCK),
    "cpu_only_time": ("nv/cpu_only/time/cpu", CLOCK),
}
#: Metric with a file of samples → tag of the summary that names the file.
_SAMPLES = {
    "time": "nv/json/bin:nv/cold/sample_times",
    "cpu_only_time": "nv/json/bin:nv/cpu_only/sample_times",
}
_RATES = {
    "nv/cold/bw/global/bytes_per_second": ("bytes_per_second", "B/s"),
    "nv/cold/bw/item_rate": ("items_per_second", "1/s"),
    "nv/cpu_only/bw/global/bytes_per_second": ("cpu_only_bytes_per_second", "B/s"),
    "nv/cpu_only/bw/item_rate": ("cpu_only_items_per_second", "1/s"),
}
#: The hint of a summary that a benchmark adds itself → unit and direction.
_HINTS: dict[str, tuple[str, Direction | None]] = {
    "duration": ("s", "lower"),
    "byte_rate": ("B/s", "higher"),
    "item_rate": ("1/s", "higher"),
    "bytes": ("B", None),
}


class _Value(msgspec.Struct):
    name: str
    type: str
    value: str


class _Summary(msgspec.Struct):
    tag: str
    hint: str = ""
    data: list[_Value] = []

    def value(self, name: str = "value") -> str | None:
        """The text of a value; None if it is missing."""
        return next((each.value for each in self.data if each.name == name), None)


class _State(msgspec.Struct):
    device: int | None = None
    axis_values: list[_Value] | None = None
    summaries: list[_Summary] | None = None
    is_skipped: bool = False
    skip_reason: str = ""


class _Benchmark(msgspec.Struct):
    name: str
    devices: list[int] | None = None
    states: list[_State] | None = None


class _Device(msgspec.Struct):
    id: int
    name: str


class _File(msgspec.Struct):
    meta: dict[str, Any]
    benchmarks: list[_Benchmark]
    devices: list[_Device] | None = None


def read(path: Path, text: str, found: Any) -> Source | None:
    """See `formats`."""
    if not (isinstance(found, dict) and {"meta", "benchmarks"} <= found.keys()):
        return None
    file = msgspec.convert(found, _File)
    versions = msgspec.convert(file.meta.get("version"), dict[str, dict[str, Any]])
    if versions.get("json", {}).get("major") != 1:
        raise ValueError("its version is not 1")
    names = {device.id: device.name for device in file.devices or ()}
    readings = [
        _reading(benchmark, state, names, path)
        for benchmark in file.benchmarks
        for state in benchmark.states or ()
    ]
    return Source(
        TOOL, readings, version=str(versions.get("nvbench", {}).get("string", ""))
    )


def _reading(
    benchmark: _Benchmark, state: _State, names: dict[int, str], path: Path
) -> ForeignPoint:
    axes = {each.name: _axis_value(each) for each in state.axis_values or ()}
    if len(benchmark.devices or ()) > 1:
        axes["device"] = state.device
    name = names.get(state.device) if state.device is not None else None
    gpus = (name,) if name else () if state.device is None else None
    point = parameters(axes)
    if state.is_skipped:
        why = state.skip_reason or "no reason given"
        return ForeignPoint(benchmark.name, point, failure=why, is_skipped=True, gpus=gpus)
    found = dict(_metrics({each.tag: each for each in state.summaries or ()}, path))
    if not found:
        return ForeignPoint(
            benchmark.name, point, failure="no result was written", gpus=gpus
        )
    return ForeignPoint(benchmark.name, point, found, gpus=gpus)


def _axis_value(found: _Value) -> Any:
    number = {"int64": int, "float64": float}.get(found.type)
    return number(found.value) if number else value_of(found.value)


def _metrics(
    summaries: dict[str, _Summary], path: Path
) -> Iterator[tuple[str, MetricSamples]]:
    for name, (tag, timer) in _TIMES.items():
        if samples := _samples(summaries.get(_SAMPLES.get(name, "")), path):
            yield name, metric("s", "lower", samples, timer=timer)
            continue
        for statistic in ("median", "mean"):
            if (value := _number(summaries.get(f"{tag}/{statistic}"))) is not None:
                info = {"timer": timer, "statistic": statistic}
                yield name, metric("s", "lower", [value], **info)
                break
    for tag, (name, unit) in _RATES.items():
        if (value := _number(summaries.get(tag))) is not None:
            yield name, metric(unit, "higher", [value], statistic="of the mean time")
    for tag, summary in summaries.items():
        added = not tag.startswith("nv/") and summary.hint in _HINTS
        if added and (value := _number(summary)) is not None:
            unit, direction = _HINTS[summary.hint]
            yield metric_name(tag), metric(unit, direction, [value])


def _number(summary: _Summary | None) -> float | None:
    text = summary.value() if summary else None
    return None if text is None else float(text)


def _samples(summary: _Summary | None, path: Path) -> list[float]:
    """The samples in the file that a summary names; none if there is no such file."""
    name = summary.value("filename") if summary else None
    if name is None:
        return []
    try:
        with open_result(path_in(path.parent, *Path(name).parts)) as file:
            data = file.read()
    except FileNotFoundError:
        return []
    if len(data) % 4:
        raise HpmlError(f"{name}: not whole 32-bit numbers")
    return [sample for (sample,) in struct.iter_unpack("<f", data)]
