"""The chart of bandwidth over size, and NCCL's choices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hpml_plugins import Axis, Figure, Record, Table, line_chart
from hpml_plugins.plugins.allreduce.collectives import BENCHMARKS, METRICS, size_in_bytes

NAMES = tuple(metric.name for metric in METRICS)


def bandwidth(records: Sequence[Record]) -> Table:
    """Short messages are limited by latency, long ones by the link. Bus bandwidth is defined as in
    nccl-tests: it can be compared across collectives and numbers of ranks, and with the speed of
    the link.
    """
    table = Table.of_records(records, *NAMES, more=_point, units={"size": "B"})
    columns = (
        "machine",
        "over",
        "collective",
        "nodes",
        "ranks",
        "size",
        *NAMES,
        "algorithm",
        "protocol",
        "channels",
    )
    return table.select(*columns).sorted("over", "machine", "collective", "ranks", "size")


def _point(record: Record) -> dict[str, Any]:
    params, info = record.params, record.metrics["time"].info
    collective = str(params.get("collective", "all_reduce")).replace("_", "-")
    return {
        "over": "NCCL" if record.benchmark.endswith("nccl") else "gloo",
        "collective": collective + (" out of place" if params.get("place") == "out" else ""),
        "nodes": params.get("nodes", 1),
        "ranks": int(info.get("ranks", 0)) or params.get("ranks"),
        "size": size_in_bytes(str(params["size"])),
        **{name: info.get(name) for name in ("algorithm", "protocol")},
        "channels": int(info["channels"]) if "channels" in info else None,
    }


CHART = line_chart(
    Axis("size", "message size", "B", log=True, base=2),
    Axis("bus_bandwidth", "bus bandwidth", "B/s", zero=True),
    "collective",
    dash=("machine", "{ranks} ranks", "nodes: {nodes}"),
    panel="over",
    independent=("x", "y"),
)
FIGURES = (
    Figure(
        "bandwidth",
        "Bus bandwidth by message size",
        tuple(each.name for each in BENCHMARKS),
        bandwidth,
        CHART,
    ),
)
