from __future__ import annotations

import math
import random
import statistics
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpml_plugins import Samples
from hpml_plugins.errors import DefinitionError, ResultError
from hpml_plugins.model.units import UNITS, unit

numbers = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=60)


def test_an_unknown_unit_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        DefinitionError, match=r"unit 'ms' is not known; use one of 1, s, B"
    ):
        unit("ms")


def test_the_unit_of_flop_says_what_a_multiply_add_counts() -> None:
    assert str(UNITS["FLOP"]) == "FLOP (1 multiply-add = 2 FLOP)"


def test_bytes_over_time_are_bandwidth_sample_by_sample() -> None:
    time = Samples.of([0.5, 0.25], "s")
    bandwidth = 100 / time
    assert bandwidth.values == (200.0, 400.0)
    assert (
        bandwidth.unit == ""
    )  # the numbers that took part may be bytes, operations or images


def test_a_sum_keeps_its_unit_and_a_product_has_none() -> None:
    time = Samples.of([2.0], "s")
    assert [each.unit for each in (time + 1, 1 - time, time + time, time - 2 * time)] == [
        "s"
    ] * 4
    assert [
        each.unit for each in (time * 2, time * time, time / 2, 1 / time, time / time)
    ] == [""] * 5
    assert (1 - time).values == (-1.0,)


def test_seconds_and_bytes_cannot_be_added() -> None:
    with pytest.raises(ResultError, match="cannot add s and B"):
        Samples.of([1.0], "s") + Samples.of([1.0], "B")


def test_samples_of_different_length_do_not_pair() -> None:
    with pytest.raises(ResultError, match="different length: 1 and 2"):
        Samples.of([1.0], "s") + Samples.of([1.0, 2.0], "s")


def test_a_division_by_zero_gives_infinity_for_the_record_to_refuse() -> None:
    assert (1 / Samples.of([0.0], "s")).values == (math.inf,)


def test_no_value_at_all_is_refused() -> None:
    with pytest.raises(DefinitionError, match="at least one value"):
        Samples.of([], "s")


@given(numbers)
def test_the_interval_holds_the_median(values: list[float]) -> None:
    samples = Samples.of(values, "s")
    low, high = samples.interval()
    assert min(values) <= low <= samples.median <= high <= max(values)


@given(numbers, st.floats(0.1, 10))
def test_scaling_scales_median_and_interval(values: list[float], factor: float) -> None:
    samples = Samples.of(values, "s")
    assert (samples * factor).median == pytest.approx(samples.median * factor)
    assert (samples * factor).interval()[1] == pytest.approx(samples.interval()[1] * factor)


def test_the_interval_of_ten_values_is_the_second_to_the_ninth() -> None:
    # Binomial(10, 1/2): P(X <= 1) = (1 + 10) / 1024 = 0.0107 <= 0.025, P(X <= 2) = 56 / 1024 =
    # 0.0547 > 0.025, so ranks 2 and 9 hold the median with probability 1 - 2 * 0.0107 = 97.9 %.
    assert Samples.of(range(1, 11), "s").interval() == (2.0, 9.0)


@pytest.mark.parametrize("count", [10, 40, 1500])
def test_the_interval_covers_the_true_median_at_least_as_often_as_it_says(
    count: int,
) -> None:
    rng = random.Random(7)
    hits = 0
    for _ in range(400):
        low, high = Samples.of([rng.expovariate(1.0) for _ in range(count)], "s").interval(
            0.95
        )
        hits += low <= math.log(2) <= high  # the median of an exponential distribution
    # 400 trials at 95 %: 380 expected, standard deviation 4.4; four of them below is 362
    assert hits >= 362


def autoregressive(correlation: float, count: int, rng: random.Random) -> list[float]:
    """Normal deviates, each correlated by that much with the one before; their true median is 0."""
    values = [rng.gauss(0, 1)]
    for _ in range(count - 1):
        values.append(
            correlation * values[-1] + math.sqrt(1 - correlation**2) * rng.gauss(0, 1)
        )
    return values


@pytest.mark.parametrize(
    ("correlation", "count"), [(0.0, 40), (0.0, 400), (0.5, 40), (0.5, 400), (0.94, 400)]
)
def test_the_interval_covers_the_true_median_of_a_correlated_series(
    correlation: float, count: int
) -> None:
    rng = random.Random(11)
    trials = [
        Samples.of(autoregressive(correlation, count, rng), "s").interval()
        for _ in range(600)
    ]
    # Taken as independent, the samples of 0.94 cover it in a third of all trials, those of 0.5 in
    # 83 %.
    assert sum(low <= 0 <= high for low, high in trials) >= 0.93 * len(trials)


@pytest.mark.parametrize(("correlation", "times"), [(0.0, 1.0), (0.5, 2.31), (0.94, 22.5)])
def test_correlated_samples_count_as_fewer(correlation: float, times: float) -> None:
    # Which half a value lies in is correlated by 2/π·arcsin(φ^k) at lag k; its sum over all lags is
    # the time.
    correlations = [math.asin(correlation**lag) * 2 / math.pi for lag in range(1, 400)]
    assert 1 + 2 * sum(correlations) == pytest.approx(times, rel=0.01)
    rng = random.Random(5)
    counts = [
        Samples.of(autoregressive(correlation, 4000, rng), "s").effective_count
        for _ in range(20)
    ]
    assert 4000 / times * 0.75 < statistics.fmean(counts) < 4000 / times * 1.05


def test_a_series_that_rises_all_the_while_is_known_by_its_ends() -> None:
    rising = Samples.of([1.0 + 0.01 * i for i in range(100)], "s")
    assert rising.effective_count <= 5
    assert rising.interval() == (min(rising.values), max(rising.values))


def test_outliers_do_not_hide_a_correlation() -> None:
    rng = random.Random(2)
    values = autoregressive(0.94, 1000, rng)
    disturbed = [value if number % 50 else 1e6 for number, value in enumerate(values)]
    known, found = (Samples.of(each, "s").effective_count for each in (values, disturbed))
    assert 0.5 * known <= found <= 2 * known


@pytest.mark.parametrize(
    "values", [[3.0] * 40, [1.0, 2.0] * 20, [1.0] * 14, list(range(14))]
)
def test_equal_alternating_and_few_values_count_in_full(values: list[float]) -> None:
    assert Samples.of(values, "s").effective_count == len(values)


@pytest.mark.parametrize("low", [9, 10, 11])
def test_two_levels_that_a_series_changes_between_once_count_as_few(low: int) -> None:
    assert Samples.of([1.0] * low + [2.0] * (20 - low), "s").effective_count <= 2


def test_the_coefficient_of_variation_is_deviation_over_mean() -> None:
    values = [9.0, 10.0, 11.0]
    assert Samples.of(values, "s").coefficient_of_variation == pytest.approx(
        statistics.stdev(values) / 10
    )
    assert Samples.of([3.0], "s").coefficient_of_variation == 0.0


def test_the_value_is_the_median_and_at_settled_clocks_the_mean() -> None:
    times = (1.0, 2.0, 6.0)
    plain = Samples.of(times, "s")
    assert (plain.value, plain.value_interval()) == (2.0, plain.interval())
    settled = plain.note(regime="sustained")
    assert (settled.value, settled.value_interval()) == (3.0, (1.0, 6.0))
    assert (2 * settled).value == 6.0
    assert replace(plain, boost=(0.5,)).value == 3.0
    rates = Samples.of([1 / each for each in times], "1/s", regime="sustained")
    assert rates.value == pytest.approx(1 / 3.0)  # of what each did in its time
