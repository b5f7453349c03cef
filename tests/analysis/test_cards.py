"""The spread between cards by classes, from made values whose truth is known; and the back-test of
made Records."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from backtest import (
    cards_since,
    coverage_table,
    empirical_half_width,
    measured_points,
    of_cards,
    verdict_table,
)
from records import a_record, a_value

from hpml_plugins.analysis.backtest import (
    BackTest,
    ClassResult,
    LeftOut,
    smallest_found,
)
from hpml_plugins.analysis.cards import CardObservations, estimate_points
from hpml_plugins.analysis.measured import card_of
from hpml_plugins.analysis.physics import Physics
from hpml_plugins.analysis.variance import UNKNOWN_CARDS, Estimated, Spread
from hpml_plugins.analysis.verdicts import Difference, ValuePair, compare_values
from hpml_plugins.model.record import MetricSamples, Record


def observed(
    cards: int, members: int, points: int, deviation: float, *, seed: int = 0
) -> CardObservations:
    """Members of one class, each with points on all cards, in which each card has one factor."""
    draw = np.random.default_rng(seed)
    factors = draw.normal(0, deviation, (members, cards))
    rows = []
    for member, point, card in itertools.product(
        range(members), range(points), range(cards)
    ):
        spot = member * points + point
        rows.append((spot + factors[member, card], spot, spot, member, 0, card))
    values, *columns = np.array(rows).T
    return CardObservations(
        values,
        *(column.astype(np.int64) for column in columns),
        modest=np.array([False]),
        loose=np.array([False]),
        family=np.array([0]),
    )


def deviations(found: Estimated) -> Any:
    return np.sqrt(found.variance)


def test_the_spread_is_found_and_counts_as_many_degrees_of_freedom_as_cards_are_told_apart() -> (
    None
):
    found = estimate_points(observed(cards=40, members=6, points=5, deviation=0.01))
    assert deviations(found) == pytest.approx(0.01, rel=0.25)
    # not five times as much: the points share the cards' factors
    assert found.own == pytest.approx([39] * 30)
    assert (found.freedom <= 39 + 30).all()
    assert found.known.all()


def test_cards_that_never_share_a_point_are_not_told_apart() -> None:
    one = observed(cards=2, members=1, points=1, deviation=0.01)
    apart = CardObservations(
        np.concatenate([one.value, one.value]),
        np.zeros(4, np.int64),
        np.array([0, 0, 1, 1]),
        np.zeros(4, np.int64),
        np.zeros(4, np.int64),
        np.array([0, 1, 2, 3]),
        one.modest,
        one.loose,
        one.family,
    )
    assert estimate_points(apart).own.tolist() == [2]  # four cards in two groups
    assert estimate_points(one).own.tolist() == [1]


def with_one_more_member(known: CardObservations) -> CardObservations:
    """With one value of a further member, on the first card."""
    return CardObservations(
        np.append(known.value, 1.0),
        np.append(known.point, known.point.max() + 1),
        np.append(known.spot, 99),
        np.append(known.member, known.member.max() + 1),
        np.append(known.pool, 0),
        np.append(known.card, 0),
        known.modest,
        known.loose,
        known.family,
    )


def test_a_member_of_one_card_borrows_from_its_class_and_a_class_of_few_cards_says_little() -> (
    None
):
    known = observed(cards=12, members=6, points=1, deviation=0.002)
    alone = with_one_more_member(known)
    found = estimate_points(alone)
    assert deviations(found)[6] == pytest.approx(0.002, rel=0.4)
    assert found.own[6] == 0 and found.freedom[6] < found.freedom[0]
    few = observed(cards=2, members=1, points=3, deviation=1e-5)
    lonely = with_one_more_member(few)
    assert deviations(estimate_points(lonely))[3] == pytest.approx(UNKNOWN_CARDS)


def test_a_card_that_is_left_out_tells_nothing() -> None:
    made = observed(cards=5, members=4, points=2, deviation=0.005)
    far = dataclasses.replace(
        made, value=np.where(made.card == 3, made.value + 0.5, made.value)
    )
    assert (deviations(estimate_points(far)) > 0.1).all()
    assert (deviations(estimate_points(far, [3])) < 0.02).all()
    nobody = estimate_points(far, range(5))
    assert not nobody.known.any() and deviations(nobody) == pytest.approx(UNKNOWN_CARDS)


def test_members_that_differ_are_told_apart_and_alike_ones_narrow_one_another() -> None:
    def half(members: Any) -> float:
        return float(np.median(members.freedom))

    alike = estimate_points(observed(cards=4, members=30, points=1, deviation=0.01, seed=1))
    draw = np.random.default_rng(2)
    base = observed(cards=4, members=30, points=1, deviation=0.01, seed=1)
    scales = np.exp(draw.normal(0, 1.5, 30))
    unlike = dataclasses.replace(
        base, value=base.spot + (base.value - base.spot) * scales[base.member]
    )
    assert half(estimate_points(unlike)) < half(alike)
    modest = dataclasses.replace(base, modest=np.array([True]))
    assert half(estimate_points(modest)) == pytest.approx(2 + 3)


def test_a_point_that_differs_from_its_benchmark_is_told_apart_from_the_others() -> None:
    """Of each benchmark one point of five moves ten times as far."""
    base = observed(cards=12, members=1, points=30, deviation=0.0, seed=3)
    draw = np.random.default_rng(4)
    far = np.where(base.point % 5 == 0, 0.02, 0.002)
    made = dataclasses.replace(
        base,
        value=base.value + draw.normal(0, far),
        member=base.point // 5,
    )
    found = deviations(estimate_points(made))
    of_far = np.arange(30) % 5 == 0
    assert np.median(found[of_far]) == pytest.approx(0.02, rel=0.25)
    pooled = math.sqrt(np.mean(far**2))
    assert 0.002 < np.median(found[~of_far]) < pooled / 2


def with_erratic(*erratic: int) -> CardObservations:
    """Five members of a loose class on nine cards; the erratic ones vary a hundred times as far."""
    base = observed(cards=9, members=5, points=1, deviation=0.002)
    far = base.spot + 100 * (base.value - base.spot)
    value = np.where(np.isin(base.member, erratic), far, base.value)
    return dataclasses.replace(base, value=value, loose=np.array([True]))


def test_an_erratic_member_of_a_loose_class_does_not_widen_the_others() -> None:
    made = with_erratic(4)
    found = deviations(estimate_points(made))
    assert (found[:4] < 0.004).all() and found[4] > 0.1
    # where members share physics, it warns of what may happen to them too
    alike = dataclasses.replace(made, loose=np.array([False]))
    assert (deviations(estimate_points(alike))[:4] > 0.02).all()


def test_a_member_that_was_never_repeated_may_be_erratic_too() -> None:
    calm, erratic = (
        deviations(estimate_points(with_one_more_member(with_erratic(*which))))[5]
        for which in ((), (4,))
    )
    assert calm < 0.004 and erratic > 0.05


def test_members_are_erratic_only_beside_a_calm_majority_that_is_known() -> None:
    wild = with_erratic(2, 3, 4)
    assert (deviations(estimate_points(wild))[:2] > 0.02).all()
    # two calm members on two cards have two degrees of freedom
    made = with_erratic(4)
    few = made.only((made.card < 2) & (made.member > 1))
    assert (deviations(estimate_points(few))[2:4] > 0.01).all()


def test_what_is_not_a_number_does_not_count() -> None:
    made = observed(cards=6, members=3, points=2, deviation=0.005)
    told = made.card != 5
    found = estimate_points(
        dataclasses.replace(made, value=np.where(told, made.value, np.nan))
    )
    left_out = estimate_points(made, [5])
    assert found.variance == pytest.approx(left_out.variance)
    assert found.freedom == pytest.approx(left_out.freedom)


def test_cards_of_a_type_tell_of_their_type_and_of_another_where_that_has_too_few() -> None:
    """Six members of three types: six cards that hardly differ, six that differ by much, and one
    card."""
    calm, wild = (observed(6, 6, 2, deviation) for deviation in (1e-3, 2e-2))
    both = CardObservations(
        np.concatenate([calm.value, wild.value, [1.0]]),
        np.concatenate([calm.point, wild.point + 12, [24]]),
        np.concatenate([calm.spot, wild.spot + 100, [999]]),
        np.concatenate([calm.member, wild.member + 6, [12]]),
        np.concatenate([calm.pool, wild.pool + 1, [2]]),
        np.concatenate([calm.card, wild.card + 6, [99]]),
        modest=np.zeros(3, bool),
        loose=np.zeros(3, bool),
        family=np.zeros(3, np.int64),
    )
    found = deviations(estimate_points(both))
    assert (found[:12] < 2e-3).all() and (found[12:24] > 1e-2).all()
    assert 1e-2 <= found[24] < found[12:24].max()
    # nothing is borrowed from another class
    apart = dataclasses.replace(both, family=np.array([0, 0, 1]))
    assert not estimate_points(apart).known[24]


def records(cards: int, deviation: float, seed: int = 0) -> list[Record]:
    """Products of six benchmarks on some cards, whose factors differ by so much, twice each."""
    draw = random.Random(seed)
    made = []
    for card in range(cards):
        factor = 1 + draw.gauss(0, deviation)
        for benchmark, run in itertools.product("abcdef", range(2)):
            seconds = 1e-3 * factor * (1 + draw.gauss(0, deviation / 10))
            info: dict[str, str | float] = {"timer": "cuda events"}
            time = MetricSamples(
                "s", "lower", [seconds, seconds * 1.001, seconds * 1.002], info
            )
            rate = MetricSamples("1/s", "higher", [1 / each for each in time.samples], info)
            made.append(
                a_record(
                    benchmark,
                    {"time": time, "rate": rate},
                    gpu="NVIDIA H200",
                    card=f"GPU-{card}",
                    run=f"{card} {run}",
                    commit="c" * 40,
                    started=float(len(made)),
                    source={"sha256": "code"},
                )
            )
    return made


def test_the_back_test_counts_timings_covers_what_it_should_and_finds_what_is_planted() -> (
    None
):
    results = BackTest(measured_points(records(cards=8, deviation=0.004))).results
    assert set(results) == {Physics.NEVER_THROTTLED}
    found = results[Physics.NEVER_THROTTLED]
    assert len(found.cards) == 8
    assert len(found.covered) == 6 * 8  # of the rate nothing is counted again
    assert len(found.called) == 6 * 8 * 7
    assert np.mean(found.covered) >= 0.9
    assert np.mean(found.called) <= 0.05 and np.mean(found.called_together) <= np.mean(
        found.called
    )
    assert max(found.smallest) < math.log1p(0.05)
    assert 0.004 < found.smallest_found < 0.05
    assert (
        0.004 < found.half_width < 0.03 and empirical_half_width(found) < found.half_width
    )


def test_the_mean_of_cards_counts_a_card_once_however_many_of_its_values_miss() -> None:
    missed, held = (
        LeftOut(card, error, 0.01) for card, error in (("a", 0.02), ("b", 0.005))
    )
    found = ClassResult(Physics.STREAMING, [missed, missed, held, missed])
    assert found.covered.count(True) == 1
    assert found.covered_of_a_card == [0, 1]


def test_a_slow_down_that_cards_hide_is_not_found() -> None:
    found = BackTest(measured_points(records(cards=8, deviation=0.05))).results[
        Physics.NEVER_THROTTLED
    ]
    assert np.mean(np.array(found.smallest) < math.log1p(0.05)) < 0.4
    assert np.mean(found.covered) >= 0.9


@pytest.mark.parametrize("direction", ["lower", "higher"])
@pytest.mark.parametrize("deviation", [0.0005, 0.004, 0.02])
@pytest.mark.parametrize("other", [0.97, 1.0, 1.0005, 1.04])
def test_the_smallest_slow_down_found_is_the_first_that_is_called_worse(
    direction: str, deviation: float, other: float
) -> None:
    spread = Spread(deviation**2, 20.0, deviation**2, 8.0)

    def verdict(slow_down: float) -> Difference:
        factor = 1 + slow_down if direction == "lower" else 1 / (1 + slow_down)
        one, slower = (
            a_value(value, card, direction=direction, spread=spread)
            for card, value in (("A", 1.0), ("B", other * factor))
        )
        (found,) = compare_values([ValuePair("", {"": one}, {"": slower}, "")])
        return found

    smallest = math.expm1(smallest_found(verdict(0.0)))
    assert verdict(smallest + 1e-6).verdict == "WORSE"
    assert smallest == 0 or verdict(smallest - 1e-6).verdict != "WORSE"


def test_both_tables_have_a_row_of_each_class_and_nothing_is_no_table() -> None:
    results = BackTest(measured_points(records(cards=3, deviation=0.01))).results
    (coverage,) = coverage_table(results)
    assert (coverage["class"], coverage["cards"], coverage["values left out"]) == (
        "never throttled",
        "3",
        "18",
    )
    verdicts = list(verdict_table(results))
    assert [row["class"] for row in verdicts] == [
        "never throttled",
        "all classes of a GPU",
        "all",
    ]
    assert {row["pairs of cards"] for row in verdicts} == {"36"}
    empty = BackTest([]).results
    assert list(coverage_table(empty)) == list(verdict_table(empty)) == []


def test_a_blind_test_is_of_the_cards_first_measured_since_a_day() -> None:
    made = records(cards=4, deviation=0.01)
    old, new = {"GPU-0", "GPU-1"}, {"GPU-2", "GPU-3"}
    first_of_new = min(record.started for record in made if card_of(record) in new)
    cards = cards_since(made, datetime.fromtimestamp(first_of_new, UTC))
    assert cards == new
    (result,) = BackTest(measured_points(made)).results.values()
    chosen = of_cards(result, cards)
    assert chosen.cards == cards
    assert {card for pair in chosen.pairs for card in pair.cards} == cards | old
    assert len(chosen.pairs) == len(result.pairs) - 6 * len(old) * (len(old) - 1)
    assert of_cards(result, result.cards) == result
