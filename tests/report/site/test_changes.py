"""Regressions: by direction, beyond the noise, and not those that recovered."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

import numpy as np
import pytest
from msgspec.structs import replace
from records import a_value

from hpml_plugins.analysis.levels import Level, Levels, Readings
from hpml_plugins.analysis.measured import CONTINUOUS, EXACT, MeasuredValue
from hpml_plugins.analysis.physics import Physics
from hpml_plugins.analysis.variance import Spread
from hpml_plugins.report.reading import Hardware, Machine, TrackedBenchmark, TrackedMetric
from hpml_plugins.report.site.changes import Change, MeasuredSeries, Question, ask
from hpml_plugins.store import Index


def steps(*levels: float, length: int = 10, scatter: float = 0.01) -> list[Level]:
    """Levels of ten revisions each, with a mean deviation of 1 %."""
    return [
        Level(place * length, (place + 1) * length - 1, level, scatter * abs(level))
        for place, level in enumerate(levels)
    ]


def compared(
    levels: list[Level], direction: str, p_values: Sequence[float] = ()
) -> MeasuredSeries:
    """By default each level certainly differs from the next."""
    metric = TrackedMetric(
        "b.track_m", TrackedBenchmark("b", "p", "b", "1", Index({})), "m", "s", direction
    )
    certain = [p <= 0.01 for p in p_values] or [True] * (len(levels) - 1)
    answers: dict[Question, bool] = {
        ("next", number): sure for number, sure in enumerate(certain)
    }
    answers |= {
        ("drift", number): True
        for number, level in enumerate(levels)
        if level.end is not None
    }
    answers["lasting", 0] = all(certain)
    machine = Machine(Hardware(0, "H200", "1"), "m")
    return MeasuredSeries(metric, "", machine, levels, answers)


def still_worse(
    levels: list[Level], direction: str, p_values: Sequence[float] = ()
) -> list[Change]:
    """The open regressions."""
    return compared(levels, direction, p_values).open


def p_values_of(levels: Levels) -> list[float]:
    """Of no difference between each level and the next."""
    return [each.p for each in levels.steps()]


#: 1 % between runs on one card, known as from 20 runs; 3 % between cards, as from 5.
SPREAD = Spread(0.01**2, 20.0, 0.03**2, 5.0)


def reading(value: float, card: str = "A", spread: Spread | None = SPREAD) -> MeasuredValue:
    return a_value(value, card, spread=spread)


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
def test_what_is_worse_depends_on_the_direction(
    direction: str, levels: tuple[float, float], worse: bool
) -> None:
    found = still_worse(steps(*levels), direction)
    assert bool(found) == worse
    if found:
        (change,) = found
        assert (change.last, change.first, change.verdict) == (9, 10, "worse")
        assert (change.before, change.after) == pytest.approx(levels)


@pytest.mark.parametrize(
    ("direction", "levels"), [("lower", (1.0, 1.5, 1.0)), ("higher", (1.5, 1.0, 1.5))]
)
def test_what_was_made_good_again_is_a_change_and_no_regression(
    direction: str, levels: tuple[float, ...]
) -> None:
    assert still_worse(steps(*levels), direction) == []
    assert [change.verdict for change in compared(steps(*levels), direction).changes] == [
        "worse",
        "better",
    ]


def test_a_regression_that_was_made_good_in_part_is_against_the_best_level_since() -> None:
    (change,) = still_worse(steps(1.0, 2.0, 1.5), "lower")
    assert (change.before, change.after, change.first) == (1.0, 1.5, 10)


def test_a_change_that_runs_and_cards_explain_is_noise() -> None:
    for direction, levels in (("lower", (1.0, 1.5)), ("higher", (1.0, 1.5)[::-1])):
        assert still_worse(steps(*levels), direction, [0.2]) == []
        assert compared(steps(*levels), direction, [0.2]).changes == []
        assert still_worse(steps(*levels), direction, [0.01])


def test_a_change_smaller_than_the_threshold_or_the_scatter_does_not_count() -> None:
    assert not still_worse(steps(1.0, 1.018), "lower")
    assert still_worse(steps(1.0, 1.022), "lower")
    assert not still_worse(steps(1.0, 1.4, scatter=0.5), "lower")


@pytest.mark.parametrize(
    ("direction", "levels"), [("lower", (1.0, 1.015, 1.03)), ("higher", (1.0, 0.985, 0.97))]
)
def test_small_steps_that_add_up_are_one_regression_told_whole(
    direction: str, levels: tuple[float, ...]
) -> None:
    (change,) = still_worse(steps(*levels), direction)
    assert (change.before, change.after, change.last, change.first) == (
        levels[0],
        levels[2],
        9,
        20,
    )
    assert [(step.last, step.first) for step in change.steps] == [(9, 10), (19, 20)]
    assert compared(steps(*levels), direction).changes == []


def test_a_regression_is_against_the_best_level_also_where_it_was_worse_before() -> None:
    (change,) = still_worse(steps(1.2, 1.0, 1.1), "lower")
    assert (change.before, change.after, change.last, change.first) == (1.0, 1.1, 19, 20)


@pytest.mark.parametrize(("direction", "end"), [("lower", 1.215), ("higher", 1 / 1.215)])
def test_a_drift_is_told_from_end_to_end(direction: str, end: float) -> None:
    drift = [Level(0, 39, 1.0, 0.003, end)]
    (change,) = still_worse(drift, direction)
    assert (change.before, change.after, change.last, change.first, change.drifts) == (
        1.0,
        end,
        0,
        39,
        True,
    )
    assert [each.wording for each in compared(drift, direction).changes] == [change.wording]
    other = {"lower": "higher", "higher": "lower"}[direction]
    assert still_worse(drift, other) == []
    assert [each.verdict for each in compared(drift, other).changes] == ["better"]


def test_levels_at_and_below_zero_are_compared_too() -> None:
    assert still_worse(steps(-1.0, -2.0), "higher")
    assert not still_worse(steps(-2.0, -1.0), "higher")
    assert still_worse(steps(0.0, 1.0), "lower")


@pytest.mark.parametrize(
    ("intervals", "revisions", "counts"),
    [
        ([0, 1, 10, 11], [0, 1, 10, 11], True),
        ([0, 1, 10], [0, 1, 10], False),
        ([], [0, 1, 2, 10, 11, 12], True),
        ([], [0, 1, 10, 11], False),
    ],
)
def test_a_single_run_that_stands_out_is_no_change_yet(
    intervals: list[int], revisions: list[int], counts: bool
) -> None:
    # a reading without interval: asv's own, of one sample
    found = [
        reading(1.0 if r < 10 else 1.5, spread=SPREAD if r in intervals else None)
        for r in revisions
    ]
    levels = list(Readings(np.array(revisions), found).find_levels().levels)
    assert bool(still_worse(levels, "lower")) == counts


def test_values_sampled_while_the_card_throttled_are_not_compared_with_settled_ones() -> (
    None
):
    line = [
        (
            n,
            replace(
                reading(1.0 if n < 5 else 1.1),
                physics=Physics.THROTTLED if n < 5 else Physics.SUSTAINED,
            ),
        )
        for n in range(10)
    ]
    assert Readings.of(line).revisions.tolist() == [5, 6, 7, 8, 9]
    assert Readings.of(line[:5]).revisions.tolist() == [0, 1, 2, 3, 4]
    assert Readings.of([]).readings == []


def test_what_is_left_out_is_counted_by_its_reason() -> None:
    line = [
        (n, replace(reading(1.0), physics=Physics.THROTTLED) if n < 11 else reading(1.0))
        for n in range(16)
    ]
    assert Readings.of(line).left_out == {"one side throttled": 11}


def test_values_from_before_continuous_load_are_not_of_the_same_history() -> None:
    """Long steps were faster while the card rested between them."""
    line = [
        (
            n,
            replace(
                reading(1.0 if n < 5 else 1.1), load="with rests" if n < 5 else CONTINUOUS
            ),
        )
        for n in range(10)
    ]
    judged = Readings.of(line)
    assert judged.revisions.tolist() == [5, 6, 7, 8, 9]
    assert judged.left_out == {"on one side the card rested between the steps": 5}


def busy(value: float) -> MeasuredValue:
    return replace(reading(value), physics=Physics.CPU, is_busy=True)


def test_busy_readings_count_with_a_wider_interval() -> None:
    # 11 of 16 on a busy machine: what is much slower is told, what busy CPUs explain is not
    much, little = ([reading(1.0)] * 5 + [busy(factor)] * 11 for factor in (6.3, 1.3))
    found = [Readings.of(list(enumerate(line))) for line in (much, little)]
    assert [len(each.readings) for each in found] == [16, 16]
    p_values = [p_values_of(each.find_levels()) for each in found]
    assert max(p_values[0]) < 1e-3
    assert p_values[1] == [] or min(p_values[1]) > 0.05
    # what changes while the machine stays busy is told as on a quiet one
    line = [busy(1.5)] * 8 + [busy(1.8)] * 8
    levels = Readings.of(list(enumerate(line))).find_levels()
    assert [(level.first, level.last) for level in levels.levels] == [(0, 7), (8, 15)]
    assert max(p_values_of(levels)) < 1e-6


@pytest.mark.parametrize(
    ("before", "after", "undone", "stands"),
    [(1.0, 1.5, 1.1, 1.3), (1.5, 1.0, 1.4, 1.1), (-1.0, -2.0, -1.2, -1.8)],
)
def test_a_newest_value_near_the_level_before_speaks_against_a_change(
    before: float, after: float, undone: float, stands: float
) -> None:
    change = Change(0, 1, before, after, "worse")
    assert change.is_undone_by(undone) and change.is_undone_by(before)
    assert not change.is_undone_by(stands) and not change.is_undone_by(after)
    # beyond either level, and without a value
    assert change.is_undone_by(before + (before - after) / 4)
    assert not change.is_undone_by(None)


def test_the_newest_value_of_a_series_is_one_that_nobody_disturbed() -> None:
    machine = Machine(Hardware(0, "H200", "1"), "m")
    series = MeasuredSeries(compared([], "lower").metric, "", machine)
    line = [reading(1.0), reading(1.0), reading(1.5), reading(1.5), reading(1.1), busy(1.9)]
    told, _ = ask(series, Readings.of(list(enumerate(line))))
    assert told.newest == 1.1


@pytest.mark.parametrize("values", [(1.0, 1.3), (1.3, 1.0)])
def test_the_bound_of_a_change_lies_between_its_ratio_and_1(
    values: tuple[float, float],
) -> None:
    before, after = values
    metric = compared([], "lower").metric
    machine = Machine(Hardware(0, "H200", "1"), "m")
    line = [reading(before)] * 4 + [reading(after)] * 4
    series, asked = ask(
        MeasuredSeries(metric, "", machine), Readings.of(list(enumerate(line)))
    )
    (change,) = dataclasses.replace(series, answers=dict.fromkeys(asked, True)).changes
    words, bound = change.bound.removeprefix("at ").removesuffix("×").split()
    assert words == ("least" if after > before else "most")
    assert sorted([1.0, float(bound), after / before])[1] == float(bound)


def test_a_count_has_no_bound_beside_its_ratio() -> None:
    values = [reading(value, spread=EXACT) for value in (100, 100, 100, 101, 101, 101)]
    levels = Readings(np.arange(6), values).find_levels()
    assert [levels.bound(each) for each in levels.steps()] == [""]


def test_counts_differ_by_any_difference() -> None:
    levels = Readings(
        np.arange(6),
        [reading(value, spread=EXACT) for value in (100, 100, 100, 101, 101, 101)],
    ).find_levels()
    assert [level.value for level in levels.levels] == [100, 101]
    assert p_values_of(levels) == [0.0]


def test_values_not_above_zero_have_levels_too() -> None:
    dice = random.Random(1)
    values = [-1.0 + dice.gauss(0, 0.01) for _ in range(8)] + [
        -2.0 + dice.gauss(0, 0.01) for _ in range(8)
    ]
    levels = Readings(
        np.arange(16), [reading(value, spread=None) for value in values]
    ).find_levels()
    assert [round(level.value) for level in levels.levels] == [-1, -2]
    assert max(p_values_of(levels)) < 0.01


def test_a_single_run_between_two_levels_does_not_hide_the_change() -> None:
    measured = Readings(
        np.arange(11), [reading(value) for value in [1.0] * 5 + [3.0] + [1.5] * 5]
    )
    levels = measured.find_levels()
    (change,) = still_worse(list(levels.levels), "lower", p_values_of(levels))
    assert (change.last, change.first) == (4, 6)
    assert (change.before, change.after) == pytest.approx((1.0, 1.5), rel=1e-6)


def test_commits_that_only_an_unknown_card_measured_may_be_of_either_level() -> None:
    # card C measured 10 and 11 alone and may be as much slower by itself: the range of the change
    # holds them
    cards, values = "AABBAABBAA" + "CC" + "AABBAA", [1.0] * 10 + [1.02] * 2 + [1.03] * 6
    found = [reading(value, card) for value, card in zip(values, cards, strict=True)]
    levels = Readings(np.arange(18), found).find_levels()
    (change,) = still_worse(list(levels.levels), "lower", p_values_of(levels))
    assert (change.last, change.first) == (9, 12)


def test_the_reference_of_a_visit_tells_a_slow_card_from_slow_code() -> None:
    dice = random.Random(11)
    factors = [dice.gauss(0, 0.015) for _ in range(8)]
    by_card = np.repeat(factors, 3)  # each visit another card
    slower = 0.05 * (np.arange(24) >= 18)
    noise = [dice.gauss(0, 0.002) for _ in range(24)]
    values = np.exp(by_card + slower + noise)
    spread = Spread(0.002**2, 20.0, 0.015**2, 5.0)
    blind = [
        reading(float(value), f"card {number // 3}", spread)
        for number, value in enumerate(values)
    ]
    seeing = [
        replace(each, reference=float(factor))
        for each, factor in zip(blind, by_card, strict=True)
    ]
    one_visit = [replace(each, reference=0.0) for each in blind]
    told, untold, constant = (
        Readings.of(list(enumerate(line))).find_levels()
        for line in (seeing, blind, one_visit)
    )
    assert [(level.first, level.last) for level in told.levels] == [(0, 17), (18, 23)]
    assert told.levels[1].value / told.levels[0].value == pytest.approx(1.05, abs=0.005)
    assert max(p_values_of(told)) < 1e-6
    assert min(p_values_of(untold), default=1.0) > 1e-6
    assert constant.levels == untold.levels
