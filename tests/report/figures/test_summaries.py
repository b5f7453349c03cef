"""The sentence that says what a chart says."""

from __future__ import annotations

from hpml_plugins.model.figure import Table
from hpml_plugins.report.charts import Axis, bar_chart, line_chart
from hpml_plugins.report.summaries import summarise

RATES = Table(
    {
        "GPU": ["H200", "H200", "H100", "H100", "H100", "H200"],
        "size": [1024, 4096, 1024, 4096, 8192, 512],
        "rate": [2e12, 8e12, 1e12, 2e12, 9e12, None],
    }
)


def test_the_range_and_the_ratio_where_two_series_have_the_same_points() -> None:
    chart = line_chart(
        Axis("size", "message size", "B"), Axis("rate", "bandwidth", "B/s"), "GPU"
    )
    assert summarise(chart, RATES) == (
        "Bandwidth from 1.000 TB/s (H100, message size 1.024 kB) to 9.000 TB/s (H100, message size"
        " 8.192 kB). "
        "H200 is 2.83 times H100 (geometric mean of 2 points)."  # √(2 · 4)
    )


def test_no_ratio_without_shared_points_and_nothing_without_numbers() -> None:
    table = Table({"model": ["a", "b"], "share": [0.25, 0.5]})
    assert (
        summarise(bar_chart("model", Axis("share", "share", "%")), table)
        == "Share from 25 % (a) to 50 % (b)."
    )
    assert (
        summarise(
            bar_chart("model", Axis("share", "share", "%")),
            Table({"model": ["a"], "share": [0.5]}),
        )
        == ""
    )
    assert summarise({"mark": "bar"}, table) == ""


def test_equal_series_are_called_equal() -> None:
    table = Table(
        {
            "model": ["a", "b", "a", "b"],
            "GPU": ["X", "X", "Y", "Y"],
            "time": [1.0, 2.0, 1.001, 1.999],
        }
    )
    assert summarise(bar_chart("model", Axis("time", "time", "s"), "GPU"), table).endswith(
        "Y and X are equal (geometric mean of 2 points)."
    )


def test_a_series_that_the_place_names_is_not_repeated() -> None:
    table = Table(
        {"GPU": ["H200", "H100"], "card": ["1", "2"], "runs": [5, 5], "time": [1.0, 3.0]}
    )
    label = ("{runs} runs", "GPU", "card {card}")
    chart = bar_chart(label, Axis("time", "time", "s"), "GPU")
    assert summarise(chart, table) == (
        "Time from 1.000 s (5 runs, H200, card 1) to 3.000 s (5 runs, H100, card 2)."
    )
