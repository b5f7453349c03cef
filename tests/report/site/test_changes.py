"""Regressions: by direction, beyond the noise, and not those that recovered."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from msgspec.structs import replace

from hpml_plugins.analysis.measured import EXACT, MeasuredValue
from hpml_plugins.analysis.physics import Physics
from hpml_plugins.analysis.variance import Spread
from hpml_plugins.report.reading import Hardware, Machine, TrackedBenchmark, TrackedMetric
from hpml_plugins.report.site.regressions import Change, Level, MeasuredSeries, Readings


def steps(*levels: float, length: int = 10, scatter: float = 0.01) -> list[Level]:
    """Levels of ten revisions each, with a mean deviation of 1 %."""
    return [
        Level(place * length, (place + 1) * length - 1, level, scatter * abs(level))
        for place, level in enumerate(levels)
    ]


def compared(levels: list[Level], direction: str, p_values: Sequence[float] = ()) -> MeasuredSeries:
    """By default each level certainly differs from the next."""
    metric = TrackedMetric("b.track_m", TrackedBenchmark("b", "p", "b", "1"), "m", "s", direction)
    certain = [p <= 0.01 for p in p_values] or [True] * (len(levels) - 1)
    return MeasuredSeries(metric, "", Machine(Hardware(0, "H200", "1"), "m"), levels, certain)


def still_worse(levels: list[Level], direction: str, p_values: Sequence[float] = ()) -> list[Change]:
    """The open regressions."""
    return compared(levels, direction, p_values).open


#: 1 % between runs on one card, known as from 20 runs; 3 % between cards, as from 5.
SPREAD = Spread(0.01**2, 20.0, 0.03**2, 5.0)


def reading(value: float, card: str = "A", spread: Spread | None = SPREAD) -> MeasuredValue:
    return MeasuredValue(
        value=value, low=value, high=value, count=7, direction="lower", physics=Physics.NEVER_THROTTLED,
        code="code", card=card, started=0.0, spread=spread,
    )  # fmt: skip


def p_value(before: Sequence[MeasuredValue], after: Sequence[MeasuredValue]) -> float:
    """Of the difference between two levels of these readings."""
    measured = Readings(np.arange(len(before) + len(after)), [*before, *after])
    first, second = (float(np.median([each.value for each in level])) for level in (before, after))
    end = len(before)
    return measured.p_value(Level(0, end - 1, first, 0.0), Level(end, end + len(after) - 1, second, 0.0))


@pytest.mark.parametrize(
    ("direction", "levels", "worse"),
    [
        ("lower", (1.0, 1.5), True),  # a time that rises
        ("lower", (1.5, 1.0), False),
        ("higher", (1.5, 1.0), True),  # a throughput that falls
        ("higher", (1.0, 1.5), False),
        ("", (1.0, 1.5), False),  # nobody said which is better
    ],
)
def test_what_is_worse_depends_on_the_direction(direction: str, levels: tuple[float, float], worse: bool) -> None:
    found = still_worse(steps(*levels), direction)
    assert bool(found) == worse
    if found:
        (change,) = found
        assert (change.last, change.first, change.verdict) == (9, 10, "worse")
        assert (change.before, change.after) == pytest.approx(levels)


@pytest.mark.parametrize(("direction", "levels"), [("lower", (1.0, 1.5, 1.0)), ("higher", (1.5, 1.0, 1.5))])
def test_what_was_made_good_again_is_a_change_and_no_regression(direction: str, levels: tuple[float, ...]) -> None:
    assert still_worse(steps(*levels), direction) == []
    assert [change.verdict for change in compared(steps(*levels), direction).changes] == ["worse", "better"]


def test_a_regression_that_was_made_good_in_part_is_against_the_best_level_since() -> None:
    (change,) = still_worse(steps(1.0, 2.0, 1.5), "lower")
    assert (change.before, change.after, change.first) == (1.0, 1.5, 10)


def test_a_change_that_runs_and_cards_explain_is_noise() -> None:
    for direction, levels in (("lower", (1.0, 1.5)), ("higher", (1.0, 1.5)[::-1])):
        assert still_worse(steps(*levels), direction, [0.2]) == []
        assert compared(steps(*levels), direction, [0.2]).changes == []
        assert still_worse(steps(*levels), direction, [0.01])


def test_a_difference_is_held_against_what_runs_differ_by_and_more_readings_find_smaller_ones() -> None:
    few, many = ([reading(value) for value in (1.0, 1.002)] * n for n in (1, 10))
    slower, much_slower = ([reading(1.03 * each.value) for each in level] for level in (many, few))
    assert p_value(many, slower) < 1e-6
    assert 0.001 < p_value(few, much_slower) < 0.05
    assert p_value(few, [reading(1.01), reading(1.01)]) > 0.2
    assert p_value(few, [reading(1.3), reading(1.3)]) < 1e-6


def test_readings_that_scatter_more_than_was_known_count_for_less() -> None:
    dice = random.Random(3)
    calm, wild = ([reading(1.0 + s * dice.uniform(-1, 1)) for _ in range(20)] for s in (0.001, 0.2))
    assert p_value(calm, [reading(1.03)] * 3) < 0.001 < p_value(wild, [reading(1.03)] * 3)


def test_another_card_is_one_reading_however_often_it_was_measured() -> None:
    # three runs on another card say as much as one: it may be 4 % slower by itself
    before = [reading(1.0, "A")] * 5
    other_card, same_card = ([reading(1.04, card)] * 5 for card in "BA")
    assert p_value(before, same_card) < 1e-4
    assert p_value(before, other_card) > 0.2
    # on three cards each it is no longer the cards
    assert p_value([reading(1.0, card) for card in "ABC"], [reading(1.2, card) for card in "ABC"]) < 0.01


def test_counts_differ_by_any_difference_and_nothing_is_known_of_values_not_above_zero() -> None:
    assert p_value([reading(100.0, spread=EXACT)] * 2, [reading(101.0, spread=EXACT)] * 2) == 0
    assert p_value([reading(-1.0)] * 2, [reading(-2.0)] * 2) == 0
    assert p_value([reading(1.0, spread=None)] * 2, [reading(1.01, spread=None)] * 2) > 0.2


def test_a_change_smaller_than_the_threshold_or_the_scatter_does_not_count() -> None:
    assert not still_worse(steps(1.0, 1.04), "lower")
    assert still_worse(steps(1.0, 1.06), "lower")
    assert not still_worse(steps(1.0, 1.4, scatter=0.5), "lower")


@pytest.mark.parametrize(("direction", "levels"), [("lower", (1.0, 1.03, 1.06)), ("higher", (1.0, 0.97, 0.94))])
def test_small_steps_that_add_up_are_a_regression(direction: str, levels: tuple[float, ...]) -> None:
    (change,) = still_worse(steps(*levels), direction)
    assert (change.before, change.after, change.last, change.first) == (levels[0], levels[1], 9, 10)
    assert compared(steps(*levels), direction).changes == []


def test_levels_at_and_below_zero_are_compared_too() -> None:
    assert still_worse(steps(-1.0, -2.0), "higher")
    assert not still_worse(steps(-2.0, -1.0), "higher")
    assert still_worse(steps(0.0, 1.0), "lower")


@pytest.mark.parametrize(
    ("intervals", "revisions", "counts"),
    [([0, 1, 10, 11], [0, 1, 10, 11], True), ([0, 1, 10], [0, 1, 10], False), ([], [0, 1, 2, 10, 11, 12], True),
     ([], [0, 1, 10, 11], False)],
)  # fmt: skip
def test_a_single_run_that_stands_out_is_no_change_yet(
    intervals: list[int], revisions: list[int], counts: bool
) -> None:
    # a reading without interval: asv's own, of one sample
    found = [reading(1.0 if r < 10 else 1.5, spread=SPREAD if r in intervals else None) for r in revisions]
    levels = Readings(np.array(revisions), found).levels()
    assert bool(still_worse(levels, "lower")) == counts


def test_values_sampled_while_the_card_throttled_are_not_compared_with_settled_ones() -> None:
    line = [
        (n, replace(reading(1.0 if n < 5 else 1.1), physics=Physics.THROTTLED if n < 5 else Physics.SUSTAINED))
        for n in range(10)
    ]
    assert Readings.of(line).revisions.tolist() == [5, 6, 7, 8, 9]
    assert Readings.of(line[:5]).revisions.tolist() == [0, 1, 2, 3, 4]
    assert Readings.of([]).readings == []


def test_values_measured_on_a_busy_machine_are_left_out_even_where_one_is_the_newest() -> None:
    line = [(n, replace(reading(1.0), is_busy=n in (3, 9))) for n in range(10)]
    assert Readings.of(line).revisions.tolist() == [0, 1, 2, 4, 5, 6, 7, 8]
    assert Readings.of(line[3:4]).readings == []


def test_a_single_run_between_two_levels_does_not_hide_the_change() -> None:
    measured = Readings(np.arange(11), [reading(value) for value in [1.0] * 5 + [3.0] + [1.5] * 5])
    levels = measured.levels()
    (change,) = still_worse(levels, "lower", [measured.p_value(*levels)])
    assert (change.last, change.first, change.before, change.after) == (4, 6, 1.0, 1.5)
