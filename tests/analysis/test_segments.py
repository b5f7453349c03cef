"""Levels of made series, of which the truth is known: cards, drifts, outliers, covariates, and
false alarms."""

from __future__ import annotations

import numpy as np
import pytest

from hpml_plugins.analysis.segments import (
    BEGIN,
    END,
    MIDDLE,
    Array,
    ReadingSeries,
    Segmentation,
    find_segments,
)

RUN, CARD = 0.003, 0.01
COUNT = 24


def made(
    dice: np.random.Generator, shape: Array, cards: Array, covariates: Array | None = None
) -> ReadingSeries:
    """Readings that follow a shape (logarithms), on these cards, with the variances that are
    known."""
    of_cards = dice.normal(0, CARD, cards.max() + 1)
    values = shape + of_cards[cards] + dice.normal(0, RUN, len(shape))
    runs = np.full(len(shape), RUN**2)
    more = {} if covariates is None else {"covariates": covariates}
    return ReadingSeries(values, cards, runs, 12.0, CARD**2, 10.0, **more)


def step(size: float, at: int = COUNT - 4) -> Array:
    """A shape of one step."""
    return np.where(np.arange(COUNT) >= at, np.log1p(size), 0.0)


def starts(found: Segmentation) -> list[int]:
    return [segment.first for segment in found.segments]


def p_of_step(found: Segmentation) -> float:
    """Of the newest level against the one before; 1 where there is one level."""
    last = len(found.segments) - 1
    return found.contrast((last - 1, MIDDLE), (last, MIDDLE)).p if last else 1.0


def test_equal_code_has_one_level_however_often_the_card_changes() -> None:
    dice = np.random.default_rng(0)
    false = 0
    for _ in range(200):
        found = find_segments(made(dice, np.zeros(COUNT), dice.integers(0, 6, COUNT)))
        values = [found.value(number) for number in range(len(found.segments))]
        false += max(values) - min(values) > 0.02 and p_of_step(found) < 1e-5
    assert false == 0  # of 4,800 point-commits


def test_equal_code_is_seldom_given_two_levels_at_all() -> None:
    dice = np.random.default_rng(1)
    several = sum(
        len(find_segments(made(dice, np.zeros(COUNT), dice.integers(0, 6, COUNT))).segments)
        > 1
        for _ in range(200)
    )
    assert several <= 20  # of 200, where the entry alone admits 5 %


def test_three_per_cent_are_found_within_four_commits_on_cards_that_were_seen_before() -> (
    None
):
    dice = np.random.default_rng(2)
    found = [
        find_segments(made(dice, step(0.03), np.arange(COUNT) % 5)) for _ in range(100)
    ]
    assert (
        sum(
            starts(each)[-1] in range(COUNT - 5, COUNT - 2) and p_of_step(each) < 1e-5
            for each in found
        )
        >= 95
    )


def test_what_one_new_card_alone_says_may_be_the_card() -> None:
    dice = np.random.default_rng(3)
    cards = np.where(np.arange(COUNT) < COUNT - 4, np.arange(COUNT) % 5, 5)
    found = [find_segments(made(dice, step(0.03), cards)) for _ in range(50)]
    assert not any(p_of_step(each) < 1e-5 for each in found)


def test_a_reference_step_of_the_visit_tells_the_card_from_the_code() -> None:
    dice = np.random.default_rng(4)
    cards = np.arange(COUNT) // 3  # each visit another card
    of_cards = dice.normal(0, CARD, cards.max() + 1)[cards]
    useless = dice.normal(0, 1, COUNT)
    values = step(0.03, COUNT - 6) + of_cards + dice.normal(0, RUN / 3, COUNT)
    reference = -of_cards + dice.normal(
        0, RUN / 10, COUNT
    )  # a rate falls where a time rises
    runs = np.full(COUNT, (RUN / 3) ** 2)
    blind = ReadingSeries(values, cards, runs, 12.0, CARD**2, 10.0)
    seeing = ReadingSeries(
        values, cards, runs, 12.0, CARD**2, 10.0, np.column_stack([useless, reference])
    )
    assert p_of_step(find_segments(blind)) > 1e-5
    found = find_segments(seeing)
    assert starts(found) == [0, COUNT - 6]
    assert p_of_step(found) < 1e-6
    assert found.value(1) - found.value(0) == pytest.approx(0.03, abs=0.004)


def test_a_covariate_that_few_readings_have_or_that_explains_nothing_changes_nothing() -> (
    None
):
    dice = np.random.default_rng(5)
    series = made(dice, step(0.05), np.arange(COUNT) % 5)
    few = np.full((COUNT, 1), np.nan)
    few[:3] = 1.0
    idle = np.column_stack([np.ones(COUNT), dice.normal(0, 1, COUNT)])
    for columns in (few, idle):
        other = ReadingSeries(
            series.values, series.cards, series.runs, 12.0, CARD**2, 10.0, columns
        )
        assert starts(find_segments(other)) == starts(find_segments(series))
        assert len(find_segments(other).fit.estimates) == len(
            find_segments(series).fit.estimates
        )


@pytest.mark.parametrize("rate", [0.005, -0.005, 0.002])
def test_a_slow_drift_is_one_segment_from_end_to_end(rate: float) -> None:
    dice = np.random.default_rng(6)
    count = 40
    shape = np.log1p(rate) * np.arange(count)
    found = find_segments(made(dice, shape, np.zeros(count, np.int64)))
    (segment,) = found.segments
    assert segment.drifts
    assert found.value(0, END) - found.value(0, BEGIN) == pytest.approx(
        shape[-1], abs=0.005
    )
    assert found.contrast((0, BEGIN), (0, END)).p < 1e-9


def test_steps_are_no_drift() -> None:
    dice = np.random.default_rng(7)
    shape = np.repeat([0.0, 0.03, 0.06, 0.09], 8)
    found = find_segments(made(dice, shape, np.zeros(len(shape), np.int64)))
    assert not any(segment.drifts for segment in found.segments)
    assert starts(found) == [0, 8, 16, 24]


def test_a_level_that_came_and_went_and_a_single_outlier_have_their_own_segments() -> None:
    dice = np.random.default_rng(8)
    shape = np.zeros(COUNT)
    shape[8:12], shape[18] = 0.06, 0.5
    found = find_segments(made(dice, shape, np.zeros(COUNT, np.int64)))
    assert starts(found) == [0, 8, 12, 18, 19]


def test_series_of_one_and_two_readings_and_without_noise_are_fitted() -> None:
    for values in ([1.0], [1.0, 1.0], [1.0] * 6):
        series = ReadingSeries(
            np.array(values),
            np.zeros(len(values), np.int64),
            np.full(len(values), RUN**2),
            2.0,
            0.0,
            4.0,
        )
        assert starts(find_segments(series)) == [0]
