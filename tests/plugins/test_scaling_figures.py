"""The tables and charts of the plugin `scaling`, from Records as two GPUs give them."""

from __future__ import annotations

from typing import Any

import pytest

from hpml_plugins import Record, Series
from hpml_plugins.model.record import MetricSamples
from hpml_plugins.plugins.scaling import hpml_benchmarks, hpml_figures
from hpml_plugins.plugins.scaling.dp import DP_UNITS
from hpml_plugins.report.charts import render
from hpml_plugins.report.figures import Drawable

FIGURES = {figure.name: figure for figure in hpml_figures()}
BENCHMARKS = {benchmark.name: benchmark for benchmark in hpml_benchmarks()}


def record(benchmark: str, machine: str = "two-gpus", *, samples: dict[str, list[float]], **params: Any) -> Record:
    """A Record with every metric of the benchmark; 1.0 where the test does not care."""
    metrics = {
        metric.name: MetricSamples(
            metric.unit, metric.direction, samples.get(metric.name, [1.0]), {"parameters": 1_000_000}
        )
        for metric in BENCHMARKS[benchmark].metrics
    }
    profile = {name: samples.get(name, [1.0]) for name in DP_UNITS}
    waited = [0.003, 0.001]
    ranks = {"rank": [0.0, 1.0], "reduction": waited, "kernels": [0.04, 0.05], "collective_share": [0.2, 0.1]}
    series = {"profile": Series(profile), "ranks": Series(ranks), "epochs": Series({"steps": [3.0, 6.0]})}
    return Record(
        benchmark=benchmark, plugin="scaling", version="1", params=params, status="ok", machine=machine,
        metrics=metrics, series=series,
    )  # fmt: skip


POINT = {"batch": 512, "dtype": "float32"}
SINGLE = record("scaling_single", samples={"step": [0.010], "epoch": [0.98]}, **POINT)
DDP = record(
    "scaling_ddp",
    samples={
        "step": [0.011],
        "epoch": [0.55],
        "speedup": [1.8],
        "efficiency": [0.8, 0.9, 1.0],
        "computation": [0.009],
        "communication": [0.002],
        "exposed": [0.001],
        "idle": [0.0],
        "subtracted": [0.001],
        "bus_bandwidth": [2e9],
        "ceiling": [4e9],
        "utilization": [0.5],
    },
    gpus=2,
    **POINT,
)
DP = record("scaling_dp", samples={"speedup": [0.3], "efficiency": [0.15]}, gpus=2, **POINT)


def rows(name: str, *records: Record) -> list[dict[str, Any]]:
    return list(FIGURES[name].table(records).rows())


def test_table_1_has_time_speed_up_and_the_efficiency_with_its_interval() -> None:
    ddp, single = rows("table1", SINGLE, DDP)
    assert (single["method"], single["gpus"], single["epoch"], single["speedup"]) == ("one GPU", 1, 0.98, 1.0)
    assert (ddp["method"], ddp["scaling"], ddp["gpus"], ddp["epoch"]) == ("DDP", "weak", 2, 0.55)
    assert (ddp["speedup"], ddp["efficiency"], ddp["from"], ddp["to"]) == (1.8, 0.9, 0.8, 1.0)


def test_table_2_is_seconds_of_an_epoch() -> None:
    (row,) = rows("table2", DDP)
    # 0.55 s / 11 ms are 50 steps.
    assert row["computation"] == pytest.approx(0.45)
    assert row["communication"] == pytest.approx(0.1)
    assert row["exposed"] == pytest.approx(0.05)
    assert row["subtracted"] == pytest.approx(0.05)
    # The reductions took 3 ms on one rank and 1 ms on that which came last: 2 ms less 1 ms.
    assert row["waiting"] == pytest.approx(0.05)


def test_table_3_has_the_ceiling_and_the_exercise_s_own_arithmetic_beside_it() -> None:
    (row,) = rows("table3", DDP)
    assert (row["bus_bandwidth"], row["ceiling"], row["utilization"]) == (2e9, 4e9, 0.5)
    assert row["by_subtraction"] == pytest.approx(4e9)  # 2 · 1 / 2 · 4 MB in 1 ms
    assert row["last_rank"] == pytest.approx(4e9)


def test_dataparallel_has_no_ranks_that_wait() -> None:
    import msgspec

    alone = msgspec.structs.replace(DP, series={"profile": DP.series["profile"]})
    assert rows("table2", alone)[0]["waiting"] is None
    assert rows("table3", alone)[0]["last_rank"] is None


def test_several_gpus_that_cost_nothing_have_no_bandwidth_by_subtraction() -> None:
    free = record("scaling_ddp", samples={"subtracted": [-1e-4]}, gpus=2, **POINT)
    assert rows("table3", free)[0]["by_subtraction"] is None


def test_points_of_a_cpu_are_not_taken_for_gpus() -> None:
    cpu = record("scaling_ddp_cpu", samples={}, ranks=2, scaling="strong", **POINT)
    (row,) = rows("table1", cpu)
    assert (row["method"], row["scaling"], row["gpus"]) == ("DDP over gloo, small model", "strong", 2)
    assert rows("speedup", cpu, DDP) == rows("speedup", DDP)
    assert "scaling_ddp_cpu" not in FIGURES["speedup"].benchmarks


def test_dataparallel_s_step_is_drawn_in_its_parts() -> None:
    svg = render(Drawable("scaling", FIGURES["dp_step"], FIGURES["dp_step"].table([DP])), "svg")
    for part in ("scatter", "replicate", "parallel_apply", "gather", "backward", "update"):
        assert f">{part}<".encode() in svg
    assert b"512 images for each of 2 GPUs" in svg


@pytest.mark.parametrize("name", ["speedup", "efficiency", "efficiency_over_batch"])
def test_charts_over_gpus_are_drawn_for_one_machine_and_for_two(name: str) -> None:
    import msgspec

    figure = FIGURES[name]
    records = [DDP, DP, msgspec.structs.replace(DDP, machine="other")]
    svg = render(Drawable("scaling", figure, figure.table(records)), "svg")
    assert b">two-gpus<" in svg
    assert b">other<" in svg
    assert (b">ideal<" in svg) == (name != "efficiency_over_batch")


def test_efficiency_is_drawn_with_its_interval_a_row_a_point_and_a_mark_a_number_of_gpus() -> None:
    import matplotlib.figure

    four = record("scaling_ddp", samples={"efficiency": [0.7]}, gpus=4, **POINT)
    sheet = matplotlib.figure.Figure()
    assert FIGURES["efficiency"].draw is not None
    FIGURES["efficiency"].draw(sheet, FIGURES["efficiency"].table([DDP, DP, four]))
    (axes,) = sheet.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["DDP weak float32, 512", "DP weak float32, 512"]
    two, of_four = axes.containers
    assert (two.get_label(), list(two.lines[0].get_xdata())) == ("2 GPUs", [0.9, 0.15])
    assert (of_four.get_label(), list(of_four.lines[0].get_xdata())) == ("4 GPUs", [0.7])
    ((low, _), (high, _)), _ = two.lines[2][0].get_segments()
    assert (low, high) == pytest.approx((0.8, 1.0))


def test_a_way_looks_alike_on_machines_of_two_and_of_four_gpus() -> None:
    import matplotlib.figure
    import msgspec

    four = msgspec.structs.replace(
        record("scaling_ddp", samples={"efficiency": [0.7]}, gpus=4, **POINT), machine="four"
    )
    sheet = matplotlib.figure.Figure()
    draw = FIGURES["efficiency_over_batch"].draw
    assert draw is not None
    # With DP before it, DDP is not the first line of the one panel, and the only one of the other.
    draw(sheet, FIGURES["efficiency_over_batch"].table([DP, DDP, four]))
    curves = [
        {line.get_label(): line for line in axes.get_lines() if len(line.get_xdata()) and line.get_marker() != ""}
        for axes in sheet.axes
    ]
    of_two, of_four = (next(lines["DDP weak float32"] for lines in curves if len(lines) == n) for n in (2, 1))
    assert of_two.get_color() == of_four.get_color()
    assert (of_two.get_fillstyle(), of_four.get_fillstyle()) == ("full", "none")


def test_the_wire_and_the_large_batches_are_told_with_what_they_were_done() -> None:
    wire = record("scaling_wire_ddp", samples={"gradients": [44_695_848]}, ranks=2, model="resnet18")
    assert rows("wire", wire)[0]["gradients"] == 44_695_848
    small = record("scaling_small_batch", samples={"test_accuracy": [0.8]}, data="cifar10")
    large = record(
        "scaling_large_batch", samples={"test_accuracy": [0.3]}, data="cifar10", gpus=2, batch=8192, recipe="plain"
    )
    found = [
        (row["gpus"], row["batch"], row["recipe"], row["updates"], row["test_accuracy"])
        for row in rows("large_batch", large, small)
    ]
    assert found == [(1, 128, "the small batch's", 6, 0.8), (2, 8192, "plain", 6, 0.3)]


def test_vgg16_has_a_row_a_rank() -> None:
    vgg = record("scaling_vgg16", samples={"step": [0.1], "single": [0.09], "speedup": [1.8]}, gpus=2, **POINT)
    first, second = rows("vgg16", vgg)
    assert (first["rank"], first["single"], first["step"], first["speedup"]) == (0, 0.09, 0.1, 1.8)
    assert (first["collective_share"], second["collective_share"], second["kernels"]) == (0.2, 0.1, 0.05)


def test_speed_ups_are_drawn_of_the_batch_that_has_the_most_numbers_of_gpus() -> None:
    import matplotlib.figure

    four = record("scaling_ddp", samples={"speedup": [3.6]}, gpus=4, **POINT)
    larger = record("scaling_ddp", samples={"speedup": [3.9]}, gpus=4, **{**POINT, "batch": 2048})
    alone = record("scaling_ddp", samples={"speedup": [3.1]}, gpus=4, **{**POINT, "dtype": "bf16"})
    largest = record("scaling_ddp", samples={"speedup": [3.3]}, gpus=4, batch=2048, dtype="bf16")
    sheet = matplotlib.figure.Figure()
    assert FIGURES["speedup"].draw is not None
    FIGURES["speedup"].draw(sheet, FIGURES["speedup"].table([larger, four, DDP, alone, largest]))
    lines = {str(line.get_label()): list(line.get_ydata()) for line in sheet.axes[0].get_lines()}
    assert lines == {
        "ideal": [1, 2, 4],
        "DDP weak float32, batch 512": [1.0, 1.8, 3.6],
        "DDP weak bf16, batch 2048": [1.0, 3.3],
    }
