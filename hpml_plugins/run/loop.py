"""The only loop over the points of a run: all rounds of all points, in random order or within a
limit in time.

Without a limit the rounds of all points are interleaved at random, so that slow changes of the
machine fall on all of them. Within a limit the points come in their order, each with all its
rounds: what was measured is whole, and what does not fit is left out by name. The reference comes
first in either case.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hpml_plugins import clocks
from hpml_plugins.host import Declared
from hpml_plugins.model.benchmark import REFERENCE, Params
from hpml_plugins.model.record import Record
from hpml_plugins.model.rounds import combine, schedule
from hpml_plugins.run.times import Round, RoundTimes, TimeLimit

#: A point is begun where this many times the time that it is expected to take is left.
CAUTION = 1.1

#: A point to measure: its benchmark, and its parameters.
Task = tuple[Declared, Params]


class Follower:
    """Is told what the loop does. This one says nothing; `report.progress.RunReport` prints.

    times: predicts how long the rounds take.
    """

    def __init__(self, times: RoundTimes | None = None) -> None:
        self.times = times or RoundTimes()

    def begin(self) -> None:
        """The loop begins."""

    def start_round(self, this: Round, task: Task) -> None:
        """A round is measured now."""

    def finish_round(self, this: Round) -> None:
        """It has ended, or is not needed."""

    def leave_out(self, task: Task, measured_rounds: int) -> None:
        """A point, or what is missing of its rounds, does not fit into the limit."""


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
) -> list[Record | None]:
    """Measure the rounds of the points. Returns what the rounds of each gave, as one Record.

    A point that failed or was skipped has no further round. None where a commit gives no Record,
    and where a point did not fit into the limit.

    run: the name of this run.  measure: measures a round of the point of this number.
    """
    follower.begin()
    loop = _Loop(tasks, run, measure, follower)
    if limit is None:
        loop.interleave()
    else:
        loop.fill(limit)
    return [_join(done, run) for done in loop.measured]


class _Loop:
    """One run of the loop. measured: of each point, what its rounds gave so far."""

    def __init__(
        self,
        tasks: Sequence[Task],
        run: str,
        measure: Callable[[int], Record | None],
        follower: Follower,
    ) -> None:
        self.measured: list[list[Record | None]] = [[] for _ in tasks]
        self._tasks = tasks
        self._run = run
        self._measure = measure
        self._follower = follower
        self._rounds = [rounds_of(task) for task in tasks]
        self._ended = clocks.monotonic()
        numbers = range(len(tasks))
        self._references = [n for n in numbers if tasks[n][0].benchmark == REFERENCE]
        self._others = [n for n in numbers if tasks[n][0].benchmark != REFERENCE]

    def interleave(self) -> None:
        """All rounds of all points, in random order."""
        for number in self._references:
            for this in self._rounds[number]:
                self._do(number, this)
        passes = [0] * len(self._tasks)
        for number in schedule(self._others, lambda number: len(self._rounds[number]), self._run):
            self._do(number, self._rounds[number][passes[number]])
            passes[number] += 1

    def fill(self, limit: TimeLimit) -> None:
        """Whole points in their order, as long as the next one fits.

        What this node lacks something for takes no time: its Records say so whatever the limit.
        """
        times = self._follower.times
        for number in [*self._references, *self._others]:
            declared, params = self._tasks[number]
            rounds = self._rounds[number]
            takes_time = not declared.why_unmet(params)
            if takes_time and CAUTION * times.expect_all(rounds) > limit.left:
                self._leave_out(number, rounds)
                continue
            for place, this in enumerate(rounds):
                # a point of which nothing was known may have taken longer than expected
                if place and self._needed(number) and times.expect(this) > limit.left:
                    self._leave_out(number, rounds[place:])
                    break
                self._do(number, this)

    def _leave_out(self, number: int, rounds: Sequence[Round]) -> None:
        self._follower.leave_out(self._tasks[number], len(self.measured[number]))
        for this in rounds:
            self._follower.finish_round(this)

    def _needed(self, number: int) -> bool:
        done = self.measured[number]
        return not done or needs_more(done, self._run)

    def _do(self, number: int, this: Round) -> None:
        """Measure a round, where the point needs it."""
        if self._needed(number):
            self._follower.start_round(this, self._tasks[number])
            began = clocks.monotonic()
            record = self._measure(number)
            ended = clocks.monotonic()
            if not record or record.status != "skipped":
                seconds = record.duration if record and record.run == self._run else ended - began
                self._follower.times.learn(this, seconds, ended - self._ended)
            self._ended = ended
            self.measured[number].append(record)
        self._follower.finish_round(this)


def _join(rounds: Sequence[Record | None], run: str) -> Record | None:
    """One Record of the rounds; that of an earlier run, which this run completes, comes with all of
    its rounds."""
    if not rounds:
        return None
    last = rounds[-1]
    return combine([each for each in rounds if each]) if last and last.run == run else last


def needs_more(rounds: Sequence[Record | None], run: str) -> bool:
    """Whether a point needs further rounds. A commit from before there were rounds plans one, and
    tells of one."""
    record = _join(rounds, run)
    if record is None or record.status != "ok":
        return False
    return not record.is_complete or (record.run == run and record.planned_rounds == 1)
