"""The chart of the plugin `allreduce`, from Records as two H200s and a CPU give them."""

from __future__ import annotations

from charted import picture
from records import a_record

from hpml_plugins import Record
from hpml_plugins.model.record import MetricSamples
from hpml_plugins.plugins.allreduce.charts import FIGURES

(BANDWIDTH,) = FIGURES


def record(
    benchmark: str, seconds: float, info: dict[str, str | float], **params: str | int
) -> Record:
    metrics = {
        "time": MetricSamples("s", "lower", [seconds], info),
        "algorithm_bandwidth": MetricSamples("B/s", "higher", [2**20 / seconds]),
        "bus_bandwidth": MetricSamples("B/s", "higher", [2**20 / seconds]),
    }
    return a_record(benchmark, metrics, params=params, machine="h200-x2")


CHOSEN: dict[str, str | float] = {
    "ranks": 2.0,
    "algorithm": "RING",
    "protocol": "LL",
    "channels": 16.0,
}
RECORDS = [
    record("allreduce_nccl", 1.3e-5, CHOSEN, size="1MiB", ranks=2, place="in"),
    record("allreduce_nccl", 1.1e-5, CHOSEN, size="1KiB", ranks=2, place="in"),
    record("allreduce_nccl", 1.3e-5, CHOSEN, size="1MiB", ranks=2, place="out"),
    record(
        "collectives_nccl",
        1.4e-5,
        {"ranks": 2.0},
        size="1MiB",
        ranks=2,
        collective="all_gather",
    ),
    record("allreduce_nodes_gloo", 1e-2, {"ranks": 2.0}, size="1MiB", nodes=2),
]


def test_rows_stand_by_size_and_say_what_nccl_chose() -> None:
    rows = list(BANDWIDTH.table(RECORDS).rows())
    assert [
        (row["over"], row["collective"], row["ranks"], row["nodes"], row["size"])
        for row in rows
    ] == [
        ("NCCL", "all-gather", 2, 1, 1048576),
        ("NCCL", "all-reduce", 2, 1, 1024),
        ("NCCL", "all-reduce", 2, 1, 1048576),
        ("NCCL", "all-reduce out of place", 2, 1, 1048576),
        ("gloo", "all-reduce", 2, 2, 1048576),
    ]
    assert (rows[2]["algorithm"], rows[2]["protocol"], rows[2]["channels"]) == (
        "RING",
        "LL",
        16,
    )
    assert rows[4]["algorithm"] is None


def test_the_chart_names_each_line_and_keeps_libraries_apart() -> None:
    drawn = picture(BANDWIDTH, RECORDS)
    assert {
        "NCCL",
        "gloo",
        "all-reduce out of place",
        "h200-x2, 2 ranks, nodes: 2",
    } <= drawn.texts
    assert len(drawn.marks["point"]) == 5
    assert (
        "message size: 1024; bus bandwidth: 95325090909.1; series: all-reduce;"
        in " ".join(drawn.marks["point"])
    )
