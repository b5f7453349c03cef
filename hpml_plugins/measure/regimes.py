"""The two regimes of a step that the GPU throttles to stay within its power limit: boost and
sustained.

The power regulator of a data-centre card averages power over about a second and lowers the clocks
until the average is at the limit. A step that needs more power runs at the highest clocks for some
tens of milliseconds, then below the settled rate, and then oscillates around it with the
regulator's period. Samples from the first two seconds mix these phases, which the traces in
benchmarks/pages/measuring.md show. Such a step is therefore measured twice:

- `sustained`: under continuous load until clocks, power and rate are stationary. The samples cover
  one period of the regulator, so the phase at which they start does not matter.
- `boost`: in bursts that end before the regulator acts, with an idle time before each.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from hpml_plugins import clocks
from hpml_plugins.measure.telemetry import Reading, Telemetry
from hpml_plugins.model.samples import Samples

#: A step is throttled if the card throttles for more than this share of the time, and for at least
#: ENOUGH s.
SHARE = 0.1
ENOUGH = 0.03
#: s over which the regulator averages; means over this long do not depend on where in its swing
#: they begin.
PERIOD = 1.0
#: s of load between two readings of the clock; one sample of the sustained regime.
GROUP = 0.05
#: Two successive periods that begin at least OFFSET s apart must agree this well in the time of a
#: step
RATE_TOLERANCE = 0.005
#: and this well in power.
POWER_TOLERANCE = 0.02
#: s under load after which the last period is taken though it has not settled.
LONGEST_LOAD = 3.0
#: A burst: s of load before the sample, in which clocks and voltage rise, and s of the sample. With
#: 5 + 5 ms the regulator of an H200 never acted; with 20 + 20 ms it always did.
BURST = 5e-3
#: s of rest before a burst.
REST = 0.03
BURSTS = 12
#: s of rest between the load and the first burst.
RECOVERY = 0.25
#: s: the regulator acts during a longer step, which therefore has no boost.
LONGEST_BURST = 0.02


class Regulator:
    """Whether a GPU has throttled since the load began. telemetry: None if the GPU is not
    monitored."""

    def __init__(self, telemetry: Telemetry | None, gpu: int = 0) -> None:
        self._telemetry = telemetry
        self._gpu = gpu
        self._start = self.reading()

    def reading(self) -> Reading | None:
        """The last reading of the GPU."""
        return self._telemetry.read(self._gpu) if self._telemetry else None

    def begin(self) -> None:
        """Mark the beginning of the load."""
        self._start = self.reading()

    def throttles(self) -> bool:
        """Whether the card has throttled for a relevant share of the load."""
        now = self.reading()
        start = self._start
        if now is None or start is None:
            return False
        held = now.throttled - start.throttled
        return held >= max(ENOUGH, SHARE * (now.at - start.at))


class _Enqueues(Protocol):
    """A timer with a chosen batch (`gpu_timer.GpuTimer`).

    batch: the number of steps averaged in one sample.  hides: whether launches are hidden; then
    samples whose launch showed count only if all did.  continuous: whether the last load was.
    """

    batch: int
    continuous: bool

    @property
    def hides(self) -> bool:
        """See above."""

    def round(self) -> float:
        """Take one sample: seconds of one step."""

    def enqueue(self, count: int) -> list[tuple[float, bool]]:
        """Enqueue `count` samples. Returns seconds of one step and whether its launch was
        hidden."""

    def load(self, count: int) -> Iterator[list[tuple[float, bool]]]:
        """Such groups of samples under continuous load, without an end."""


class _LoadGroup(NamedTuple):
    """Samples that were enqueued together. end: s of the monotonic clock.  seconds: mean of one
    step.

    clock, power: those of the last reading; 0 if the card does not report them.
    """

    end: float
    seconds: float
    clock: float
    power: float


def measure_regimes(
    timer: _Enqueues, regulator: Regulator, info: dict[str, str | float]
) -> Samples:
    """Sample both regimes of a step that is already under load, s.

    info: further info about the samples.
    """
    groups, settled = _sustain(timer, regulator)
    info = {
        **info,
        "batch": timer.batch,
        "regime": "sustained",
        "stopped": "settled"
        if settled
        else f"not settled after {LONGEST_LOAD:g} s of load",
        **_state("sustained", groups),
    }
    if timer.continuous:
        info["load"] = "continuous"
    bursts = _burst(timer, regulator)
    info |= _state("boost", bursts)
    boost = tuple(burst.seconds for burst in bursts)
    return replace(
        Samples.of([group.seconds for group in groups], "s", **info), boost=boost
    )


def _sustain(timer: _Enqueues, regulator: Regulator) -> tuple[list[_LoadGroup], bool]:
    """The last period under load, and whether it was stationary."""
    seconds = timer.round()
    count = max(1, round(GROUP / (seconds * timer.batch)))
    started = clocks.monotonic()
    groups: list[_LoadGroup] = []
    settled = False
    for taken in timer.load(count):
        groups.append(_group(timer, taken, regulator))
        settled = is_settled(groups, started)
        if settled or groups[-1].end - started > LONGEST_LOAD:
            break
    return [group for group in groups if group.end > groups[-1].end - PERIOD], settled


def is_settled(groups: Sequence[_LoadGroup], started: float) -> bool:
    """Whether step time, clock and power of the last period match those of the one before."""
    middle = groups[-1].end - PERIOD
    start = middle - PERIOD
    last = [group for group in groups if group.end > middle]
    before = [group for group in groups if start < group.end <= middle]
    if start < started or not before:
        return False
    tolerances = {
        "seconds": RATE_TOLERANCE,
        "clock": POWER_TOLERANCE,
        "power": POWER_TOLERANCE,
    }
    return all(_change(before, last, name) <= most for name, most in tolerances.items())


def _change(before: Sequence[_LoadGroup], after: Sequence[_LoadGroup], name: str) -> float:
    """The relative change of the mean of a quantity; 0 if the card does not report it."""
    mean = statistics.fmean(getattr(group, name) for group in before)
    new = statistics.fmean(getattr(group, name) for group in after)
    return abs(new / mean - 1) if mean else 0.0


def _burst(timer: _Enqueues, regulator: Regulator) -> list[_LoadGroup]:
    """The bursts; none for a step during which the regulator acts."""
    seconds = timer.round()
    if seconds > LONGEST_BURST:
        return []
    batch = timer.batch
    # samples of `batch` steps before the one that is kept
    lead = max(1, math.ceil(BURST / (seconds * batch)))
    bursts = []
    clocks.sleep(RECOVERY)
    for _ in range(BURSTS):
        clocks.sleep(max(REST, 2 * (lead + 1) * seconds * batch))
        bursts.append(_group(timer, timer.enqueue(2 * lead)[lead:], regulator))
    return bursts


def _group(
    timer: _Enqueues, taken: Sequence[tuple[float, bool]], regulator: Regulator
) -> _LoadGroup:
    now = clocks.monotonic()
    reading = regulator.reading()
    clock, power = (reading.clock, reading.power) if reading else (0.0, 0.0)
    hidden = [seconds for seconds, was_hidden in taken if was_hidden and timer.hides]
    mean = statistics.fmean(hidden or [seconds for seconds, _ in taken])
    return _LoadGroup(now, mean, clock, power)


def _state(regime: str, groups: Sequence[_LoadGroup]) -> dict[str, str | float]:
    """The means of clock, Hz, and power, W, over a regime, for the info of its samples.

    The power of a burst is only indicative: the card's sensor is slower than the burst.
    """
    columns = {
        f"{regime}_clock": [group.clock for group in groups if group.clock],
        f"{regime}_power": [group.power for group in groups if group.power],
    }
    return {name: statistics.fmean(values) for name, values in columns.items() if values}
