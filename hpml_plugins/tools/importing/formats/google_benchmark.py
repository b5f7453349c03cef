"""Google Benchmark, `--benchmark_format=json` or `--benchmark_out=FILE`.

Source: docs/user_guide.md of google/benchmark; files of 1.7.1. With `--benchmark_repetitions` each
repetition is a sample; with `--benchmark_report_aggregates_only` the median is the one sample.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from hpml_plugins.model import MetricSamples, Value
from hpml_plugins.tools.importing.reading import (
    CLOCK,
    SECONDS,
    ForeignPoint,
    Source,
    metric,
    metric_name,
    parameters,
    unix_time,
    value_of,
)

TOOL = "google-benchmark"
#: Parts of a name that describe how long was measured, not what.
_EFFORT = re.compile(r"(iterations|repeats|min_time|min_warmup_time):.*")
_CLOCKS = ("real_time", "process_time", "manual_time")
#: Keys of a result that are not user counters.
_KNOWN = (
    "family_index",
    "per_family_instance_index",
    "repetitions",
    "repetition_index",
    "threads",
    "iterations",
    "real_time",
    "cpu_time",
)


class _Result(msgspec.Struct):
    name: str
    run_name: str = ""
    run_type: str = "iteration"
    aggregate_name: str = ""
    real_time: float = 0.0
    cpu_time: float = 0.0
    time_unit: str = "ns"
    error_occurred: bool = False
    error_message: str = ""
    skipped: bool = False
    skip_message: str = ""


class _Context(msgspec.Struct):
    date: str = ""
    host_name: str = ""
    num_cpus: int | None = None
    library_build_type: str = ""
    library_version: str = ""


class _File(msgspec.Struct):
    context: _Context
    benchmarks: list[dict[str, Any]]


def read(path: Path, text: str, found: Any) -> Source | None:
    """See `formats`."""
    if not (isinstance(found, dict) and {"context", "benchmarks"} <= found.keys()):
        return None
    file = msgspec.convert(found, _File)
    started = unix_time(file.context.date)
    node = {} if file.context.num_cpus is None else {"num_cpu": file.context.num_cpus}
    debug = file.context.library_build_type == "debug"
    return Source(
        TOOL,
        list(_readings(file.benchmarks, started)),
        version=file.context.library_version,
        machine=file.context.host_name,
        node=node,
        warnings=("the benchmark library was built for debugging",) if debug else (),
    )


def _readings(rows: list[dict[str, Any]], started: float) -> Iterator[ForeignPoint]:
    results = msgspec.convert(rows, list[_Result])
    repeated = {result.run_name for result in results if result.run_type == "iteration"}
    for result, row in zip(results, rows, strict=True):
        only = result.aggregate_name == "median" and result.run_name not in repeated
        if result.run_type != "iteration" and not only:
            continue
        name, params = _split(result.run_name or result.name)
        if result.error_occurred or result.skipped:
            why = result.error_message or result.skip_message or "no reason given"
            skipped = not result.error_occurred
            yield ForeignPoint(
                name, params, failure=why, is_skipped=skipped, started=started
            )
            continue
        info = {"statistic": "median of repetitions"} if only else {}
        yield ForeignPoint(name, params, _metrics(result, row, info), started=started)


def _metrics(
    result: _Result, row: dict[str, Any], info: dict[str, str]
) -> dict[str, MetricSamples]:
    second = SECONDS.get(result.time_unit)
    if second is None:
        raise ValueError(
            f"time_unit {result.time_unit[:20]!r} is not one of {', '.join(SECONDS)}"
        )
    found = {
        "time": metric("s", "lower", [result.real_time * second], timer=CLOCK, **info),
        "cpu_time": metric("s", "lower", [result.cpu_time * second], timer="other", **info),
    }
    for key, value in row.items():
        if key in _KNOWN or isinstance(value, bool) or not isinstance(value, int | float):
            continue
        name = metric_name(key)
        unit = {"bytes_per_second": "B/s", "items_per_second": "1/s"}.get(name, "1")
        found[name] = metric(unit, "higher" if unit != "1" else None, [value], **info)
    return found


def _split(run_name: str) -> tuple[str, dict[str, Value]]:
    """The family of a benchmark and the parameters in its name, such as `BM_copy/bytes:4096`."""
    names: list[str] = []
    params: dict[str, Value] = {}
    unnamed = 0
    for part in run_name.split("/"):
        key, colon, text = part.partition(":")
        if _EFFORT.fullmatch(part):
            continue
        if part in _CLOCKS:
            params["clock"] = part
        elif colon and key.isidentifier() and not text.startswith(":"):
            params[key] = value_of(text)
        elif re.fullmatch(r"-?\d+", part):
            params[f"arg{unnamed}"] = value_of(part)
            unnamed += 1
        else:
            names.append(part)
    return "/".join(names), parameters(params)
