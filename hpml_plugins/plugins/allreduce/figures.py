"""The chart of bandwidth over size, and what NCCL chose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hpml_plugins import Axis, Figure, Record, Table, line_chart
from hpml_plugins.plugins.allreduce.formulas import size_in_bytes

UNITS = {"size": "B", "time": "s", "algorithm_bandwidth": "B/s", "bus_bandwidth": "B/s"}
BENCHMARKS = (
    "allreduce_nccl", "collectives_nccl", "allreduce_gloo", "collectives_gloo", "allreduce_nodes_nccl",
    "allreduce_nodes_gloo",
)  # fmt: skip


def bandwidth_table(records: Sequence[Record]) -> Table:
    """One row per point: library, collective, ranks and size, and what NCCL chose."""
    rows = [_row(record) for record in records if record.status == "ok"]
    rows.sort(key=lambda row: (row["over"] != "NCCL", row["machine"], row["collective"], row["ranks"], row["size"]))
    return Table.of(rows, UNITS)


def _row(record: Record) -> dict[str, Any]:
    params, info = record.params, record.metrics["time"].info
    collective = str(params.get("collective", "all_reduce")).replace("_", "-")
    return {
        "machine": record.machine,
        "over": "NCCL" if record.benchmark.endswith("nccl") else "gloo",
        "collective": collective + (" out of place" if params.get("place") == "out" else ""),
        "nodes": params.get("nodes", 1),
        "ranks": int(info.get("ranks", 0)) or params.get("ranks"),
        "size": size_in_bytes(str(params["size"])),
        **{name: record.median(name) for name in ("time", "algorithm_bandwidth", "bus_bandwidth")},
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


def figures() -> list[Figure]:
    """The figures of the plugin."""
    caption = (
        "Short messages are limited by latency, long ones by the link. Bus bandwidth is defined as in nccl-tests: it can "
        "be compared across collectives and numbers of ranks, and with the speed of the link."
    )
    return [Figure("bandwidth", "Bus bandwidth by message size", BENCHMARKS, bandwidth_table, CHART, caption)]
