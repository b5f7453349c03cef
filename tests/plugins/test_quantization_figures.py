"""The tables and charts of the plugin `quantization`, from Records as they are measured."""

from __future__ import annotations

from typing import Any

import pytest
from charted import Picture, picture
from records import a_record

from hpml_plugins import Record, Series
from hpml_plugins.plugins.quantization import hpml_benchmarks, hpml_figures

FIGURES = {figure.name: figure for figure in hpml_figures()}
BENCHMARKS = {benchmark.name: benchmark for benchmark in hpml_benchmarks()}


def record(
    benchmark: str,
    series: dict[str, Series],
    machine: str = "here",
    images: int = 10,
    **told: Any,
) -> Record:
    """A Record with every metric of the benchmark, 1.0 where the test does not care; other
    arguments are parameters."""
    of = BENCHMARKS[benchmark]
    metrics = {metric.name: told.pop(metric.name, 1.0) for metric in of.metrics}
    data = {"set": {"train": images}}
    return a_record(of, metrics, params=told, machine=machine, series=series, data=data)


def steps_record(data: str = "digits", images: int = 10) -> Record:
    rows = [(32, "float32", "–", "float", 0.98)]
    rows += [
        (bits, granularity, "minmax", step, bits / 10)
        for bits in (8, 4)
        for granularity in ("tensor", "channel")
        for step in ("weights", "integer")
    ]
    names = ("bits", "granularity", "range", "step", "accuracy")
    accuracy = Series(
        dict(zip(names, (list(column) for column in zip(*rows, strict=True)), strict=True))
    )
    bins = {
        "from": [0.0, 1.0],
        "to": [1.0, 2.0],
        **{name: [0.5, 0.5] for name in ("float", "bits8", "bits4", "bits2")},
    }
    histogram = Series({"layer": ["conv1", "conv1"], **bins})
    moments = {
        "low": [-1.0],
        "high": [2.0],
        "mean": [0.0],
        "deviation": [0.5],
        "outside_sigma3": [0.01],
    }
    ranges = Series({"layer": ["conv1"], "of": ["weights"], **moments})
    series = {
        "accuracy": accuracy,
        "ranges": ranges,
        "weights": histogram,
        "activations": histogram,
    }
    return record(
        "quantization_steps",
        series,
        images=images,
        data=data,
        calibration=512,
        float_accuracy=0.98,
    )


def deployed_record(
    method: str, latency: float, accuracy: float, runtime: str = "eager", **series: Series
) -> Record:
    told = {"model": "simple", "data": "digits", "method": method, "runtime": runtime}
    error = 0.0 if method == "float32" else 0.01
    return record(
        "quantization_deploy_cuda",
        series,
        latency=latency,
        accuracy=accuracy,
        error=error,
        **told,
    )


def product_record(dtype: str, size: int, rate: float, **columns: Any) -> Record:
    ways = Series(
        {
            "way": ["slow", "quick"],
            "rate": [rate / 2, rate],
            "highest": [rate, 2 * rate],
            **columns,
        }
    )
    return record(
        "quantization_matmul_cuda", {"ways": ways}, dtype=dtype, size=size, rate=rate
    )


def drawn(name: str, *records: Record) -> tuple[list[dict[str, Any]], Picture]:
    figure = FIGURES[name]
    table = figure.table(records)
    return list(table.rows()), picture(figure, table)


def test_accuracy_over_bits_has_a_line_for_each_step_and_each_way_of_integers() -> None:
    rows, shown = drawn("accuracy", steps_record())
    assert len(rows) == 9
    assert (rows[0]["bits"], rows[0]["accuracy"]) == (32, 0.98)
    # weights per channel; integers per tensor and per channel; float32 is a rule
    assert len(shown.marks["line mark"]) == 3
    assert "integer, per tensor, minmax" in shown.texts
    assert "weights, per tensor, minmax" not in shown.texts
    assert any("float32: 0.98" in rule for rule in shown.marks["rule mark"])


def test_histograms_are_of_the_largest_data_set_of_a_machine() -> None:
    rows, shown = drawn(
        "weights", steps_record("digits", 1442), steps_record("cifar10", 50_000)
    )
    assert {row["data"] for row in rows} == {"cifar10"}
    assert len(shown.marks["line mark"]) == 4


def test_ranges_are_a_row_a_tensor() -> None:
    (row,) = FIGURES["ranges"].table([steps_record()]).rows()
    assert (row["of"], row["layer"], row["high"], row["outside_sigma3"]) == (
        "weights",
        "conv1",
        2.0,
        0.01,
    )


def test_steps_are_a_row_a_data_set() -> None:
    table = FIGURES["steps"].table([steps_record(), steps_record("cifar10")])
    assert table.columns["data"] == ["digits", "cifar10"]
    assert table.columns["float_accuracy"] == [0.98, 0.98]


def test_the_front_holds_what_nothing_beats() -> None:
    energy = Series({"energy": [0.002], "power": [300.0], "images": [10.0]})
    left = Series({"layer": ["conv1", "fc"], "why": ["no", "no"]})
    rows, shown = drawn(
        "front",
        deployed_record("float32", 4e-3, 0.95),
        deployed_record("bfloat16", 2e-3, 0.94, energy=energy),
        deployed_record("int8_dynamic", 8e-3, 0.95, left_in_float=left),
        deployed_record("int8_dynamic", 1e-3, 0.90, runtime="compile"),
    )
    assert [row["front"] for row in rows] == [True, True, False, True]
    # 4 ms of float32 over each latency
    assert [row["against_float32"] for row in rows] == [1.0, 2.0, 0.5, 4.0]
    assert [row["energy"] for row in rows] == [None, 0.002, None, None]
    assert [row["left"] for row in rows] == [0, 0, 2, 0]
    assert rows[0]["best_latency"] == 1.0  # one image at one a second
    # −20 · log10(0.01) = 40 dB; float32 has no error
    assert [row["snr_db"] for row in rows] == [
        None,
        pytest.approx(40.0),
        pytest.approx(40.0),
        pytest.approx(40.0),
    ]
    assert len(shown.marks["point"]) == 4
    assert len(shown.marks["line mark"]) == 1


def test_what_does_not_run_for_one_image_has_no_latency() -> None:
    batches = Series({"batch": [64.0], "time": [6e-3]})
    rows, shown = drawn(
        "front",
        deployed_record("float32", 4e-3, 0.95),
        deployed_record("int8_dynamic", 1e-3, 0.99, runtime="compile", batches=batches),
    )
    assert [(row["latency"], row["front"], row["against_float32"]) for row in rows] == [
        (4e-3, True, 1),
        (None, False, None),
    ]
    (point,) = shown.marks["point"]
    assert "series: float32" in point
    _, shown = drawn(
        "front",
        deployed_record("int8_dynamic", 1e-3, 0.99, runtime="compile", batches=batches),
    )
    assert "point" not in shown.marks


def test_an_image_more_or_less_does_not_fill_the_front_s_axis() -> None:
    _, shown = drawn(
        "front",
        deployed_record("float32", 4e-3, 0.997),
        deployed_record("bfloat16", 2e-3, 1.0),
    )
    assert any(
        "'accuracy' for a linear scale with values from 0.90 to 1.00" in axis
        for axis in shown.marks["axis"]
    )


def test_products_are_held_against_bfloat16_and_the_peak() -> None:
    rows, shown = drawn(
        "products",
        product_record("int8", 8192, 1400e12, share=[0.35, 0.7]),
        product_record("bfloat16", 8192, 700e12, share=[0.3, 0.6]),
        product_record("int8", 512, 1e12, share=[0.1, 0.2]),
    )
    by_point = {(row["dtype"], row["size"]): row for row in rows}
    assert by_point["int8", 8192]["against_bfloat16"] == 2.0
    assert by_point["int8", 8192]["highest"] == 2800e12
    assert (by_point["int8", 8192]["way"], by_point["int8", 8192]["share"]) == (
        "quick",
        0.7,
    )
    assert by_point["int8", 512]["against_bfloat16"] is None
    assert by_point["bfloat16", 8192]["peak"] == pytest.approx(700e12 / 0.6)
    assert len(shown.marks["line mark"]) == 2
    assert any(
        "peak: 2e+15" in rule or "peak: 2,000" in rule for rule in shown.marks["rule mark"]
    )


def test_every_way_of_a_product_has_a_row() -> None:
    table = FIGURES["ways"].table(
        [
            product_record("int8", 512, 1e12, share=[0.1, 0.2]),
            product_record("fp8", 512, 2e12),
        ]
    )
    found = [(row["dtype"], row["way"], row["rate"], row["share"]) for row in table.rows()]
    assert found == [
        ("fp8", "quick", 2e12, None),
        ("fp8", "slow", 1e12, None),
        ("int8", "quick", 1e12, 0.2),
        ("int8", "slow", 5e11, 0.1),
    ]


def test_products_on_a_card_without_published_peak_are_drawn_without_it() -> None:
    rows, shown = drawn("products", product_record("int8", 512, 1e12))
    assert rows[0]["share"] is None
    assert len(shown.marks["point"]) == 1
    assert "rule mark" not in shown.marks
