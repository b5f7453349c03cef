"""What is said of a difference: bounds, changes from zero, hypotheses, means over cards."""

from __future__ import annotations

import math
from typing import Any

import pytest
from msgspec.structs import replace
from records import a_value

from hpml_plugins.analysis.measured import (
    CONTINUOUS,
    EXACT,
    MeasuredValue,
    mean_over_cards,
)
from hpml_plugins.analysis.physics import Physics
from hpml_plugins.analysis.variance import Spread
from hpml_plugins.analysis.verdicts import (
    NO_SECOND_CARD,
    NOTHING_REPEATED,
    OTHER_LOAD,
    Difference,
    ValuePair,
    compare_values,
)
from hpml_plugins.model.formatting import bounded_times

#: 0.1 % between runs of a card, 1 % between cards, both known well.
SPREAD = Spread(0.001**2, 1e6, 0.01**2, 1e6)


def value(
    number: float,
    card: str = "A",
    direction: str | None = "lower",
    spread: Spread | None = SPREAD,
    **changes: Any,
) -> MeasuredValue:
    spread = spread if number > 0 else None
    return a_value(number, card, direction=direction, spread=spread, **changes)


def compare(a: MeasuredValue, b: MeasuredValue) -> Difference:
    (found,) = compare_values([ValuePair("", {"": a}, {"": b}, "")])
    return found


def test_a_step_is_not_compared_with_one_between_which_the_card_rested() -> None:
    found = compare(value(1.0, load="with rests"), value(1.07, load=CONTINUOUS))
    assert (found.verdict, found.reason) == ("AMBIGUOUS", OTHER_LOAD)
    assert found.ratio == pytest.approx(1.07)
    assert compare(counted(8.0), counted(10.0)).verdict == "WORSE"  # counts have no load


def counted(number: float, direction: str | None = "lower") -> MeasuredValue:
    return value(number, direction=direction, spread=EXACT, physics=Physics.COUNTED)


@pytest.mark.parametrize(
    ("a", "b", "verdict", "wording"),
    [
        # one-sided: 1.645 · √2 · 1 % = 2.33 % below 1.43
        (value(1.43), value(1.0, "B"), "BETTER", "at least 1.39×"),
        (value(1.0), value(1.43, "B"), "WORSE", "at most 0.72×"),
        (
            value(1.0, direction="higher"),
            value(1.43, "B", "higher"),
            "BETTER",
            "at least 1.39×",
        ),
        (value(1.0), value(1.003, "B"), "BOUND", "0.96 to 1.03×"),
        (value(1.0), value(1.003), "SAME", "equal within 1 %"),  # on one card
        (value(1.0), value(1.02, "B"), "BOUND", "0.95 to 1.01×"),
        (value(1.0, direction=None), value(2.0, "B", None), "BOUND", "1.94 to 2.06×"),
        (counted(8.0), counted(10.0), "WORSE", "0.80×"),
        (counted(8.0), counted(8.0), "SAME", "equal"),
        (counted(29.6501e9), counted(29.6498e9), "SAME", "equal"),  # an allocator rounds
        (counted(1000.0), counted(1001.0), "WORSE", "1.00×"),
        (counted(8.0, None), counted(10.0, None), "BOUND", "1.25×"),
    ],
)
def test_what_can_be_said_is_a_bound(
    a: MeasuredValue, b: MeasuredValue, verdict: str, wording: str
) -> None:
    found = compare(a, b)
    assert (found.verdict, found.wording()) == (verdict, wording)


def test_a_loss_of_one_run_on_one_card_each_has_no_interval_and_no_verdict() -> None:
    """The assumed variation is that of the speed of cards."""
    guess = Spread(1e-6, 1.0, 1e-4, 1.0, is_assumed=True)
    a, b = (
        value(number, card, spread=guess, physics=Physics.DERIVED)
        for number, card in ((46.0, "A"), (4.3, "B"))
    )
    found = compare(a, b)
    assert (found.verdict, found.reason) == ("AMBIGUOUS", NO_SECOND_CARD)
    assert (a.estimate.low, a.estimate.high, a.has_interval) == (None, None, False)
    # equal ones are equal, and on one card runs tell; so do a time and what was repeated
    assert compare(a, replace(b, value=46.0)).wording() == "equal"
    assert compare(a, replace(b, card="A")).verdict in ("BETTER", "BOUND")
    timed = replace(a, physics=Physics.NEVER_THROTTLED)
    assert timed.has_interval
    assert replace(a, spread=guess._replace(is_assumed=False)).has_interval


@pytest.mark.parametrize(
    ("a", "b", "direction", "verdict", "wording"),
    [
        (0.0, 5.0, "lower", "WORSE", "+5"),
        (5.0, 0.0, "lower", "BETTER", "−5"),
        (0.0, 5.0, "higher", "BETTER", "+5"),
        (0.0, 0.0, "lower", "SAME", "equal"),
        (-3.0, -6.0, "lower", "BETTER", "−3"),
        (-3.0, 2.0, "higher", "BETTER", "+5"),
    ],
)
def test_a_count_at_or_below_zero_is_judged_by_its_difference(
    a: float, b: float, direction: str, verdict: str, wording: str
) -> None:
    found = compare(counted(a, direction), counted(b, direction))
    assert (found.verdict, found.wording(), found.ratio, found.change) == (
        verdict,
        wording,
        None,
        b - a,
    )


def test_a_measured_value_at_zero_is_judged_by_how_far_repeated_runs_move() -> None:
    one, other = (value(number, scatter=(0.01**2, 50.0)) for number in (0.0, 0.1))
    assert compare(one, other).verdict == "WORSE"
    near = compare(one, value(0.01, scatter=(0.01**2, 50.0)))
    assert (near.verdict, near.reason != "") == ("AMBIGUOUS", True)
    alone = compare(value(0.0), value(0.1))
    assert (alone.verdict, alone.wording()) == ("AMBIGUOUS", NOTHING_REPEATED)


def test_busy_sides_count_with_the_interval_that_they_deserve() -> None:
    quiet, busy = value(1.0), value(1.0, is_busy=True)
    assert compare(quiet, value(1.2)).verdict == "WORSE"
    little = compare(busy, value(1.2))
    assert little.verdict == "BOUND" and little.interval and little.interval[0] < 1 / 2
    assert (
        compare(busy, value(6.3)).verdict
        == compare(quiet, value(6.3, is_busy=True)).verdict
    )
    both = compare(busy, value(6.3, is_busy=True))
    assert (both.verdict, both.ratio) == ("WORSE", pytest.approx(6.3))


def test_what_cannot_be_judged_says_why() -> None:
    assert compare(value(1.0, spread=None), value(2.0, spread=None)).wording()


def test_a_difference_reversed_is_that_of_the_sides_exchanged() -> None:
    a, b = value(1.43), value(1.0, "B")
    forth, back = compare(a, b).reversed, compare(b, a)
    assert forth.verdict == back.verdict and forth.wording() == back.wording()
    assert [forth.ratio, forth.low, forth.high, forth.change] == pytest.approx(
        [back.ratio, back.low, back.high, back.change]
    )


def test_metrics_of_one_timing_are_one_hypothesis() -> None:
    """Four timings of which one is slow: whether each has a rate and a bandwidth beside it changes
    no verdict."""

    def point(
        seconds: float, card: str, timing: float, metrics: int
    ) -> dict[str, MeasuredValue]:
        times = {"time": value(seconds, card, timing=timing)}
        rates = {
            f"rate{n}": value(1 / seconds, card, "higher", timing=timing)
            for n in range(metrics)
        }
        return times | rates

    def asked(metrics: int) -> list[Difference]:
        pairs = []
        for number, slower in enumerate([1.035, 1.0, 1.001, 0.999]):
            sides = (
                point(1.0, "A", 0.1 + number, metrics),
                point(slower, "B", 0.2 + number, metrics),
            )
            pairs += [ValuePair(number, *sides, name) for name in sides[0]]
        return compare_values(pairs)

    alone = compare_values([ValuePair("", {"": value(1.0)}, {"": value(1.035, "B")}, "")])
    assert alone[0].verdict == "WORSE"
    for metrics in (0, 2):
        found = asked(metrics)
        # corrected for four, not for twelve
        assert {each.verdict for each in found[: metrics + 1]} == {"BOUND"}
        assert found[0].p == pytest.approx(alone[0].p)


def test_the_mean_is_over_cards_whatever_the_number_of_their_runs() -> None:
    runs = [
        value(1.0, "A"),
        value(1.0, "A", started=1.0),
        value(1.0, "A"),
        value(1.21, "B", boosted=replace(value(0.81, "B"), physics=Physics.BOOST)),
    ]
    mean = mean_over_cards(runs)
    assert mean.value == pytest.approx(1.1)  # geometric
    assert {level.card: level.runs for level in mean.cards} == {"A": 3, "B": 1}
    assert mean.boost == pytest.approx(0.9)  # A, which did not throttle, has 1.0
    assert mean_over_cards(runs[:1]) is runs[0]
    disturbed = replace(runs[3], is_busy=True)
    assert mean_over_cards([*runs[:3], disturbed]).value == 1.0
    # one card whose launch was seen, and be it the newest, stands for no type
    seen = replace(value(2.0, "C"), physics=Physics.HOST_CLOCK, started=99.0)
    most = mean_over_cards([value(1.0), value(1.0, "B"), seen])
    assert (most.value, most.unlike_runs, mean.unlike_runs) == (1.0, 1, 0)
    assert mean_over_cards([value(1.0), seen]) == replace(seen, unlike_runs=1)
    low = mean_over_cards([value(-1.0), value(3.0, "B"), value(5.0, "B")])
    assert (low.value, low.levels) == (1.5, ())
    assert mean_over_cards([counted(3.0), replace(counted(4.0), started=9.0)]).value == 4.0


def test_cards_that_throttled_without_regimes_do_not_outvote_one_with_regimes() -> None:
    def value(number: float, card: str, physics: Physics) -> MeasuredValue:
        return a_value(number, card, physics=physics)

    throttled = [value(1.0, card, Physics.THROTTLED) for card in "AB"]
    settled = value(1.2, "C", Physics.SUSTAINED)
    assert mean_over_cards([*throttled, settled]) == replace(settled, unlike_runs=2)
    assert mean_over_cards(throttled).value == pytest.approx(1.0)
    cool = value(0.9, "C", Physics.NEVER_THROTTLED)
    assert mean_over_cards([*throttled, cool]).value == pytest.approx(1.0)


def test_a_card_that_need_not_throttle_is_averaged_with_those_that_settled() -> None:
    settled = a_value(1.0, "A", physics=Physics.SUSTAINED, started=9.0)
    memory = [a_value(1.21, card, physics=Physics.MEMORY_BOUND) for card in "BC"]
    mean = mean_over_cards([settled, memory[0]])
    assert (mean.value, mean.unlike_runs) == (pytest.approx(1.1), 0)
    assert mean.physics is Physics.SUSTAINED  # in a tie the newest
    assert mean_over_cards([settled, *memory]).physics is Physics.MEMORY_BOUND
    boosted = replace(settled, boosted=a_value(0.81, "A", physics=Physics.BOOST))
    at_boost = mean_over_cards([boosted, memory[0]]).boosted
    assert at_boost is not None
    assert (at_boost.value, at_boost.physics) == (pytest.approx(0.99), Physics.BOOST)
    # a class has a reference step of its own
    told = [replace(boosted, reference=1.0), replace(memory[0], reference=5.0)]
    mean = mean_over_cards(told)
    assert mean.boosted is not None
    for number, own in ((mean, 1.0), (mean.boosted, None)):
        references = {level.card: level.reference for level in number.cards}
        assert references == {"A": own, "B": None}
    launched = a_value(9.0, "D", physics=Physics.LAUNCHED, started=10.0)
    assert mean_over_cards([settled, memory[0], launched]).unlike_runs == 1


def test_more_cards_a_side_narrow_the_interval_and_common_cards_are_compared_with_themselves() -> (
    None
):
    def side(factor: float, cards: str) -> MeasuredValue:
        levels = {"A": 1.0, "B": 1.02, "C": 0.97, "D": 1.01}
        return mean_over_cards([value(factor * levels[card], card) for card in cards])

    single, four = (
        compare(side(1, "A"), side(1.1, "B")),
        compare(side(1, "AC"), side(1.1, "BD")),
    )
    widths = [math.log((each.high or 0) / (each.low or 1)) for each in (single, four)]
    assert widths[1] == pytest.approx(widths[0] / math.sqrt(2))
    assert (four.cards, four.paired) == ((2, 2), False)
    paired = compare(side(1, "ABC"), side(1.1, "BCD"))
    assert (paired.paired, paired.cards) == (True, (2, 2))
    assert paired.ratio == pytest.approx(1.1)  # although the means differ by the cards too
    assert math.log((paired.high or 0) / (paired.low or 1)) < widths[1] / 5


@pytest.mark.parametrize(
    ("ratio", "down", "up"),
    [
        (1.4014, "1.40", "1.41"),
        (1.40, "1.40", "1.40"),
        (0.999, "0.99", "0.999"),
        (1.00362, "1.0036", "1.01"),
        (0.99999, "0.99", "1.00"),
        (1.0, "1.00", "1.00"),
        (25.67, "25.6", "25.7"),
        (1234.5, "1234", "1235"),
        (0.01234, "0.0123", "0.0124"),
        (1e-6, "0", "0.0001"),
    ],
)
def test_a_bound_is_rounded_to_the_side_on_which_it_stays_true(
    ratio: float, down: str, up: str
) -> None:
    assert (bounded_times(ratio, up=False), bounded_times(ratio, up=True)) == (down, up)
