"""The chart of bandwidth over size, and what NCCL chose beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hpml_plugins import Figure, Record, Table, legend_below, panels
from hpml_plugins.plugins.allreduce.formulas import size_in_bytes

UNITS = {"size": "B", "time": "s", "algorithm_bandwidth": "B/s", "bus_bandwidth": "B/s"}
TICKS = ("1KiB", "32KiB", "1MiB", "16MiB", "1GiB", "8GiB")


def bandwidth_table(records: Sequence[Record]) -> Table:
    """A row a point: the collective, over what, its ranks and size, and with NCCL what it chose."""
    rows = [_row(record) for record in records if record.status == "ok"]
    rows.sort(key=lambda row: (row["machine"], row["over"], row["collective"], row["ranks"], row["size"]))
    return Table.of(rows, UNITS)


def _row(record: Record) -> dict[str, Any]:
    params, told = record.params, record.metrics["time"].info or {}
    place = params.get("place")
    return {
        "machine": record.machine,
        "over": "NCCL" if record.benchmark.endswith("nccl") else "gloo",
        "collective": str(params.get("collective", "all_reduce")) + (" out of place" if place == "out" else ""),
        "nodes": params.get("nodes", 1),
        "ranks": int(told.get("ranks", 0)) or params.get("ranks"),
        "size": size_in_bytes(str(params["size"])),
        **{name: record.median(name) for name in ("time", "algorithm_bandwidth", "bus_bandwidth")},
        "algorithm": told.get("algorithm"),
        "protocol": told.get("protocol"),
        "channels": int(told["channels"]) if "channels" in told else None,
    }


def draw_bandwidths(sheet: Any, table: Table) -> None:
    """Bus bandwidth against size: one panel a machine and library, one line a collective and number of ranks."""
    groups = table.groups("machine", "over")
    for axes, ((machine, over), of_panel) in zip(panels(sheet, len(groups)), groups.items(), strict=True):
        for (collective, ranks, nodes), of_one in Table.of(of_panel).groups("collective", "ranks", "nodes").items():
            between = f", {nodes} nodes" if nodes != 1 else ""
            axes.semilogx(
                [row["size"] for row in of_one],
                [float(row["bus_bandwidth"] or 0) / 1e9 for row in of_one],
                label=f"{str(collective).replace('_', '-')}, {ranks} ranks{between}",
                base=2,
            )
        axes.set(title=f"{machine}, {over}", xlabel="size", ylabel="bus bandwidth in GB/s")
        largest = max(float(row["size"] or 0) for row in of_panel)
        ticks = {size_in_bytes(size): size for size in TICKS if size_in_bytes(size) <= largest}
        axes.set_xticks(list(ticks), ticks.values(), rotation=30)
        axes.set_ylim(bottom=0)
    legend_below(sheet)


def figures() -> list[Figure]:
    """What the plugin draws."""
    return [
        Figure(
            "bandwidth",
            "Bus bandwidth over size",
            (
                "allreduce_nccl", "collectives_nccl", "allreduce_gloo", "collectives_gloo",
                "allreduce_nodes_nccl", "allreduce_nodes_gloo",
            ),
            bandwidth_table,
            draw_bandwidths,
            "Short messages are bound by latency, long ones by the link. Bus bandwidth is as nccl-tests defines it: "
            "curves of different collectives and numbers of ranks can be held against the same link.",
        )
    ]  # fmt: skip
