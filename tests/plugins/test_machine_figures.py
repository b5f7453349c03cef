"""The figures of the plugin `machine`, from Records as an H200 node gives them."""

from __future__ import annotations

import io
from typing import Any

import pytest
from charted import picture
from matplotlib.figure import Figure as Sheet
from msgspec.structs import replace
from records import a_record

from hpml_plugins import Record, Series, Table
from hpml_plugins.model.record import MetricSamples
from hpml_plugins.plugins.machine import charts, diagram, hpml_benchmarks

FIGURES = {figure.name: figure for figure in charts.FIGURES}
BENCHMARKS = {benchmark.name: benchmark for benchmark in hpml_benchmarks()}


def record(
    benchmark: str,
    metrics: dict[str, float],
    machine: str = "h200-x4",
    series: dict[str, dict[str, Any]] | None = None,
    **params: str | int,
) -> Record:
    columns = {name: Series.of(each) for name, each in (series or {}).items()}
    return a_record(
        BENCHMARKS[benchmark], metrics, params=params, machine=machine, series=columns
    )


def copy(
    size: str,
    rate: float,
    *,
    gpu: int = 0,
    memory: str = "pinned",
    machine: str = "h200-x4",
) -> Record:
    both = {"both": 1.8 * rate, "both_time": 1e-3} if memory == "pinned" else {}
    metrics = {
        "to_device": rate,
        "to_host": rate,
        "to_device_time": 1e-3,
        "to_host_time": 1e-3,
        **both,
    }
    return record("machine_host_copy", metrics, machine, memory=memory, size=size, gpu=gpu)


def peers(way: str, rate: float) -> Record:
    columns = {"from": ["0", "1"], "to": ["1", "0"], "bandwidth": [rate, rate * 1.01]}
    metrics = {"slowest": rate, "bandwidth": rate, "fastest": rate}
    return record("machine_peer_copy", metrics, series={"pairs": columns}, way=way)


def test_every_number_of_the_diagram_is_a_metric_of_a_point() -> None:
    for quantity in diagram.QUANTITIES:
        benchmark = BENCHMARKS[quantity.benchmark]
        assert quantity.metric in {metric.name for metric in benchmark.metrics}, quantity
        assert any(
            dict(point) | dict(quantity.params) == point for point in benchmark.points()
        ), quantity
        assert quantity.arrow in diagram.ARROWS
    for first, second, _ in diagram.ARROWS.values():
        assert {first, second} <= set(diagram.BOXES)
    assert set(diagram.ABOVE) <= set(diagram.ARROWS)


def test_the_diagram_takes_the_largest_copy_of_gpu_0_and_says_what_was_not_measured() -> (
    None
):
    records = [
        copy("4KiB", 2e9),
        copy("1GiB", 55.4e9),
        copy("16MiB", 54e9),
        copy("4GiB", 1e9, gpu=1),
    ]
    rows = {(row["arrow"], row["what"]): row for row in diagram.quantities(records).rows()}
    assert (
        rows["pcie", "to the GPU"]["bandwidth"],
        rows["pcie", "to the GPU"]["size"],
    ) == (
        55.4e9,
        "1GiB",
    )
    assert diagram.text_of(rows["pcie", "to the GPU"]) == "to the GPU: 55.4 GB/s"
    assert (
        diagram.text_of(rows["launch", "kernel in a graph"])
        == "kernel in a graph: not measured"
    )


@pytest.mark.parametrize(
    ("number", "unit", "text"),
    [
        (55.44e9, "B/s", "55.4 GB/s"),
        (4.2992e12, "B/s", "4.30 TB/s"),
        (784e9, "B/s", "784 GB/s"),
        (999.7e9, "B/s", "1.00 TB/s"),
        (5e-7, "s", "500 ns"),
        (8.8e-6, "s", "8.80 µs"),
        (0.0999, "s", "99.9 ms"),
    ],
)
def test_three_digits_and_a_prefix(number: float, unit: str, text: str) -> None:
    assert diagram.scaled(number, unit) == text


def test_the_diagram_has_a_panel_per_machine_with_its_numbers() -> None:
    sheet = Sheet()
    latency = record("machine_latency", {"time": 340e-9}, level="memory")
    table = diagram.quantities(
        [copy("1GiB", 55.4e9), latency, copy("1GiB", 26e9, machine="h100-x1")]
    )
    FIGURES["node"].draw(sheet, table)  # type: ignore[misc]
    sheet.savefig(io.BytesIO(), format="svg")
    # more numbers first
    assert [panel.get_title(loc="left") for panel in sheet.axes] == ["h200-x4", "h100-x1"]
    texts = "\n".join(text.get_text() for text in sheet.axes[0].texts)
    assert (
        "to the GPU: 55.4 GB/s\nfrom the GPU: 55.4 GB/s\nboth at once: 99.7 GB/s" in texts
    )
    assert "copy, read + written: not measured\nload: 340 ns" in texts
    assert "GPU\nmemory" in texts and "GPU" in texts.splitlines()
    assert (
        "storage" not in texts and "launch" not in texts
    )  # nothing was measured between them
    page_fault = record("machine_core", {"page_fault": 2e-6}, machine="cpu")
    diagram.draw(host := Sheet(), diagram.quantities([page_fault]))
    drawn = {text.get_text() for text in host.axes[0].texts}
    assert drawn == {
        "CPU",
        "host\nmemory",
        "triad, all threads: not measured\npage fault: 2.00 µs",
    }
    assert diagram.draw(empty := Sheet(), diagram.quantities([])) is None
    assert empty.axes == []


def test_arrows_run_between_the_sides_that_face_each_other() -> None:
    below, above, right = (0.0, 0.0, 1.0, 0.5), (0.0, 3.0, 1.0, 0.5), (5.0, 0.0, 1.0, 0.5)
    assert diagram.facing(below, above) == ((0.0, 0.5), (0.0, 2.5))
    assert diagram.facing(above, below) == ((0.0, 2.5), (0.0, 0.5))
    assert diagram.facing(below, right) == ((1.0, 0.0), (4.0, 0.0))


def test_copies_by_direction_and_no_row_for_what_has_no_direction() -> None:
    table = FIGURES["host_copies"].table(
        [copy("1GiB", 55e9), copy("1GiB", 14e9, memory="pageable")]
    )
    assert [(row["memory"], row["direction"]) for row in table.rows()] == [
        ("pageable", "to device"),
        ("pageable", "to host"),
        ("pinned", "both"),
        ("pinned", "to device"),
        ("pinned", "to host"),
    ]
    assert {row["size"] for row in table.rows()} == {2.0**30}
    drawn = picture(FIGURES["host_copies"], table)
    assert len(drawn.marks["point"]) == 5


def test_the_spread_over_gpus_by_hand() -> None:
    rates = (55e9, 56e9, 54e9, 50e9)
    records = [copy("16MiB", rate, gpu=gpu) for gpu, rate in enumerate(rates)]
    rows = {row["direction"]: row for row in FIGURES["gpu_spread"].table(records).rows()}
    found = rows["to device"]
    assert (found["gpus"], found["lowest"], found["median"], found["highest"]) == (
        4,
        50e9,
        54.5e9,
        56e9,
    )
    assert found["spread"] == pytest.approx(6 / 54.5)
    assert (
        len(FIGURES["gpu_spread"].table(records[:1])) == 0
    )  # of one GPU there is no spread


def test_pairs_are_a_heat_map_with_their_numbers() -> None:
    drawn = picture(FIGURES["pairs"], [peers("one", 395e9), peers("both", 784e9)])
    assert {
        "395",
        "399",
        "784",
        "792",
        "h200-x4, one way",
        "h200-x4, both ways at once",
    } <= drawn.texts
    assert (
        len(drawn.marks["rect mark"] if "rect mark" in drawn.marks else drawn.marks["rect"])
        == 4
    )


def test_the_staircase_and_the_threads_are_lines() -> None:
    stairs = {"working_set": [65536.0, 4.0 * 2**30], "bandwidth": [31e12, 4.3e12]}
    cache = record(
        "machine_cache", {"l2": 9e12, "memory": 4.3e12}, series={"staircase": stairs}
    )
    assert len(picture(FIGURES["staircase"], [cache]).marks["point"]) == 2
    threads = {"threads": [1.0, 16.0], "bandwidth": [13e9, 129e9]}
    triad = record(
        "machine_triad",
        {"bandwidth": 129e9, "one_thread": 13e9},
        series={"threads": threads},
    )
    assert len(picture(FIGURES["triad"], [triad]).marks["point"]) == 2


def test_collectives_are_named_by_what_they_run_over() -> None:
    sizes = {"size": [8.0, 1048576.0], "time": [1e-5, 2e-5]}
    metrics = {"latency": 1e-5, "time_1mib": 2e-5}
    over_nccl = record(
        "machine_collective",
        metrics,
        series={"sizes": sizes},
        collective="all_reduce",
        over="nccl",
        ranks=2,
    )
    gloo = record(
        "machine_collective_gloo",
        metrics,
        series={"sizes": sizes},
        collective="send_receive",
        ranks=2,
    )
    rows = list(FIGURES["collectives"].table([over_nccl, gloo]).rows())
    assert {(row["over"], row["collective"]) for row in rows} == {
        ("nccl", "all-reduce"),
        ("gloo", "send-receive"),
    }
    assert len(picture(FIGURES["collectives"], [over_nccl, gloo]).marks["point"]) == 4


def test_the_correlation_of_logarithms_by_hand() -> None:
    assert charts.log_correlation([1, 2, 4], [3, 12, 48]) == pytest.approx(1.0)  # y = 3 x²
    assert charts.log_correlation([1, 2, 4], [8, 4, 2]) == pytest.approx(-1.0)  # y = 8 / x
    assert charts.log_correlation([1, 2], [1, 2]) is None
    assert charts.log_correlation([1, 2, 4], [5, 5, 5]) is None
    # the logarithms are equal
    assert charts.log_correlation([1, 2, 4], [1e9, 1e9 + 1e-7, 1e9]) is None


def test_the_predictor_of_a_host_bound_time() -> None:
    """Machine k is k times faster in Python and launches k times faster; its page faults follow
    neither."""
    records = []
    for number, (k, fault) in enumerate([(1.0, 2e-6), (1.8, 1e-6), (3.0, 2e-6)]):
        core = {"python": 1e7 * k, "multiply_add": 1e9, "page_fault": fault}
        launch = {
            "eager": 9e-6 / k,
            "numba": 2e-5,
            "streams": 1e-5,
            "graph": 5e-7,
            "round_trip": 1e-5,
        }
        records += [
            record(name, metrics, f"m{number}")
            for name, metrics in (("machine_core", core), ("machine_launch", launch))
        ]
    table: Table = FIGURES["predictors"].table(records)
    rows = {(row["host-bound time"], row["predictor"]): row for row in table.rows()}
    best = rows["machine_launch.eager", "machine_core.python"]
    assert (best["machines"], best["times, largest / smallest"]) == (3, pytest.approx(3.0))
    assert best["correlation"] == pytest.approx(1.0)
    # the same everywhere
    assert rows["machine_launch.eager", "machine_core.multiply_add"]["correlation"] is None
    assert abs(rows["machine_launch.eager", "machine_core.page_fault"]["correlation"]) < 0.5
    for each in records[1::2]:  # the launches: their core was as fast as they were
        each.metrics["eager"].info["core_rate"] = 500.0 / each.metrics["eager"].value
    known = [
        row
        for row in FIGURES["predictors"].table(records).rows()
        if row["predictor"] == "core's rate meanwhile"
    ]
    # the others were not looked at
    assert [row["host-bound time"] for row in known] == ["machine_launch.eager"]
    assert (known[0]["machines"], known[0]["rounds"]) == (3, None)
    assert known[0]["correlation"] == pytest.approx(1.0)
    two = FIGURES["predictors"].table(records[:4])
    assert {row["correlation"] for row in two.rows()} == {None}
    assert {row["machines"] for row in two.rows()} == {2}
    # of one machine there is nothing to tell
    assert len(FIGURES["predictors"].table(records[:2])) == 0


def test_the_cores_rate_predicts_over_the_rounds_of_one_machine() -> None:
    """The second round launches half as fast as the first, at half the rate; the third lies between
    them."""
    info: dict[str, str | float] = {"core_rate": 7e7, "core_rates": "1e8; 5e7; 7e7"}
    times = [1e-5, 1e-5, 2e-5, 2e-5, 1e-3 / 70]
    launch = record("machine_launch", {"eager": 1e-5})
    told = MetricSamples("s", "lower", times, info, rounds=[2, 2, 1])
    (row,) = FIGURES["predictors"].table([replace(launch, metrics={"eager": told})]).rows()
    assert (row["predictor"], row["machines"], row["rounds"]) == (
        "core's rate meanwhile",
        1,
        3,
    )
    assert row["correlation"] == pytest.approx(1.0)
    assert (
        row["times, largest / smallest"],
        row["predictor, largest / smallest"],
    ) == pytest.approx((2.0, 2.0))
    # where not every round has told its rate, the Record is one value
    told = replace(told, info={**info, "core_rates": "1e8; 5e7"})
    assert len(FIGURES["predictors"].table([replace(launch, metrics={"eager": told})])) == 0


def test_the_best_predictor_of_a_time_comes_first() -> None:
    records = []
    for number, k in enumerate((1.0, 2.0, 3.0)):
        core = {"python": 1e7 * (3.0 - k / 2), "multiply_add": 1e9 * k, "page_fault": 2e-6}
        records += [
            record("machine_core", core, f"m{number}"),
            record("machine_calls", {"synchronize": 1 / k}, f"m{number}"),
        ]
    predicted = [row["predictor"] for row in FIGURES["predictors"].table(records).rows()]
    assert predicted == [
        "machine_core.multiply_add",
        "machine_core.python",
        "machine_core.page_fault",
    ]
