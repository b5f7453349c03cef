"""The figures of `paleo`: predicted beside measured, percent of peak by hand, an unknown card said
so."""

from __future__ import annotations

from typing import Any

import pytest
from charted import picture
from records import a_record

from hpml_plugins import Figure, Record, Series
from hpml_plugins.plugins.paleo import charts as tables
from hpml_plugins.report.figures import Drawable
from hpml_plugins.report.tables import as_text

FIGURE = {figure.name: figure for figure in tables.FIGURES}


def measured(machine: str, gpu: str, batch: int, dtype: str = "float32") -> Record:
    """One convolution of 67 GFLOP in 2 ms, half of an H200's 67 TFLOP/s, a ReLU, and the whole in
    2.5 ms."""
    values = {
        "forward": 2.5e-3,
        "forward_visible": 3e-3,
        "layers_hidden": 2.25e-3,
        "layers_synchronised": 4e-3,
        "hidden_ratio": 0.9,
        "synchronised_ratio": 1.6,
        "training": 7.5e-3,
        "rate": 67e9 / 2.5e-3,
        "training_rate": 201e9 / 7.5e-3,
    }
    layers = Series(
        {
            "layer": ["conv", "relu"],
            "type": ["Conv2d", "ReLU"],
            "calls": [1, 1],
            "flops": [67e9, 0],
            "bytes": [4.8e9, 1e6],
            "alone": [2e-3, 0.25e-3],
            "synchronised": [3e-3, 1e-3],
        },
    )
    return a_record(
        "paleo_measure",
        values,
        units=dict.fromkeys(values, "1"),
        gpu=gpu,
        machine=machine,
        params={"model": "net", "dtype": dtype, "batch": batch},
        series={"layers": layers},
    )


def predicted(machine: str) -> Record:
    columns: dict[str, list[Any]] = {
        "gpu": ["Tesla K80", "H200 SXM"],
        "peak_of": ["float32", "float32"],
        "peak": [4.37e12, 67e12],
        "bandwidth": [240e9, 4800e9],
        "at_peak": [7e-3, 0.5e-3],
        "forward": [16e-3, 1e-3],
        "training": [48e-3, 3e-3],
    }
    return a_record(
        "paleo_predict",
        machine=machine,
        params={"model": "net", "dtype": "float32"},
        series={"gpus": Series(columns)},
    )


def reduced(gpu: str) -> Record:
    return a_record(
        "paleo_communication",
        {"bytes": 450e6, "time": 2e-3, "bus_bandwidth": 225e9},
        units={"bytes": "B", "bus_bandwidth": "B/s"},
        params={"model": "net", "ranks": 2},
        node={"gpus": [{"name": gpu}] * 2 if gpu else []},
    )


RECORDS = [
    measured("h200", "NVIDIA H200", 1),
    measured("h200", "NVIDIA H200", 32),
    measured("cpu", "", 1),
]


def test_a_layers_percent_of_peak_by_hand() -> None:
    rows = [row for row in tables.layers(RECORDS).rows() if row["machine"] == "h200"]
    (row,) = rows  # the ReLU has no multiply-adds; of two batches the larger
    assert (row["layer"], row["batch"]) == ("conv", 32)
    # 67 GFLOP / 2 ms = 33.5 TFLOP/s of 67; predicted at the peak: 1 ms and 4.8 GB / 4.8 TB/s = 1
    # ms; over 0.62
    assert row["ppp"] == pytest.approx(0.5)
    assert row["at_peak"] == pytest.approx(2e-3)
    assert row["predicted"] == pytest.approx(2e-3 / 0.62)


def test_a_processor_without_a_published_peak_has_measurements_alone() -> None:
    for records in ([measured("cpu", "", 1)], [measured("odd", "Some Card", 1)]):
        (row,) = tables.layers(records).rows()
        assert (row["measured"], row["predicted"], row["ppp"]) == (2e-3, None, None)
        (whole,) = tables.sums(records).rows()
        assert (whole["forward"], whole["PPP forward"], whole["peak of"]) == (
            2.5e-3,
            None,
            None,
        )
    both = tables.layers([measured("cpu", "", 1), measured("h200", "NVIDIA H200", 1)])
    for name in ("against", "ppp"):
        drawn = picture(FIGURE[name], both)
        assert "h200" in drawn.texts
        assert "cpu" not in drawn.texts
        assert len(drawn.marks["point"]) == 1


def test_the_whole_against_its_sums_by_hand() -> None:
    row = next(tables.sums([measured("h200", "NVIDIA H200", 32)]).rows())
    assert row["PPP forward"] == pytest.approx(
        0.4
    )  # 67 GFLOP / 2.5 ms = 26.8 of 67 TFLOP/s
    assert row["PPP training"] == pytest.approx(0.4)
    assert row["training / forward"] == pytest.approx(3)
    double = next(tables.sums([measured("h200", "NVIDIA H200", 32, "float64")]).rows())
    assert double["peak of"] == "float64_tensor"


def test_every_machine_predicts_the_same_so_each_type_stands_once() -> None:
    table = tables.predicted([predicted("a"), predicted("b")])
    assert [row["gpu"] for row in table.rows()] == ["Tesla K80", "H200 SXM"]


def test_communication_is_held_against_one_direction_of_the_link() -> None:
    (row,) = tables.communication([reduced("NVIDIA H200")]).rows()
    # 900 GB/s both directions: 450 one; 225 of 450; 450 MB over 0.72 · 450 GB/s = 1.389 ms
    assert (row["link"], row["PPP"]) == (450e9, 0.5)
    assert row["predicted"] == pytest.approx(1.3889e-3, rel=1e-4)
    (unknown,) = tables.communication([reduced("")]).rows()
    assert (unknown["link"], unknown["PPP"], unknown["predicted"]) == (None, None, None)


@pytest.mark.parametrize("figure", tables.FIGURES, ids=lambda figure: figure.name)
def test_every_figure_is_drawn_and_spelled(figure: Figure) -> None:
    records = {
        "paleo_predict": [predicted("a")],
        "paleo_measure": RECORDS,
        "paleo_communication": [reduced("NVIDIA H200")],
    }[figure.benchmarks[0]]
    drawable = Drawable("paleo", figure, figure.table(records))
    assert as_text(drawable.table).count("\n") == len(drawable.table) + 1
    if figure.chart:
        assert picture(figure, drawable.table).marks["point"]
