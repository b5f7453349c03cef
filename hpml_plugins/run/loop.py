"""The only loop over the points of a run: all rounds of all points, in random order or within a
time limit.

Without a limit the rounds of all points are interleaved at random, so that slow changes of the
machine affect all of them. With a limit the points are measured in their order, each with all its
rounds: measured points are complete, and points that do not fit are reported by name. The reference
is always measured first.

If the rounds of several commits are interleaved (`asv run --interleave-rounds`), the loop of each
commit runs once per round and continues from the results of the previous passes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field

from hpml_plugins import clocks
from hpml_plugins.host import Declared
from hpml_plugins.model.benchmark import REFERENCE, Params
from hpml_plugins.model.record import Record
from hpml_plugins.model.rounds import combine, schedule
from hpml_plugins.run.times import OutOfTime, Round, RoundTimes, TimeLimit

#: Exit status of a run that left out points which did not fit into its limit.
NOT_WHOLE = 3
#: Exit status of a run that measured none of the points that it was asked for, and none failed.
MEASURED_NOTHING = 4
#: A point is started only if this many times its expected duration is left.
CAUTION = 1.1

#: A point to measure: its benchmark and its parameters.
Task = tuple[Declared, Params]


@dataclass
class Pass:
    """One pass over all points. number: of the round, from 0.  measured: for each point, the
    results of the previous passes; this pass adds to it."""

    number: int = 0
    measured: list[list[Record | None]] = field(default_factory=list)


class Follower:
    """Is notified of what the loop does. This class ignores it; `report.progress.RunReport` prints.

    times: predicts the duration of rounds.
    """

    def __init__(self, times: RoundTimes | None = None) -> None:
        self.times = times or RoundTimes()

    def begin(self) -> None:
        """The loop starts."""

    def start_round(self, this: Round, task: Task) -> None:
        """The measurement of a round starts."""

    def finish_round(self, this: Round) -> None:
        """A round has ended, or is not needed."""

    def leave_out(self, task: Task, measured_rounds: int) -> None:
        """A point, or the rest of its rounds, does not fit into the limit."""


def rounds_of(task: Task) -> list[Round]:
    """The planned rounds of a point."""
    declared, params = task
    point = declared.key(params)
    return [Round(point, declared.benchmark, number) for number in range(declared.rounds)]


def measure_rounds(
    tasks: Sequence[Task],
    run: str,
    measure: Callable[[int], Record | None],
    follower: Follower,
    limit: TimeLimit | None = None,
    one_pass: Pass | None = None,
    stored: Set[int] = frozenset(),
) -> list[Record | None]:
    """Measure the rounds of the points. Returns the combined Record of each point.

    A point that failed or was skipped has no further rounds. The Record is None if a commit
    provides none, and if the point did not fit into the limit.

    run: the name of this run.  measure: measures one round of the point with this number. It raises
    OutOfTime if the limit passes meanwhile: the rest of the point is left out.  one_pass: measure
    only one round of each point, in addition to those of the previous passes.  stored: points that
    an earlier run measured; their Records are used instead of measuring.
    """
    measured = one_pass.measured if one_pass else []
    loop = _Loop(tasks, run, measure, follower, measured, stored)
    loop.begin()
    if one_pass:
        loop.measure_pass(one_pass.number, limit)
    elif limit is None:
        loop.interleave()
    else:
        loop.fill(limit)
    return [_join(done, run) for done in loop.measured]


class _Loop:
    """One run of the loop. measured: the results of each point so far."""

    def __init__(
        self,
        tasks: Sequence[Task],
        run: str,
        measure: Callable[[int], Record | None],
        follower: Follower,
        measured: list[list[Record | None]],
        stored: Set[int],
    ) -> None:
        self.measured = measured
        self.measured += [[] for _ in tasks[len(measured) :]]
        self._tasks = tasks
        self._run = run
        self._measure = measure
        self._follower = follower
        self._rounds = [rounds_of(task) for task in tasks]
        self._stored = stored
        self._ended = clocks.monotonic()
        numbers = range(len(tasks))
        self._references = [n for n in numbers if tasks[n][0].benchmark == REFERENCE]
        self._others = [n for n in numbers if tasks[n][0].benchmark != REFERENCE]

    def begin(self) -> None:
        """Report what will be measured."""
        for number in self._stored:
            for this in self._rounds[number]:
                self._follower.finish_round(this)
        self._follower.begin()

    def interleave(self) -> None:
        """Measure all rounds of all points, in random order."""
        for number in self._references:
            for this in self._rounds[number]:
                self._do(number, this)
        passes = [0] * len(self._tasks)
        for number in schedule(
            self._others, lambda number: len(self._rounds[number]), self._run
        ):
            if passes[number] == len(self._rounds[number]):
                continue
            self._do(number, self._rounds[number][passes[number]])
            passes[number] += 1
            self._finish_unneeded(number, passes[number])

    def measure_pass(self, which: int, limit: TimeLimit | None) -> None:
        """Measure this round of every point that has it, if it fits: the reference first, then the
        others in random order."""
        others = list(self._others)
        random.Random(f"{self._run} {which}").shuffle(others)
        for number in [*self._references, *others]:
            for this in self._rounds[number][which : which + 1]:
                self._do_within(number, [this], limit)

    def fill(self, limit: TimeLimit) -> None:
        """Measure whole points in their order, as long as the next one fits.

        Points whose requirements are not met, and stored points, take no time: their Records are
        returned regardless of the limit.
        """
        times = self._follower.times
        for number in [*self._references, *self._others]:
            rounds = self._rounds[number]
            if self._takes_time(number) and CAUTION * times.expect_all(rounds) > limit.left:
                self._leave_out(number, rounds)
            else:
                self._do_within(number, rounds, limit)

    def _do_within(
        self, number: int, rounds: Sequence[Round], limit: TimeLimit | None
    ) -> None:
        """Measure these rounds of a point. Rounds that the limit interrupts or leaves no time for
        are left out."""
        for place, this in enumerate(rounds):
            takes_time = self._needed(number) and self._takes_time(number)
            if limit and takes_time and self._follower.times.expect(this) > limit.left:
                self._leave_out(number, rounds[place:])
                return
            try:
                self._do(number, this)
            except OutOfTime:
                self._leave_out(number, rounds[place:])
                return

    def _leave_out(self, number: int, rounds: Sequence[Round]) -> None:
        self._follower.leave_out(self._tasks[number], len(self.measured[number]))
        for this in rounds:
            self._follower.finish_round(this)

    def _takes_time(self, number: int) -> bool:
        declared, params = self._tasks[number]
        return number not in self._stored and not declared.why_unmet(params)

    def _needed(self, number: int) -> bool:
        done = self.measured[number]
        return not done or needs_more(done, self._run)

    def _do(self, number: int, this: Round) -> None:
        """Measure a round if the point needs it; for a stored point use its Record."""
        if number in self._stored:
            if not self.measured[number]:
                self.measured[number].append(self._measure(number))
            return
        if self._needed(number):
            self._follower.start_round(this, self._tasks[number])
            began = clocks.monotonic()
            record = self._measure(number)
            ended = clocks.monotonic()
            if not record or record.status != "skipped":
                seconds = (
                    record.duration if record and record.run == self._run else ended - began
                )
                self._follower.times.learn(this, seconds, ended - self._ended)
            self._ended = ended
            self.measured[number].append(record)
        self._follower.finish_round(this)

    def _finish_unneeded(self, number: int, done: int) -> None:
        """Report at once that a point needs no more rounds. Otherwise they would count as remaining
        time until their turn."""
        if number in self._stored or self._needed(number):
            return
        for this in self._rounds[number][done:]:
            self._follower.finish_round(this)
        del self._rounds[number][done:]


def _join(rounds: Sequence[Record | None], run: str) -> Record | None:
    """Combine the rounds into one Record. The Record of an earlier run that this run completes
    already contains all of its rounds."""
    if not rounds:
        return None
    last = rounds[-1]
    return combine([each for each in rounds if each]) if last and last.run == run else last


def needs_more(rounds: Sequence[Record | None], run: str) -> bool:
    """Whether a point needs further rounds. A commit from before rounds were introduced plans and
    reports one."""
    record = _join(rounds, run)
    if record is None or record.status != "ok":
        return False
    return not record.is_complete or (record.run == run and record.planned_rounds == 1)
