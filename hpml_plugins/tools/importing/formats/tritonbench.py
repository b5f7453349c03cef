"""tritonbench: `--csv --output-dir DIR` or `--output FILE`, and `--output-json FILE`.

Source: tritonbench/utils/triton_op.py of meta-pytorch/tritonbench, db2155c. A latency is written as
its median only: one sample. The file does not contain the commit or the kind of timing; only that
of a set of runs (benchmarks/) names the GPU.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpml_plugins.errors import HpmlError
from hpml_plugins.model import Direction
from hpml_plugins.tools.importing.reading import (
    ForeignPoint,
    Source,
    metric,
    metric_name,
    parameters,
    value_of,
)

TOOL = "tritonbench"
#: Metric of tritonbench → factor to our unit, unit and direction. Others have no unit.
_KNOWN: dict[str, tuple[float, str, Direction | None]] = {
    "latency": (1e-3, "s", "lower"),
    "walltime": (1e-3, "s", "lower"),
    "cuda_time": (1e-3, "s", "lower"),
    "tflops": (1e12, "FLOP/s", "higher"),
    "gbps": (1e9, "B/s", "higher"),
    "cpu_peak_mem": (1e9, "B", "lower"),
    "gpu_peak_mem": (1e9, "B", "lower"),
    "speedup": (1.0, "1", "higher"),
}
_KEY = re.compile(
    r"tritonbench_(?P<name>[^\[\]]+)\[x_(?P<x>.*)-(?P<provider>[^\]]*)\]_(?P<metric>.+)"
)
_AVERAGE = "average"


def read(path: Path, text: str, found: Any) -> Source | None:
    """See `formats`."""
    if isinstance(found, dict):
        # its nightly and other sets of runs put the same below `metrics`, beside `env`
        values = found["metrics"] if found.keys() >= {"env", "metrics"} else found
        if isinstance(values, dict) and values and all(map(_is_key, values)):
            gpu = _device(found) if values is not found else None
            return Source(TOOL, [replace(each, gpus=gpu) for each in _of_json(values)])
        return None
    head = text.partition("\n")[0]
    if found is None and ";" in head and re.search(r";[^;]+-\w+", head):
        return Source(TOOL, list(_of_csv(path.stem, text)))
    return None


def _is_key(key: str) -> bool:
    return key.startswith("tritonbench_")


def _device(found: dict[str, Any]) -> tuple[str, ...] | None:
    """The card that `env` names; None if it names none."""
    device = found["env"].get("device") if isinstance(found["env"], dict) else None
    return (device,) if isinstance(device, str) and device not in ("", "unknown") else None


def _of_json(found: dict[str, Any]) -> Iterator[ForeignPoint]:
    for key, value in found.items():
        match = _KEY.fullmatch(key)
        if match and match["x"] != _AVERAGE:
            yield from _readings(
                match["name"], match["x"], match["provider"], match["metric"], value
            )


def _of_csv(name: str, text: str) -> Iterator[ForeignPoint]:
    """name: of the operator, which is only in the file's name."""
    head, *rows = csv.reader(text.splitlines(), delimiter=";")
    for number, row in enumerate(rows, 2):
        if not row or row[0] in (_AVERAGE, "hashes"):
            continue
        if len(row) != len(head):
            raise HpmlError(
                f"line {number} has {len(row)} columns, the head has {len(head)}"
            )
        for column, text_of_cell in zip(head[1:], row[1:], strict=True):
            provider, dash, metric_of_cell = column.partition("-")
            if not dash:  # a metric of the input, not of an implementation
                provider = ""
                metric_of_cell = column
            yield from _readings(name, row[0], provider, metric_of_cell, text_of_cell)


def _value(written: Any) -> Any:
    """The value of a cell: a number, also if it is text, like a latency in JSON.

    Of three numbers, at the median, the longest and the shortest latency, the first.
    """
    if not isinstance(written, str | list):
        return written
    parts = written.strip("()").split(",") if isinstance(written, str) else written
    try:
        first, *_ = map(float, parts)
    except (TypeError, ValueError):
        return written
    return first


def _readings(
    name: str, x: str, provider: str, measured: str, written: Any
) -> Iterator[ForeignPoint]:
    """A cell, of an operator at an input and of an implementation, as a ForeignPoint: none if it
    was not measured, a failure for text."""
    value = _value(written)
    params = parameters({"x": value_of(x), "implementation": provider})
    if isinstance(value, bool) or value is None or value == "":
        return
    if isinstance(value, int | float):
        factor, unit, direction = _KNOWN.get(measured, (1.0, "1", None))
        info = {"statistic": "median"} if measured == "latency" else {}
        samples = metric(unit, direction, [value * factor], **info)
        yield ForeignPoint(name, params, {metric_name(measured): samples})
    elif isinstance(value, str) and measured in _KNOWN:
        yield ForeignPoint(name, params, failure=value)
