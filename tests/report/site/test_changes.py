"""Regressions: by direction, beyond the noise, and not those that recovered."""

from __future__ import annotations

import numpy as np
import pytest

from hpml_plugins.report.site.regressions import THRESHOLD, Change, Readings, Step, level_changes, open_regressions


def steps(*levels: float, length: int = 10, scatter: float = 0.01) -> list[Step]:
    """Levels of ten revisions each, with a mean deviation of 1 %."""
    return [
        (place * length, (place + 1) * length, level, level, scatter * abs(level)) for place, level in enumerate(levels)
    ]


def readings(*bounds: tuple[float, float]) -> Readings:
    """The same interval at each of ten revisions."""
    low, high = (np.repeat([bound[end] for bound in bounds], 10).astype(float) for end in (0, 1))
    return Readings(np.arange(10 * len(bounds)), (low + high) / 2, low, high)


def still_worse(
    levels: list[Step], direction: str, of: Readings | None = None, threshold: float = THRESHOLD
) -> list[Change]:
    """The open regressions; by default no reading has an interval."""
    return open_regressions(levels, direction, of or readings(*[(np.nan, np.nan)] * len(levels)), threshold)


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
    unbounded = readings(*[(np.nan, np.nan)] * 3)
    assert [change.verdict for change in level_changes(steps(*levels), direction, unbounded, THRESHOLD)] == [
        "worse",
        "better",
    ]


def test_a_regression_that_was_made_good_in_part_is_against_the_best_level_since() -> None:
    (change,) = still_worse(steps(1.0, 2.0, 1.5), "lower")
    assert (change.before, change.after, change.first) == (1.0, 1.5, 10)


def test_a_change_whose_intervals_overlap_is_noise() -> None:
    wide, apart = readings((0.8, 1.3), (1.2, 1.8)), readings((0.9, 1.1), (1.4, 1.6))
    for direction, levels in (("lower", (1.0, 1.5)), ("higher", (1.0, 1.5)[::-1])):
        assert still_worse(steps(*levels), direction, wide) == []
        assert level_changes(steps(*levels), direction, wide, THRESHOLD) == []
    assert still_worse(steps(1.0, 1.5), "lower", apart)


def test_a_change_smaller_than_the_threshold_or_the_scatter_does_not_count() -> None:
    assert not still_worse(steps(1.0, 1.04), "lower")
    assert still_worse(steps(1.0, 1.04), "lower", threshold=0.02)
    assert not still_worse(steps(1.0, 1.4, scatter=0.5), "lower")


@pytest.mark.parametrize(("direction", "levels"), [("lower", (1.0, 1.03, 1.06)), ("higher", (1.0, 0.97, 0.94))])
def test_small_steps_that_add_up_are_a_regression(direction: str, levels: tuple[float, ...]) -> None:
    (change,) = still_worse(steps(*levels), direction)
    assert (change.before, change.after, change.last, change.first) == (levels[0], levels[1], 9, 10)
    unbounded = readings(*[(np.nan, np.nan)] * 3)
    assert level_changes(steps(*levels), direction, unbounded, THRESHOLD) == []


def test_levels_at_and_below_zero_are_compared_too() -> None:
    assert still_worse(steps(-1.0, -2.0), "higher")
    assert not still_worse(steps(-2.0, -1.0), "higher")
    assert still_worse(steps(0.0, 1.0), "lower")


def test_intervals_are_taken_over_the_whole_level_and_not_at_two_points() -> None:
    # one reading of the new level that happens to reach down to the old does not hide the change
    odd = readings((0.9, 1.1), (1.4, 1.6))
    odd.low[10] = 0.5
    assert still_worse(steps(1.0, 1.5), "lower", odd)


@pytest.mark.parametrize(
    ("intervals", "revisions", "counts"),
    [([0, 1, 10, 11], [0, 1, 10, 11], True), ([0, 1, 10], [0, 1, 10], False), ([], [0, 1, 2, 10, 11, 12], True),
     ([], [0, 1, 10, 11], False)],
)  # fmt: skip
def test_a_single_run_that_stands_out_is_no_change_yet(
    intervals: list[int], revisions: list[int], counts: bool
) -> None:
    low, high = (
        np.array([((0.9 if r < 10 else 1.4) + more) if r in intervals else np.nan for r in revisions])
        for more in (0, 0.2)
    )
    values = np.array([1.0 if r < 10 else 1.5 for r in revisions])
    measured = Readings(np.array(revisions), values, low, high)
    assert bool(still_worse(measured.levels(), "lower", measured)) == counts


def test_a_single_run_between_two_levels_does_not_hide_the_change() -> None:
    values = np.array([1.0] * 5 + [3.0] + [1.5] * 5)
    measured = Readings(np.arange(11), values, values * 0.99, values * 1.01)
    (change,) = still_worse(measured.levels(), "lower", measured)
    assert (change.last, change.first, change.before, change.after) == (4, 6, 1.0, 1.5)
