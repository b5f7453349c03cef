"""Measure the energy of a step with the energy counter of the card or the CPU packages, over
windows under settled load.

A GPU's counter is updated about every 0.1 s. A window therefore begins and ends with an update, and
the number of calls at these moments is interpolated between two synchronisations 20 ms apart. The
power of the idle card is subtracted.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import NamedTuple

from hpml_plugins import clocks
from hpml_plugins.measure.meter import EnergyCounter
from hpml_plugins.measure.session import Session
from hpml_plugins.model.samples import Samples

Step = Callable[[], object]
#: Returns the time of the counter's last update, s of the monotonic clock, and its value, J.
Moved = Callable[[], tuple[float, float] | None]
#: s of rest before the idle power is measured, in which clocks and voltage fall.
REST = 1.0
#: s over which the idle power is measured.
IDLE = 1.0
#: s of work between two looks at the counter.
BATCH = 0.02
#: s of a period of load.
PERIOD = 1.0
#: The load has settled when the mean power of two successive periods agrees this well.
POWER_TOLERANCE = 0.02
#: s after which samples are taken even if the load has not settled.
LONGEST_LOAD = 4.0
#: A counter that has not moved after this time under load, s, and one call of the step, counts
#: nothing.
LONGEST_STEP = 2.0
#: s of a sample, several updates of the counter.
WINDOW = 0.4
#: Samples of a round.
WINDOWS = 5


class _Move(NamedTuple):
    """An update of the counter. at: s of the monotonic clock.  energy: J.  calls: the number of
    calls until then."""

    at: float
    energy: float
    calls: float = 0.0


class _Span(NamedTuple):
    """The difference between two updates. energy: J."""

    seconds: float
    energy: float
    calls: float

    @classmethod
    def of(cls, start: _Move, end: _Move) -> _Span:
        """The span between these two updates."""
        return cls(end.at - start.at, end.energy - start.energy, end.calls - start.calls)

    @property
    def power(self) -> float:
        """Mean power, W."""
        return self.energy / self.seconds


def measure_energy(session: Session, step: Step) -> Samples | None:
    """See Bench.energy."""
    kind, _, number = session.device.partition(":")
    counter = EnergyCounter(session.telemetry, [int(number or 0)] if kind == "cuda" else [])
    if counter.problem:
        session.warn(f"energy is not known: {counter.problem}")
        return None
    wait = _synchronizer(session.device)
    step()
    wait()
    with (
        session.telemetry.fast() if kind == "cuda" and session.telemetry else nullcontext()
    ):
        idle = session.once("idle_power", lambda: idle_power(counter.moved))
        try:
            moves, settled = under_load(run_on(step, wait, counter.moved))
        except StopIteration:
            session.warn(
                f"energy is not known: the counter did not move for {LONGEST_STEP:g} s"
            )
            return None
    windows = split(moves)
    steps = [_Span.of(*pair) for pair in itertools.pairwise(moves)]
    return Samples.of(
        [max(0.0, each.energy - idle * each.seconds) / each.calls for each in windows],
        "J",
        idle_power=idle,
        power=statistics.median(each.power for each in windows),
        gross=statistics.median(each.energy / each.calls for each in windows),
        counter_step=statistics.median(each.seconds for each in steps),
        calls=round(moves[-1].calls - moves[0].calls),
        stopped="settled"
        if settled
        else f"power not settled after {LONGEST_LOAD:g} s of load",
    )


def idle_power(moved: Moved) -> float:
    """Mean power, W, of the idle device after a time of rest."""
    clocks.sleep(REST)
    end = clocks.monotonic() + IDLE
    seen: list[tuple[float, float]] = []
    # At least three updates: the first is noticed late, and a counter may be slower at rest.
    while clocks.monotonic() < end + (2 * IDLE if len(seen) < 3 else 0.0):
        if (last := moved()) and last not in seen[-1:]:
            seen.append(last)
        clocks.sleep(BATCH / 10)
    if len(seen) < 3:
        return 0.0
    start, before = seen[1]
    stop, after = seen[-1]
    return (after - before) / (stop - start)


def run_on(step: Step, wait: Step, moved: Moved) -> Iterator[_Move]:
    """Call the step repeatedly and yield each update of the counter, until there are none under
    load."""
    batch = 1
    calls = 0
    started = seen = clocks.monotonic()
    last = moved()
    while started - seen < LONGEST_STEP:
        for _ in range(batch):
            step()
        wait()
        ended = clocks.monotonic()
        new = moved()
        if new and new != last:
            # All steps of a batch are assumed to take equally long.
            share = (new[0] - started) / (ended - started)
            yield _Move(*new, calls + batch * share)
            last = new
            seen = ended
        calls += batch
        if ended - started < BATCH / 2:
            batch *= 2
        started = ended


def under_load(moves: Iterator[_Move]) -> tuple[list[_Move], bool]:
    """The counter updates of a round's windows under settled load, and whether it settled. Raises
    StopIteration."""
    seen = [next(moves)]
    start = seen[0].at
    settled = False
    while not settled and seen[-1].at - start < LONGEST_LOAD:
        seen.append(next(moves))
        settled = is_settled(seen)
    kept = [seen[-1]]
    while kept[-1].at - kept[0].at < WINDOW * WINDOWS:
        kept.append(next(moves))
    return kept, settled


def is_settled(moves: list[_Move]) -> bool:
    """Whether the mean power of the last period matches that of the one before."""
    middle = moves[-1].at - PERIOD
    start = middle - PERIOD
    last = [move for move in moves if move.at >= middle]
    before = [move for move in moves if start <= move.at < middle]
    if moves[0].at > start or min(len(last), len(before)) < 2:
        return False
    now = _Span.of(last[0], last[-1]).power
    then = _Span.of(before[0], before[-1]).power
    return abs(now - then) <= POWER_TOLERANCE * then


def split(moves: list[_Move]) -> list[_Span]:
    """Split into windows of at least WINDOW from one counter update to another; the remainder is
    dropped."""
    ends = [moves[0]]
    for move in moves[1:]:
        if move.at - ends[-1].at >= WINDOW:
            ends.append(move)
    return [_Span.of(*pair) for pair in itertools.pairwise(ends)]


def _synchronizer(device: str) -> Step:
    if device == "cpu":
        return lambda: None
    import torch

    return torch.cuda.synchronize  # type: ignore[no-any-return]
