"""Variance components of made observations, whose truth is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from hpml_plugins.analysis.cards import CardObservations, estimate_points
from hpml_plugins.analysis.variance import (
    FLOOR,
    QUARTILE,
    UNKNOWN,
    UNKNOWN_CARDS,
    Estimated,
    Observations,
    Spread,
    estimate_runs,
    estimate_spreads,
    expected_quartile,
    find_erratic,
    fit_prior,
    half_width,
    number_columns,
    p_value,
    pool_rounds,
)


def made(
    seed: int,
    points: int,
    cards: int,
    runs: int,
    within: float,
    between: float,
    classes: int = 5,
) -> tuple[Observations, Any]:
    """Observations with a relative deviation between runs of a card and between cards; each point
    has one code."""
    rng = np.random.default_rng(seed)
    shape = (points, cards, runs)
    point, card, run = (axis.ravel() for axis in np.indices(shape))
    of_card = rng.normal(0, between, (points, cards, 1))
    values = rng.uniform(-10, 10, (points, 1, 1)) + of_card + rng.normal(0, within, shape)
    group = point % classes
    zeros = np.zeros_like(point)
    own_cards = point * cards + card  # no factor of a card is shared by two points
    return (
        Observations(
            values.ravel(),
            np.full(point.shape, np.nan),
            zeros,
            point,
            group,
            zeros,
            zeros,
            own_cards,
            card * runs + run,
        ),
        values,
    )


def spreads(observed: Observations) -> Any:
    """A Spread of arrays: of each observation that of its point. Each point is a member of its
    own."""
    spots = number_columns(np.stack([observed.point, observed.code]))
    modest = np.zeros(int(observed.kind.max()) + 1, bool)
    cards = CardObservations(
        observed.value,
        observed.point,
        spots,
        observed.point,
        observed.kind,
        observed.card,
        modest=modest,
        loose=np.zeros_like(modest),
        family=np.arange(len(modest)),
    )
    between = Estimated(*(each[observed.point] for each in estimate_points(cards)))
    return Spread(
        *np.array(estimate_spreads(observed, estimate_runs(observed), between))[
            observed.point
        ].T
    )


def test_both_levels_are_found_again() -> None:
    observed, _ = made(1, points=200, cards=4, runs=4, within=0.002, between=0.01)
    found = spreads(observed)
    assert np.sqrt(np.median(found.same_card)) == pytest.approx(0.002, rel=0.15)
    assert np.sqrt(np.median(found.any_card)) == pytest.approx(
        (0.002**2 + 0.01**2) ** 0.5, rel=0.25
    )
    assert (found.any_card >= found.same_card).all()


def test_a_lasting_change_is_not_taken_for_a_variance_between_runs() -> None:
    # ten runs of which the last five are 50 % slower: a regression, in a class of one point
    rng = np.random.default_rng(4)
    values = np.repeat([0.0, 0.4], 5) + rng.normal(0, 0.01, 10)
    zeros = np.zeros(10, np.int64)
    found = spreads(
        Observations(
            values,
            np.full(10, np.nan),
            zeros,
            zeros,
            zeros,
            zeros,
            zeros,
            zeros,
            np.arange(10),
        )
    )
    assert np.sqrt(found.same_card[0]) < 0.02


def test_runs_differ_by_no_less_than_their_rounds_and_those_alone_say_it_of_what_was_never_repeated() -> (  # noqa: E501
    None
):
    observed, _ = made(5, points=20, cards=2, runs=3, within=0.001, between=0.0)
    rounds = np.where(observed.point == 7, 0.01**2, 1e-9)
    wide = replace(observed, rounds=rounds, rounds_freedom=np.full(len(rounds), 1e6))
    found = np.sqrt(spreads(wide).same_card)
    assert found[observed.point == 7] == pytest.approx(0.01, rel=0.01)
    assert (found[observed.point != 7] < 0.003).all()
    one = np.array([0])
    alone = spreads(
        Observations(
            np.array([1.0]), np.array([0.001**2]), one + 2, one, one, one, one, one, one
        )
    )
    assert np.sqrt(alone.same_card) == pytest.approx([0.002])
    assert np.sqrt(alone.any_card) == pytest.approx([np.hypot(0.002, UNKNOWN_CARDS)])


@pytest.mark.parametrize("count", [1, 2, 3, 5, 9])
def test_the_quartile_of_sample_variances_has_the_mean_of_exponential_order_statistics(
    count: int,
) -> None:
    """With two degrees of freedom they are exponential, and rank r of n has the mean 1/n + 1/(n -
    1) + … (Rényi)."""
    means = [
        sum(1 / left for left in range(count - rank, count + 1)) for rank in range(count)
    ]
    assert expected_quartile(count, 2) == pytest.approx(
        np.quantile(means, QUARTILE), abs=0.005
    )


def test_the_quartile_of_many_sample_variances_is_that_of_their_distribution() -> None:
    assert expected_quartile(1001, 4) == pytest.approx(
        stats.chi2.ppf(QUARTILE, 4) / 4, abs=0.002
    )


def test_runs_of_any_number_of_rounds_tell_one_variance_of_which_a_fifth_may_be_wrong() -> (
    None
):
    rng = np.random.default_rng(7)
    freedom = rng.choice([1, 2, 9], 400)  # two, three and ten rounds
    variance = 0.05**2 * rng.chisquare(freedom) / freedom
    told = list(zip(variance.tolist(), freedom.tolist(), strict=True))
    assert pool_rounds(told) == pytest.approx(0.05**2, rel=0.15)
    rogue = [
        (1.0, worth) if number % 5 == 0 else (each, worth)
        for number, (each, worth) in enumerate(told)
    ]
    assert 0.05**2 < pool_rounds(rogue) < 3 * 0.05**2
    assert pool_rounds(told[:1]) == pytest.approx(told[0][0], rel=0.01)
    assert np.isnan(pool_rounds([]))


def test_a_point_measured_once_borrows_from_its_class() -> None:
    observed, _ = made(2, points=50, cards=2, runs=3, within=0.02, between=0.0, classes=1)
    new = (1.0, np.nan, 0, 50, 0, 0, 0, 200, 0)
    alone = Observations(
        *(np.append(*pair) for pair in zip(columns_of(observed), new, strict=True))
    )
    found = spreads(alone)
    assert np.sqrt(found.same_card[-1]) == pytest.approx(0.02, rel=0.15)
    # it knows less than a point with runs of its own
    assert found.same_freedom[-1] < found.same_freedom[0]


def columns_of(observed: Observations) -> list[Any]:
    return [
        getattr(observed, name)
        for name in (
            "value",
            "rounds",
            "rounds_freedom",
            "point",
            "group",
            "kind",
            "code",
            "card",
            "run",
        )
    ]


def test_an_erratic_point_of_a_loose_class_does_not_widen_the_others() -> None:
    """Five points of one class, seven runs each; the last point varies a hundred times as far."""
    base, values = made(1, points=5, cards=1, runs=7, within=0.002, between=0, classes=1)
    middle = values.mean(axis=2, keepdims=True)
    far = (
        middle + np.where(np.arange(5) == 4, 100, 1)[:, None, None] * (values - middle)
    ).ravel()
    observed = replace(base, value=far)
    found = np.sqrt(estimate_runs(observed, loose=[0]).variance)
    calm = observed.point < 4
    assert (found[calm] < 0.005).all() and (found[~calm] > 0.05).all()
    assert (np.sqrt(estimate_runs(observed).variance)[calm] > 0.02).all()
    # without an erratic point nothing changes
    assert estimate_runs(base, loose=[0]).variance == pytest.approx(
        estimate_runs(base).variance
    )


@pytest.mark.parametrize(
    ("deviations", "freedom", "erratic"),
    [
        ([1e-3, 1e-3, 1e-3, 2e-2], 2, [3]),
        ([1e-3, 1e-3, 1e-3, 9e-3], 2, []),
        ([2e-2, 1e-3, 1e-3, 3e-2], 4, []),  # half of them are calm, which is no majority
        ([1e-3, 2e-2, 1e-3, 1e-3, 3e-2], 4, [1, 4]),
        ([1e-3, 1e-3, 1e-3, 2e-2], 1, []),  # the calm ones have three degrees of freedom
        ([0.0, 0.0, 0.0, 3e-3], 2, [3]),  # more than ten times FLOOR
        ([0.0, 0.0, 0.0, 1e-3], 2, []),
        ([1e-3], 9, []),
        ([], 1, []),
    ],
)
def test_what_is_erratic_by_hand(
    deviations: list[float], freedom: float, erratic: list[int]
) -> None:
    found = find_erratic(np.square(deviations), np.full(len(deviations), float(freedom)))
    assert np.flatnonzero(found).tolist() == erratic


def test_a_class_that_nobody_repeated_has_the_variance_of_its_kind_and_a_kind_alone_the_stated_guess() -> (  # noqa: E501
    None
):
    one = np.array([0])
    found = spreads(
        Observations(np.array([1.0]), np.array([np.nan]), one, one, one, one, one, one, one)
    )
    assert np.sqrt(found.any_card) == pytest.approx([UNKNOWN])


def test_identical_runs_do_not_give_an_interval_of_nothing() -> None:
    observed, _ = made(3, points=10, cards=1, runs=5, within=0.0, between=0.0)
    found = spreads(observed)
    assert half_width(found.same_card.min(), found.same_freedom.max()) > FLOOR / 2


@pytest.mark.parametrize("deviation", [0.001, 0.03])
def test_the_interval_holds_the_next_run_on_another_card_as_often_as_it_says(
    deviation: float,
) -> None:
    observed, values = made(
        4, points=400, cards=3, runs=2, within=deviation, between=2 * deviation
    )
    found = spreads(observed)
    widths = np.vectorize(half_width)(found.any_card, found.any_freedom)
    width = widths.reshape(values.shape)
    covered = np.abs(values[:, 0, 0] - values[:, 1, 1]) <= width[:, 0, 0]
    assert 0.92 <= covered.mean() <= 0.985


def test_equal_code_is_seldom_called_different_and_a_shift_of_five_percent_is_found() -> (
    None
):
    observed, values = made(5, points=400, cards=2, runs=4, within=0.004, between=0.01)
    found = spreads(observed)
    same = found.same_card.reshape(values.shape)[:, 0, 0]
    freedom = found.same_freedom.reshape(values.shape)[:, 0, 0]
    difference = values[:, 0, 0] - values[:, 0, 1]
    test = np.vectorize(p_value)
    assert (test(difference, 2 * same, freedom) < 0.05).mean() <= 0.07
    assert (test(difference + 0.05, 2 * same, freedom) < 0.05).mean() >= 0.95


def test_a_run_measured_again_counts_once_with_its_last_value() -> None:
    columns = [
        np.array(each)
        for each in (
            [0.0, 5.0, 0.0],
            [np.nan] * 3,
            [0] * 3,
            [0] * 3,
            [0] * 3,
            [0] * 3,
            [0] * 3,
            [0] * 3,
            [1, 2, 2],
        )
    ]
    observed = Observations(*columns)
    assert spreads(observed).same_card[0] < 0.01  # 0.0 and 0.0: the 5.0 was replaced


def test_the_prior_of_equal_variances_is_that_variance_with_much_freedom() -> None:
    rng = np.random.default_rng(6)
    freedom = np.full(500, 4.0)
    prior, worth = fit_prior(
        0.25 * stats.chi2.rvs(4, size=500, random_state=rng) / 4, freedom
    )
    assert prior == pytest.approx(0.25, rel=0.1)
    assert worth > 20
    # true variances: scaled inverse χ², d0 = 10
    spread = 0.25 * 10 / stats.chi2.rvs(10, size=2000, random_state=rng)
    drawn = spread * stats.chi2.rvs(4, size=2000, random_state=rng) / 4
    prior, worth = fit_prior(drawn, np.full(2000, 4.0))
    assert prior == pytest.approx(0.25, rel=0.1)
    assert worth == pytest.approx(10, rel=0.4)
