"""Numbers as they are shown."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpml_plugins.model import formatting as display
from hpml_plugins.model.record import Estimate
from hpml_plugins.model.units import UNITS

INFINITE = math.inf


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.001234, "s", "1.234 ms"),
        # not 1000 µs: rounding comes before the choice of the prefix
        (0.00099996, "s", "1.000 ms"),
        (2.5e-6, "s", "2.500 µs"),
        (3.25e-13, "s", "0.3250 ps"),
        (12345.6, "s", "12\u202f346 s"),
        (3.2e12, "B/s", "3.200 TB/s"),
        (81559 * 2**20, "B", "85.52 GB"),
        (0.5, "B", "0.5000 B"),
        (8_178_892_800, "FLOP", "8.179 GFLOP"),
        (4_089_184_256, "MAC", "4.089 GMAC"),
        (9.9e14, "FLOP/s", "990.0 TFLOP/s"),
        (6.25, "FLOP/B", "6.250 FLOP/B"),
        (1234.5, "1/s", "1.234 k/s"),
        (61.5, "degC", "61.50 °C"),
        (0.93, "1", "0.9300"),
        (17, "1", "17"),
        (2e6, "FLOP", "2 MFLOP"),  # a count is exact; a time never is
        (-0.002, "s", "−2.000 ms"),
        (0, "s", "0 s"),
        (12.5, "images", "12.50 images"),
    ],
)
def test_a_quantity_has_four_digits_and_a_scaled_unit(
    value: float, unit: str, text: str
) -> None:
    assert display.quantity(value, unit) == text


def test_a_published_figure_has_no_digits_that_nobody_measured() -> None:
    figures = [(3.35e12, "B/s"), (700, "W"), (80e9, "B"), (4.8e12, "B/s")]
    shown = [display.exact(*figure) for figure in figures]
    assert shown == ["3.35 TB/s", "700 W", "80 GB", "4.8 TB/s"]


@pytest.mark.parametrize("exponent", range(-15, 22))
@pytest.mark.parametrize("unit", UNITS)
def test_a_shown_number_reads_back_as_the_value(exponent: int, unit: str) -> None:
    value = 1.2345 * 10.0**exponent
    number, _, label = display.quantity(value, unit).partition(" ")
    prefix = label.removesuffix(display.shown_unit(unit).label)
    power = {prefix: power for power, prefix in display._PREFIXES.items()}[prefix]
    shown = (
        float(number.replace(display.THIN_SPACE, "").replace(display.MINUS, "-"))
        * 10.0**power
    )
    assert shown == pytest.approx(value, rel=1e-3)


@pytest.mark.parametrize(
    ("value", "low", "high", "unit", "text"),
    [
        (1.25e-3, 1.24e-3, 1.26e-3, "s", "1.250 ms ± 0.8 %"),
        (7.507e14, 7.447e14, 7.567e14, "FLOP/s", "750.7 TFLOP/s ± 0.8 %"),
        (1.0, 0.8, 1.6, "s", "1.000 s (800.0 ms to 1.600 s)"),
        (1.0, 0.9, 4.0, "s", "1.000 s (900.0 ms to 4.000 s)"),
        (7.95e-3, 41.5e-6, 7.98e-3, "s", "7.950 ms (41.50 µs to 7.980 ms)"),
        (1.0, 0.97, 1.01, "s", "1.000 s ± 3 %"),
        (1.0, 0.8, 1.25, "s", "1.000 s ± 25 %"),
        (1.0, 0.9999, 1.00001234, "s", "1.000 s ± 0.01 %"),
        (-1.0, -1.5, -0.9, "s", "−1.000 s (−1.500 s to −900.0 ms)"),
        (5.0, 5.0, 5.0, "s", "5.000 s ± 0 %"),
        (1.0, -INFINITE, INFINITE, "s", "1.000 s"),
        (1.0, 0.9, INFINITE, "s", "1.000 s"),
        (1.0, None, None, "s", "1.000 s"),
        (1.0, math.nan, 1.1, "s", "1.000 s"),
        (0.0, -1.0, 1.0, "s", "0 s"),
    ],
)
def test_an_estimate_is_written_with_its_interval(
    value: float, low: float | None, high: float | None, unit: str, text: str
) -> None:
    written = display.estimate(Estimate(value, low, high, 9), unit)
    assert written == text
    assert "".join(display.split_estimate(written)) == text.replace(" ±", "±").replace(
        " (", "("
    )


@given(st.floats(1e-9, 1e9), st.floats(0, 0.999999), st.floats(0, 50))
def test_what_is_written_holds_the_whole_interval(
    value: float, below: float, above: float
) -> None:
    low, high = value * (1 - below), value * (1 + above)
    _, interval = display.split_estimate(
        display.estimate(Estimate(value, low, high, 9), "s")
    )
    if interval.startswith("±"):
        share = float(interval.removeprefix("± ").removesuffix(" %")) / 100 + 1e-6
        assert value * (1 - share) <= low
        assert high <= value * (1 + share)
    else:
        assert " to " in interval


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (2.0, "2.00"),
        (0.5, "0.50"),
        (1.004, "1.00"),
        (12.34, "12.3"),
        (4321.0, "4321"),
        (0.0123, "0.0123"),
        (1e-9, "<0.0001"),
        (1e6, "1000000"),
        (3244278400.0, ">1000000"),
        (math.inf, ">1000000"),
    ],
)
def test_a_ratio_has_four_digits_at_most(ratio: float, text: str) -> None:
    assert display.times(ratio) == text


def test_a_ratio_to_a_value_near_0_has_no_digits() -> None:
    assert display.change(3244278400.0, "time") == ">1000000× the time"
    assert display.least_times(3244278400.0) == "at least 1000000×"
    assert display.bounded_times(3244278400.0, up=True) == ">1000000"


def test_values_are_sorted_by_the_numbers_in_them() -> None:
    for ordered in (
        ["64", "1KiB", "64KiB", "1MiB", "1GiB"],
        ["resnet18", "resnet50", "resnet101", "vgg"],
        [1.5, 5, 10, 100],
        ["n=9, mode=b", "n=10, mode=a", "n=10, mode=b"],
        ["1x1", "1x256", "grid"],
    ):
        assert sorted([ordered[-1], *ordered[:-1]], key=display.natural_key) == ordered


def test_a_point_is_written_without_the_quotes_of_repr() -> None:
    assert display.format_point({"rows": 4096, "mode": "fast"}) == "rows=4096, mode=fast"
    assert (
        display.format_point_texts({"rows": "4096", "mode": "'fast'"})
        == "rows=4096, mode=fast"
    )
    assert display.format_point({}) == ""
