"""The tables and charts of the plugin `scaling`, from Records as two GPUs give them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from charted import picture
from records import a_record

from hpml_plugins import Record, Series
from hpml_plugins.model.record import MetricSamples
from hpml_plugins.plugins.scaling import hpml_benchmarks, hpml_figures
from hpml_plugins.plugins.scaling.dp import DP_UNITS

FIGURES = {figure.name: figure for figure in hpml_figures()}
BENCHMARKS = {benchmark.name: benchmark for benchmark in hpml_benchmarks()}


def record(
    benchmark: str,
    machine: str = "two-gpus",
    *,
    samples: dict[str, list[float]],
    **params: Any,
) -> Record:
    """A Record with every metric of the benchmark; 1.0 where the test does not care."""
    metrics = {
        metric.name: MetricSamples(
            metric.unit,
            metric.direction,
            samples.get(metric.name, [1.0]),
            {"parameters": 1_000_000},
        )
        for metric in BENCHMARKS[benchmark].metrics
    }
    profile = {name: samples.get(name, [1.0]) for name in DP_UNITS}
    waited = [0.003, 0.001]
    ranks = {
        "rank": [0.0, 1.0],
        "reduction": waited,
        "kernels": [0.04, 0.05],
        "collective_share": [0.2, 0.1],
    }
    ranks["utilisation"] = [0.9, 0.8]
    series = {
        "profile": Series(profile),
        "ranks": Series(ranks),
        "epochs": Series({"steps": [3.0, 6.0]}),
    }
    return a_record(benchmark, metrics, params=params, machine=machine, series=series)


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
        "apart": [0.0105],
        "together": [0.0112],
        "bus_bandwidth": [2e9],
        "ceiling": [4e9],
        "utilization": [0.5],
    },
    gpus=2,
    **POINT,
)
DP = record("scaling_dp", samples={"speedup": [0.3], "efficiency": [0.15]}, gpus=2, **POINT)


def rows(name: str, *records: Record) -> list[dict[str, Any]]:
    figure = FIGURES[name]
    return list(
        figure.table(
            [each for each in records if each.benchmark in figure.benchmarks]
        ).rows()
    )


def test_table_1_has_time_speed_up_and_the_efficiency_with_its_interval() -> None:
    ddp, single = rows("table1", SINGLE, DDP)
    assert (single["method"], single["gpus"], single["epoch"], single["speedup"]) == (
        "one GPU",
        1,
        0.98,
        1.0,
    )
    assert (ddp["method"], ddp["scaling"], ddp["gpus"], ddp["epoch"]) == (
        "DDP",
        "weak",
        2,
        0.55,
    )
    assert (
        ddp["speedup"],
        ddp["efficiency"],
        ddp["efficiency_low"],
        ddp["efficiency_high"],
    ) == (
        1.8,
        0.9,
        0.8,
        1.0,
    )


LOADING = record(
    "scaling_loading",
    samples={
        "step": [0.040],
        "epoch": [2.0],
        "train": [0.011],
        "copy": [0.001],
        "loading": [0.030],
    },
    batch=512,
    gpus=2,
)


def test_copies_and_loading_of_an_epoch_stand_beside_the_runs_of_the_same_batch_and_gpus() -> (
    None
):
    ddp, single = rows("table1", SINGLE, DDP, LOADING)
    assert (ddp["copy"], ddp["loading"]) == (
        pytest.approx(0.05),
        pytest.approx(1.5),
    )  # 50 steps
    assert (single["copy"], single["loading"]) == (
        None,
        None,
    )  # of one GPU it was not measured
    assert rows("table2", DDP, LOADING)[0]["loading"] == pytest.approx(1.5)
    (row,) = rows("loading", LOADING)
    found = row["gpus"], row["train"], row["copy"], row["loading"], row["epoch"]
    assert found == (2, pytest.approx(0.55), pytest.approx(0.05), pytest.approx(1.5), 2.0)


def test_table_2_is_seconds_of_an_epoch() -> None:
    (row,) = rows("table2", DDP)
    # 0.55 s / 11 ms are 50 steps.
    assert row["computation"] == pytest.approx(0.45)
    assert row["communication"] == pytest.approx(0.1)
    assert row["exposed"] == pytest.approx(0.05)
    assert row["overlapped"] == pytest.approx(0.05)
    assert row["subtracted"] == pytest.approx(0.05)
    # In turns: 10.5 ms without exchange and 11.2 ms with it, of 50 steps.
    assert row["compute"] == pytest.approx(0.525)
    assert row["exchange"] == pytest.approx(0.035)
    assert row["parts"] == pytest.approx(0.56)
    # The reductions took 3 ms on one rank and 1 ms on that which came last: 2 ms less 1 ms.
    assert row["waiting"] == pytest.approx(0.05)


def test_records_without_turns_have_a_profile_alone() -> None:
    profile = DDP.series["profile"]
    kept = {name: values for name, values in profile.columns.items() if name != "apart"}
    series = {**DDP.series, "profile": msgspec.structs.replace(profile, columns=kept)}
    del kept["together"]
    older, newer = rows("table2", msgspec.structs.replace(DDP, series=series), DDP)
    assert older["compute"] is older["exchange"] is older["parts"] is None
    assert (older["computation"], newer["exchange"]) == pytest.approx((0.45, 0.035))


def test_table_3_has_the_ceiling_and_the_exercise_s_own_arithmetic_beside_it() -> None:
    (row,) = rows("table3", DDP)
    assert (row["bus_bandwidth"], row["ceiling"], row["utilization"]) == (2e9, 4e9, 0.5)
    assert row["by_subtraction"] == pytest.approx(4e9)  # 2 · 1 / 2 · 4 MB in 1 ms
    assert row["last_rank"] == pytest.approx(4e9)
    assert row["reducing"] == pytest.approx(2)  # of 1 ms, 2 ms: the rest of them overlapped


def test_dataparallel_has_no_ranks_that_wait() -> None:
    alone = msgspec.structs.replace(DP, series={"profile": DP.series["profile"]})
    assert rows("table2", alone)[0]["waiting"] is None
    assert rows("table3", alone)[0]["last_rank"] is None


def test_several_gpus_that_cost_nothing_have_no_bandwidth_by_subtraction() -> None:
    free = record("scaling_ddp", samples={"subtracted": [-1e-4]}, gpus=2, **POINT)
    assert rows("table3", free)[0]["by_subtraction"] is None


def test_points_of_a_cpu_are_not_taken_for_gpus() -> None:
    cpu = record("scaling_ddp_cpu", samples={}, ranks=2, scaling="strong", **POINT)
    (row,) = rows("table1", cpu)
    assert (row["method"], row["scaling"], row["gpus"]) == (
        "DDP over gloo, small model",
        "strong",
        2,
    )
    assert rows("speedup", cpu, DDP) == rows("speedup", DDP)
    assert "scaling_ddp_cpu" not in FIGURES["speedup"].benchmarks


def test_dataparallel_s_step_is_drawn_in_its_parts() -> None:
    drawn = picture(FIGURES["dp_step"], [DP])
    assert {
        "scatter",
        "replicate",
        "parallel apply",
        "gather",
        "backward",
        "update",
    } <= drawn.texts
    assert {
        "step on one GPU, not profiled",
        "DataParallel's step, not profiled",
    } <= drawn.texts
    assert "two-gpus, float32, weak scaling, batch 512, 2 GPUs" in drawn.texts
    assert (len(drawn.marks["bar"]), len(drawn.marks["point"])) == (6, 2)


@pytest.mark.parametrize("name", ["speedup", "efficiency", "efficiency_over_batch"])
def test_charts_over_gpus_show_every_machine(name: str) -> None:
    drawn = picture(FIGURES[name], [DDP, DP, msgspec.structs.replace(DDP, machine="other")])
    assert any(text.startswith("two-gpus") for text in drawn.texts)
    assert any(text.startswith("other") for text in drawn.texts)


def test_efficiency_is_drawn_with_its_interval_one_row_per_point() -> None:
    four = record("scaling_ddp", samples={"efficiency": [0.7]}, gpus=4, **POINT)
    drawn = picture(FIGURES["efficiency"], [DDP, DP, four])
    assert {
        "DDP, weak, float32, batch 512",
        "DP, weak, float32, batch 512",
        "two-gpus, 4 GPUs",
    } <= drawn.texts
    efficiency = "efficiency: speed-up / GPUs"
    shown = {
        point.split(f"{efficiency}: ")[1].split(";")[0] for point in drawn.marks["point"]
    }
    assert shown == {"0.9", "0.15", "0.7"}
    assert any(
        f"{efficiency}: 0.8;" in whisker and "efficiency_high: 1;" in whisker
        for whisker in drawn.marks["rule mark"]
    )


def test_a_method_looks_alike_on_machines_of_two_and_of_four_gpus() -> None:
    four = record("scaling_ddp", "four", samples={"efficiency": [0.7]}, gpus=4, **POINT)
    drawn = picture(FIGURES["efficiency_over_batch"], [DP, DDP, four])
    assert {"two-gpus, 2 GPUs", "four, 4 GPUs"} <= drawn.texts
    (legend,) = drawn.marks["legend"]
    assert legend.endswith("with 2 values: DDP, weak, float32, DP, weak, float32")


def test_the_wire_and_the_large_batches_are_told_with_what_they_were_done() -> None:
    wire = record(
        "scaling_wire_ddp", samples={"gradients": [44_695_848]}, ranks=2, model="resnet18"
    )
    assert rows("wire", wire)[0]["gradients"] == 44_695_848
    small = record("scaling_small_batch", samples={"test_accuracy": [0.8]}, data="cifar10")
    large = record(
        "scaling_large_batch",
        samples={"test_accuracy": [0.3]},
        data="cifar10",
        gpus=2,
        batch=8192,
        recipe="plain",
    )
    found = [
        (row["gpus"], row["batch"], row["recipe"], row["updates"], row["test_accuracy"])
        for row in rows("large_batch", large, small)
    ]
    assert found == [(1, 128, "small batch", 6, 0.8), (2, 8192, "plain", 6, 0.3)]


def test_vgg16_has_a_row_a_rank() -> None:
    samples = {"step": [0.1], "epoch": [6.4], "single": [0.09], "speedup": [1.8]}
    first, second = rows("vgg16", record("scaling_vgg16", samples=samples, gpus=2, **POINT))
    assert (first["rank"], first["single"], first["step"], first["speedup"]) == (
        0,
        0.09,
        0.1,
        1.8,
    )
    assert (first["collective_share"], second["collective_share"], second["kernels"]) == (
        0.2,
        0.1,
        0.05,
    )
    assert (first["utilisation"], second["utilisation"]) == (0.9, 0.8)
    assert first["single_epoch"] == pytest.approx(
        64 * 2 * 0.09
    )  # 64 steps of two GPUs, 128 of one


def test_speed_ups_of_all_methods_are_drawn_at_the_batch_that_most_points_have() -> None:
    four = record("scaling_ddp", samples={"speedup": [3.6]}, gpus=4, **POINT)
    larger = record(
        "scaling_ddp", samples={"speedup": [3.9]}, gpus=4, **{**POINT, "batch": 2048}
    )
    bf16 = record(
        "scaling_ddp", samples={"speedup": [3.1]}, gpus=4, **{**POINT, "dtype": "bf16"}
    )
    largest = record(
        "scaling_ddp", samples={"speedup": [3.3]}, gpus=4, batch=2048, dtype="bf16"
    )
    other = record(
        "scaling_vgg16", samples={"speedup": [1.7]}, gpus=2, **{**POINT, "batch": 64}
    )
    found = FIGURES["speedup"].table([larger, four, DDP, bf16, largest, other]).rows()
    assert [
        (row["method"], row["dtype"], row["batch"], row["gpus"], row["speedup"])
        for row in found
    ] == [
        ("DDP", "bf16", 512, 1, 1.0),
        ("DDP", "bf16", 512, 4, 3.1),
        ("DDP", "float32", 512, 1, 1.0),
        ("DDP", "float32", 512, 2, 1.8),
        ("DDP", "float32", 512, 4, 3.6),
        ("DDP, VGG16", "float32", 64, 1, 1.0),
        ("DDP, VGG16", "float32", 64, 2, 1.7),
    ]


def test_the_legend_of_the_speed_ups_names_the_batch() -> None:
    other = record(
        "scaling_vgg16", samples={"speedup": [1.7]}, gpus=2, **{**POINT, "batch": 64}
    )
    drawn = picture(FIGURES["speedup"], [DDP, other])
    assert {
        "DDP, weak, float32, batch 512",
        "DDP, VGG16, weak, float32, batch 64",
    } <= drawn.texts


def test_table_1_has_the_step_of_the_one_gpu_beside() -> None:
    timed = record(
        "scaling_ddp", samples={"step": [0.011], "single": [0.0099]}, gpus=2, **POINT
    )
    assert [row["single"] for row in rows("table1", SINGLE, timed)] == [0.0099, None]
