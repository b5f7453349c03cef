"""Which runs stand for the two sides of a point, and by which of their values they are compared."""

from __future__ import annotations

import pytest
from records import a_value

from hpml_plugins.analysis.measured import MeasuredValue
from hpml_plugins.analysis.physics import Physics
from hpml_plugins.analysis.sides import (
    BOOST,
    MeasuredRun,
    PointSides,
    SideRuns,
    ValuesOfSides,
    boosted,
)


def sustained(number: float, boost: float) -> MeasuredValue:
    """Of a step that throttled, in both regimes."""
    at_boost = a_value(boost, physics=Physics.BOOST)
    return a_value(number, physics=Physics.SUSTAINED, boosted=at_boost)


def run(code: str, age: int, number: float = 1.0, card: str = "A") -> MeasuredRun[str]:
    return MeasuredRun(code, (age,), {"time": a_value(number, card)}, "")


A = [run("old", 1), run("common", 2), run("common", 3), run("only A", 4)]
B = [run("older", 0), run("common", 5, card="B"), run("only B", 6, card="B")]


@pytest.mark.parametrize(
    ("common", "a", "b", "expected", "across"),
    [
        (True, A, B, (["common", "common"], ["common"]), False),
        (False, A, B, (["only A"], ["only B"]), False),
        (True, A[:1], B[:1], (["old"], ["older"]), True),
    ],
)
def test_types_are_compared_at_the_newest_code_of_both_and_others_at_their_own(
    common: bool,
    a: list[MeasuredRun[str]],
    b: list[MeasuredRun[str]],
    expected: tuple[list[str], list[str]],
    across: bool,
) -> None:
    sides = PointSides(SideRuns.of(a), SideRuns.of(b), common=common)
    assert ([each.code for each in sides.a], [each.code for each in sides.b]) == expected
    assert sides.across is across
    assert sides.is_older is (common and not across)


def test_a_side_is_the_mean_over_its_cards_of_what_its_newest_run_has() -> None:
    older = MeasuredRun("c", (1,), {"time": a_value(1.0), "gone": a_value(9.0)}, "")
    both = SideRuns.of([older, run("c", 2, 4.0, "B")])
    of_a, _ = PointSides(both, both, common=True).settled
    assert {name: each.value for name, each in of_a.items()} == {"time": pytest.approx(2.0)}


def test_a_metric_that_lost_its_direction_has_none_with_older_code_either() -> None:
    newer = MeasuredRun("new", (9,), {"time": a_value(1.0, direction=None)}, "")
    side = SideRuns.of([*A, newer])
    assert {code: side.values(code)["time"].direction for code in ("new", "common")} == {
        "new": None,
        "common": None,
    }


def test_the_mean_of_a_side_is_computed_once_for_each_code() -> None:
    one, other = SideRuns.of(A), SideRuns.of(B)
    first, second = (PointSides(one, other, common=True).settled[1] for _ in range(2))
    assert first["time"] is second["time"] is other.values("common")["time"]

    repeated = SideRuns.of([run("common", 7, 2.0), run("common", 8, 8.0, "B")])
    _, again = PointSides(one, repeated, common=True).settled
    assert again["time"].value == pytest.approx(4.0)


def compared(
    a: MeasuredValue, b: MeasuredValue, metric: str, regime: str
) -> tuple[float, float]:
    """By which values a metric is compared, where the pages show 70 and 80, at boost 7 and 8."""
    shown: ValuesOfSides = (
        {metric: sustained(70.0, 7.0)},
        {metric: sustained(80.0, 8.0)},
    )
    runs = (SideRuns.of([MeasuredRun("c", (1,), {"time": each}, "")]) for each in (a, b))
    found = PointSides(*runs, common=True).compared(metric, regime, shown)
    return found[0][metric].value, found[1][metric].value


SETTLED = sustained(20.0, 2.0)


@pytest.mark.parametrize(
    ("a", "b", "regime", "expected"),
    [
        (SETTLED, sustained(30.0, 3.0), "", (20.0, 30.0)),
        (SETTLED, sustained(30.0, 3.0), BOOST, (2.0, 3.0)),
        # a step that was never throttled has one rate, which is both
        (SETTLED, a_value(30.0), BOOST, (2.0, 30.0)),
        # one that was sampled while it throttled has neither: what the pages show is compared
        (SETTLED, a_value(30.0, physics=Physics.THROTTLED), BOOST, (7.0, 8.0)),
        (SETTLED, a_value(30.0, physics=Physics.THROTTLED), "", (20.0, 30.0)),
    ],
)
def test_a_metric_is_compared_in_its_regime(
    a: MeasuredValue, b: MeasuredValue, regime: str, expected: tuple[float, float]
) -> None:
    assert compared(a, b, "time", regime) == expected


@pytest.mark.parametrize(("regime", "expected"), [("", (70.0, 80.0)), (BOOST, (7.0, 8.0))])
def test_a_metric_that_the_common_code_lacks_is_compared_as_shown(
    regime: str, expected: tuple[float, float]
) -> None:
    assert compared(SETTLED, SETTLED, "rate", regime) == expected


def test_boost_stands_in_the_place_of_the_settled_value() -> None:
    values = {"time": SETTLED, "size": a_value(3.0, physics=Physics.COUNTED)}
    assert {name: each.value for name, each in boosted(values).items()} == {
        "time": 2.0,
        "size": 3.0,
    }
