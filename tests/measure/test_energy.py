"""Energy of a step and of a block, on a simulated card and simulated CPU counters: machines that
test have neither."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hpml_plugins import Bench, Node, clocks
from hpml_plugins.measure import energy, meter
from hpml_plugins.measure.telemetry import Reading, Telemetry

IDLE, STEP = 100.0, 1e-3


class Card(Telemetry):
    """A card in a time of its own, whose counter moves every `counts` s. power: under load, W, by
    seconds of load."""

    def __init__(self, power: Callable[[float], float], counts: float = 0.1) -> None:
        super().__init__(1)
        self.power, self.counts = power, counts
        self.now, self.loaded, self.used = 100.0, 0.0, 5000.0
        self.shown, self.shown_at = self.used, self.now

    def _pass(self, seconds: float, load: bool) -> None:
        self.now += seconds
        self.used += seconds * (self.power(self.loaded) if load else IDLE)
        self.loaded = self.loaded + seconds if load else 0.0
        if self.now - self.shown_at >= self.counts:
            self.shown, self.shown_at = self.used, self.now

    def step(self) -> None:
        self._pass(STEP, load=True)

    def sleep(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP)):
            self._pass(STEP, load=False)

    def read(self, number: int = 0) -> Reading:
        watts = self.power(self.loaded) if self.loaded else IDLE
        return Reading(
            self.now, 0.0, 1.98e9, watts, self.shown, self.shown_at, 0.9, 0.4, 2e9
        )


@pytest.fixture
def bench_on(gpu_node: Node, monkeypatch: pytest.MonkeyPatch) -> Callable[[Card], Bench]:
    """A bench on this card, whose time is the card's."""

    def bench_on(card: Card) -> Bench:
        monkeypatch.setattr(clocks, "monotonic", lambda: card.now)
        monkeypatch.setattr(clocks, "sleep", card.sleep)
        monkeypatch.setattr(energy, "_synchronizer", lambda device: lambda: None)
        return Bench(gpu_node, {}, gpus=1, telemetry=card)

    return bench_on


def test_the_idle_cards_energy_is_subtracted_and_stated(
    bench_on: Callable[[Card], Bench],
) -> None:
    card = Card(lambda loaded: 600.0)
    bench = bench_on(card)
    found = bench.energy(card.step)
    assert found is not None
    assert found.median == pytest.approx((600 - IDLE) * STEP, rel=0.01)
    assert found.info["idle_power"] == pytest.approx(IDLE, rel=0.01)
    assert found.info["power"] == pytest.approx(600, rel=0.01)
    assert found.info["gross"] == pytest.approx(600 * STEP, rel=0.01)
    assert found.info["counter_step"] == pytest.approx(0.1, rel=0.02)
    assert found.info["stopped"] == "settled"
    assert len(found) >= 4
    assert bench.collected.warnings == []
    assert found.unit == "J"


def test_only_the_settled_load_counts(bench_on: Callable[[Card], Bench]) -> None:
    card = Card(lambda loaded: 700 - 100 * min(1.0, loaded / 2))
    found = bench_on(card).energy(card.step)
    assert found is not None
    assert found.median == pytest.approx((600 - IDLE) * STEP, rel=0.02)


def test_a_load_that_does_not_settle_says_so(bench_on: Callable[[Card], Bench]) -> None:
    card = Card(lambda loaded: 300 * math.exp(loaded / 5))
    found = bench_on(card).energy(card.step)
    assert found is not None
    assert str(found.info["stopped"]).startswith("power not settled")


def test_a_counter_that_stands_still_or_is_not_there_gives_no_number(
    bench_on: Callable[[Card], Bench],
) -> None:
    card = Card(lambda loaded: 600.0, counts=1e9)
    bench = bench_on(card)
    assert bench.energy(card.step) is None
    assert bench.collected.warnings == [
        "energy is not known: the counter did not move for 2 s"
    ]
    unwatched = bench_on(card)
    unwatched.telemetry = None
    assert unwatched.energy(card.step) is None
    assert unwatched.collected.warnings == [
        "energy is not known: the GPUs are not monitored here"
    ]


@pytest.fixture
def rapl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with one CPU package."""
    folder = tmp_path / "intel-rapl:0"
    folder.mkdir()
    folder.joinpath("energy_uj").write_text("900000000")
    folder.joinpath("max_energy_range_uj").write_text("1000000000")
    monkeypatch.setattr(meter, "RAPL", tmp_path)
    return folder


def test_a_meter_reads_the_cpu_packages_past_their_largest_number(
    rapl: Path, node: Node
) -> None:
    with Bench(node, {}).meter() as found:
        rapl.joinpath("energy_uj").write_text("50000000")
    assert found.energy == pytest.approx(150)  # 900 to 1000 J, then to 50 J
    assert found.power == pytest.approx(150 / found.seconds)
    assert found.problem == ""


def test_a_meter_without_counter_says_why_and_still_sees_the_cpus(
    tmp_path: Path, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meter, "RAPL", tmp_path)
    with Bench(node, {}).meter(interval=0.02) as found:
        end = time.process_time() + 0.2
        while time.process_time() < end:
            pass
    assert found.energy is None
    assert found.power is None
    assert found.problem == f"no energy counter of the CPU in {tmp_path}"
    assert len(found.columns["utilization"]) >= 3
    assert found.mean("utilization") > 0.1  # type: ignore[operator]
    assert found.units == {"time": "s", "utilization": "1"}


def test_a_meter_counts_the_energy_of_all_gpus_to_the_moment(
    gpu_node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    telemetry, now = Telemetry(2), time.monotonic()
    last = Reading(now, 0.0, 1.98e9, 500.0, 1000.0, now - 0.05, 0.8, 0.3, 1e9)
    for number in range(2):
        telemetry.write(number, last)
    found = Bench(gpu_node, {}, gpus=2, telemetry=telemetry).meter(interval=0.01)
    monkeypatch.setattr(clocks, "monotonic", lambda: now)
    with found:
        for number in range(2):
            telemetry.write(number, last._replace(energy=1400.0, energy_at=now + 0.95))
        monkeypatch.setattr(clocks, "monotonic", lambda: now + 1.0)
    # each: 1400 + 25 J at the end, 1000 + 25 J at the beginning
    assert found.energy == pytest.approx(2 * 400)
    assert found.seconds == 1.0
    assert found.columns["power"][-1] == 1000.0
    assert found.columns["utilization"][-1] == 0.8
    assert found.columns["memory_used"][-1] == 2e9
