"""Both regimes on a simulated card whose regulator is that of an H200: no machine that tests has
one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

from hpml_plugins import clocks
from hpml_plugins.measure import SamplingPlan, regimes
from hpml_plugins.measure.regimes import (
    PERIOD,
    Regulator,
    _LoadGroup,
    is_settled,
    measure_regimes,
)
from hpml_plugins.measure.sampling import noise, remarks
from hpml_plugins.measure.telemetry import Reading

FULL, STEP, TIMED = 1.98e9, 1e-3, 1e-9


class Card:
    """A card in a time of its own: full clocks for 15 ms of load, then a swing of a period around a
    settled rate.

    settled: clock, Hz.  drift: how much it falls each second.  It is also the timer, and its
    telemetry.
    """

    batch = 1
    hides = True
    continuous = False

    def __init__(
        self, settled: float = 1.4e9, drift: float = 0.0, step: float = STEP
    ) -> None:
        self.settled, self.drift, self.step = settled, drift, step
        self.now, self.loaded, self.held = 100.0, 0.0, 0.0
        self.bursts: list[float] = []

    def clock(self) -> float:
        if self.loaded < 0.015:
            return FULL
        swing = 0.03 * math.sin(2 * math.pi * self.loaded / PERIOD)
        return self.settled * (1 + swing - self.drift * self.loaded)

    def enqueue(self, count: int) -> list[tuple[float, bool]]:
        taken = []
        for _ in range(count):
            seconds = self.step * FULL / self.clock()
            self.now += seconds
            self.held += seconds * (self.loaded >= 0.015)
            self.loaded += seconds
            taken.append((seconds, True))
        self.bursts.append(self.loaded)
        return taken

    def load(self, count: int) -> Iterator[list[tuple[float, bool]]]:
        self.continuous = True
        while True:
            yield self.enqueue(count)

    def round(self) -> float:
        return self.enqueue(1)[0][0]

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.loaded = 0.0

    def read(self, gpu: int) -> Reading:
        return Reading(self.now, self.held, self.clock(), 690.0)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Any:
    """measure_regimes on a card."""

    def measure(card: Card) -> Any:
        monkeypatch.setattr(clocks, "monotonic", lambda: card.now)
        monkeypatch.setattr(clocks, "sleep", card.sleep)
        regulator: Any = Regulator(card)  # type: ignore[arg-type]
        card.enqueue(300)  # it throttles by now
        assert regulator.throttles()
        return measure_regimes(card, regulator, {"timer": "cuda events"})  # type: ignore[arg-type]

    return measure


def test_sustained_is_the_mean_of_a_whole_period_and_boost_is_at_full_clocks(
    measured: Any,
) -> None:
    card = Card()
    samples = measured(card)
    assert samples.info["regime"] == "sustained"
    assert samples.info["stopped"] == "settled"
    assert samples.info["load"] == "continuous"
    mean = sum(samples.values) / len(samples)
    assert mean == pytest.approx(STEP * FULL / 1.4e9, rel=2e-3)
    assert samples.boost == pytest.approx([STEP] * regimes.BURSTS)
    assert (
        max(card.bursts[-regimes.BURSTS :]) < 0.015
    )  # the regulator never acted in a burst
    assert samples.info["sustained_clock"] == pytest.approx(1.4e9, rel=5e-3)
    assert samples.info["sustained_power"] == 690.0
    assert samples.info["boost_clock"] == FULL
    assert remarks(samples, "time") == noise(samples, SamplingPlan(), "time") == []


def test_where_in_its_swing_the_load_began_does_not_matter(measured: Any) -> None:
    means = []
    for warm in (0, 130, 370, 620):
        card = Card()
        card.enqueue(warm + 1)
        means.append(sum((samples := measured(card)).values) / len(samples))
    assert max(means) / min(means) < 1.002


def test_a_card_that_does_not_settle_is_measured_all_the_same_and_it_is_said(
    measured: Any,
) -> None:
    samples = measured(Card(drift=0.05))
    assert str(samples.info["stopped"]).startswith("not settled after 3 s")
    assert remarks(samples, "step") == [f"step: {samples.info['stopped']}"]
    assert len(samples.boost) == regimes.BURSTS


def test_a_step_within_which_the_regulator_acts_has_no_boost(measured: Any) -> None:
    samples = measured(Card(step=0.05))
    assert samples.boost == ()
    assert "boost_clock" not in samples.info
    assert samples.info["regime"] == "sustained"


def test_samples_whose_launch_showed_do_not_count_beside_others(measured: Any) -> None:
    class Late(Card):
        def enqueue(self, count: int) -> list[tuple[float, bool]]:
            return [(9.0, False), *super().enqueue(count)]

        def round(self) -> float:
            return self.step

    for hides in (True, False):
        card = Late()
        card.hides = hides
        samples = measured(card)
        assert (max(samples.values + samples.boost) < 2 * STEP) == hides


def group(end: float, seconds: float, power: float = 690.0) -> _LoadGroup:
    return _LoadGroup(end, seconds, 1.5e9, power)


def test_settled_needs_two_periods_that_agree_in_rate_and_power() -> None:
    steady = [group(0.1 * i, TIMED) for i in range(1, 31)]
    assert is_settled(steady, 0.0)
    assert not is_settled(steady[:15], 0.0)
    falling = [group(0.1 * i, TIMED * (1 + 0.001 * i)) for i in range(1, 31)]
    assert not is_settled(falling, 0.0)
    heating = [group(0.1 * i, TIMED, 600.0 + 5 * i) for i in range(1, 31)]
    assert not is_settled(heating, 0.0)
    untold = [_LoadGroup(0.1 * i, TIMED, 0.0, 0.0) for i in range(1, 31)]
    assert is_settled(untold, 0.0)  # by its rate alone


def test_a_gpu_that_nobody_watches_is_never_seen_to_throttle() -> None:
    assert not Regulator(None).throttles()
