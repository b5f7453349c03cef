"""hyperfine, `--export-json FILE`.

Source: files of 1.15, and of 1.19 with `memory_usage_byte`. Each run of a command is a sample.
Commands with parameters are a separate benchmark, because all points of a benchmark have the same
parameters: `hyperfine_delay` for `-L delay 1,2`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from hpml_plugins.tools.importing.reading import (
    CLOCK,
    ForeignPoint,
    Source,
    metric,
    parameters,
    value_of,
)

TOOL = "hyperfine"


class _Result(msgspec.Struct):
    command: str
    mean: float
    times: list[float] | None = None
    user: float | None = None
    system: float | None = None
    exit_codes: list[int | None] = []
    parameters: dict[str, str] = {}
    memory_usage_byte: list[int] | None = None


class _File(msgspec.Struct):
    results: list[_Result]


def read(path: Path, text: str, found: Any) -> Source | None:
    """See `formats`."""
    rows = found.get("results") if isinstance(found, dict) else None
    if not (isinstance(rows, list) and "nccl_version" not in found):
        return None
    if rows and not (isinstance(rows[0], dict) and "command" in rows[0]):
        return None
    return Source(TOOL, [_reading(each) for each in msgspec.convert(found, _File).results])


def _reading(result: _Result) -> ForeignPoint:
    benchmark = "_".join((TOOL, *result.parameters))
    params = {"command": result.command}
    given = {name: value_of(text) for name, text in result.parameters.items()}
    point = parameters({**given, **params})
    failed = [code for code in result.exit_codes if code != 0]
    if failed:
        codes = ", ".join(sorted({str(code) for code in failed}))
        why = f"ended with exit status {codes} in {len(failed)} of {len(result.exit_codes)} runs"
        return ForeignPoint(benchmark, point, failure=why)
    found = {}
    if result.times:
        found["time"] = metric("s", "lower", result.times, timer=CLOCK)
    else:
        found["time"] = metric("s", "lower", [result.mean], timer=CLOCK, statistic="mean")
    for name, seconds in (("user_time", result.user), ("system_time", result.system)):
        if seconds is not None:
            found[name] = metric("s", "lower", [seconds], timer="other", statistic="mean")
    if result.memory_usage_byte:
        found["memory"] = metric("B", "lower", result.memory_usage_byte)
    return ForeignPoint(benchmark, point, found)
