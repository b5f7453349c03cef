"""bench.time_alternately: the order of the turns, and what a machine that is disturbed leaves of
their ratio."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

import pytest

from hpml_plugins import Bench, Node, Samples
from hpml_plugins.measure import SamplingPlan

#: s: the second is 1.2 times as fast.
STEPS = {"first": 0.012, "second": 0.010}
THREE = {**STEPS, "third": 0.011}


@dataclass
class Machine:
    """A clock that steps alone advance. slowness: time, s → the factor by which a step takes longer
    then."""

    slowness: Callable[[float], float]
    now: float = 0.0
    turns: list[str] = field(default_factory=list)

    def prepare(self, name: str) -> Callable[[], None]:
        self.turns.append(name)

        def step() -> None:
            self.now += THREE[name] * self.slowness(self.now)

        return step


Timed = Callable[..., tuple[Machine, Samples, Samples, Samples]]


@pytest.fixture
def timed(node: Node, monkeypatch: pytest.MonkeyPatch) -> Timed:
    """Time the two steps on a machine of this slowness, whose clock is everybody's: it, their
    samples, their ratio."""

    def timed(
        slowness: Callable[[float], float],
        seconds: float = 0.01,
        rounds: int = 1,
        steps: Iterable[str] = STEPS,
        start: int = 0,
    ) -> tuple[Machine, Samples, Samples, Samples]:
        machine = Machine(slowness)
        bench = Bench(node, {}, plan=SamplingPlan().in_rounds(rounds))
        with monkeypatch.context() as patched:
            patched.setattr("hpml_plugins.clocks.perf_counter", lambda: machine.now)
            patched.setattr("random.SystemRandom.randrange", lambda _, count: start)
            patched.setattr("hpml_plugins.measure.cpu_timer.core_rate", lambda: 7e7)
            found = bench.time_alternately(
                {name: partial(machine.prepare, name) for name in steps}, seconds=seconds
            )
        assert bench.collected.warnings == []
        return (
            machine,
            found.samples["first"],
            found.samples["second"],
            found.ratio("first", "second"),
        )

    return timed


def test_the_rounds_of_a_point_share_the_turns(timed: Timed) -> None:
    machine, *_, ratio = timed(lambda now: 1.0, rounds=3)
    assert machine.turns == ["first", "second", "second", "first"]
    assert len(ratio) == 2


def test_each_of_two_steps_goes_first_as_often(timed: Timed) -> None:
    machine, first, second, ratio = timed(lambda now: 1.0)
    pair, other = (
        ["first", "second", "second", "first"],
        ["second", "first", "first", "second"],
    )
    assert machine.turns == [*pair, *other, *pair]
    assert (first.median, second.median) == (pytest.approx(0.012), pytest.approx(0.010))
    assert ratio.values == pytest.approx([1.2] * 6)
    assert (first.info["turns"], first.info["core_rate"]) == (6, 7e7)


def test_each_of_three_steps_is_in_each_place_as_often(timed: Timed) -> None:
    for start in range(3):
        machine, *_ = timed(lambda now: 1.0, steps=THREE, start=start)
        turns = [machine.turns[at : at + 3] for at in range(0, 18, 3)]
        assert all(
            sorted(place) == sorted([*THREE] * 2) for place in zip(*turns, strict=True)
        )
        assert all(turns[at + 1] == turns[at][::-1] for at in (0, 2, 4))
        shared, *_ = timed(lambda now: 1.0, rounds=3, steps=THREE, start=start)
        assert shared.turns == machine.turns[:6]  # a round begins with any of them
        assert shared.turns[0] == [*THREE][start]


def test_a_long_step_has_four_turns_of_one_sample(timed: Timed) -> None:
    machine, first, second, ratio = timed(lambda now: 100.0, seconds=1.2)
    assert machine.turns == [
        "first",
        "second",
        "second",
        "first",
        "second",
        "first",
        "first",
        "second",
    ]
    assert (first.values, second.values) == (
        pytest.approx([1.2] * 4),
        pytest.approx([1.0] * 4),
    )
    assert ratio.values == pytest.approx([1.2] * 4)
    assert machine.now == pytest.approx(4 * (1.2 + 1.0))  # nothing warmed them up


@pytest.mark.parametrize("seconds", [0.01, 1.2])
def test_a_machine_that_becomes_slower_at_any_moment_leaves_the_ratio_alone(
    timed: Timed, seconds: float
) -> None:
    whole, *_ = timed(lambda now: 1.0, seconds)
    for share in range(15, 86, 7):
        since = whole.now * share / 100
        _, first, second, ratio = timed(
            lambda now, since=since: 1.0 if now < since else 1.55, seconds
        )
        assert ratio.median == pytest.approx(1.2), f"slower after {share} %"
        values = (*first.values, *second.values)
        assert max(values) >= 1.5 * min(values)  # both speeds were met


def test_a_machine_that_is_disturbed_for_a_turn_leaves_the_ratio_alone(
    timed: Timed,
) -> None:
    whole, *_ = timed(lambda now: 1.0)
    turn = whole.now / 12
    for number in range(12):
        *_, ratio = timed(
            lambda now, since=number * turn: 1.55 if since <= now < since + turn else 1.0
        )
        assert ratio.median == pytest.approx(1.2), f"turn {number}"


def test_a_machine_that_becomes_slower_all_the_while_favours_neither(timed: Timed) -> None:
    *_, ratio = timed(lambda now: 1 + now / 2)  # about twice as slow at the end
    # Each ratio is off by up to what a turn of 1/12 of the time changes, to either side.
    assert max(ratio.values) > 1.23
    assert min(ratio.values) < 1.17
    assert ratio.median == pytest.approx(1.2, rel=0.01)
