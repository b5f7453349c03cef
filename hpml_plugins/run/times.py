"""The time of a run: how long its rounds take, predicted from earlier Records and corrected by what
the run has shown so far; and the limit that it may have (`hpml run --limit 9min`, HPML_LIMIT=9min
for `asv run`)."""

from __future__ import annotations

import os
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from hpml_plugins import clocks
from hpml_plugins.errors import LONGEST, UsageError
from hpml_plugins.model.benchmark import Params
from hpml_plugins.model.record import point_key
from hpml_plugins.store import decode_file, record_files

#: s of a round of which nothing is known at all.
UNKNOWN = 3.0
#: Where no run tells, a later round takes these shares of the first one's seconds up to
#: LONG_FIRST and beyond them: what makes a first round longer is mostly compiling and loading.
#: Of the 1,200 points in results/ that GPUs and CPUs measured in rounds, a later round took 0.93 of
#: a first one of 2 to 4 s, 0.74 of one of 4 to 8 s and 0.46 of one of 8 to 16 s.
LONG_FIRST = 3.0
LATER_SHARE, LATER_SHARE_BEYOND = 0.95, 0.4
#: s with which the prediction itself counts in the ratio of what a run took to what was predicted.
WEIGHT = 30.0
#: How much the other sort of rounds counts in that ratio: a slow machine is slow at first and at
#: later rounds, but a fresh one at first rounds alone.
OTHER_SORT = 0.3
#: A round that takes longer than this many times its prediction counts as that much: one of them
#: says little of others.
SURPRISE = 4.0
#: The ratio is not believed beyond these.
LEAST_RATIO, MOST_RATIO = 0.2, 5.0
LIMIT_VARIABLE = "HPML_LIMIT"
_UNITS = {"": 1.0, "s": 1.0, "min": 60.0, "h": 3600.0}
_SHAPE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")


class _PastNode(msgspec.Struct):
    """What is read of a Record's node."""

    gpus: list[Any] | None = None


class PastRound(msgspec.Struct, omit_defaults=True):
    """What is read of a stored round: all of results/ is read for it at the start of each run."""

    benchmark: str
    version: str
    params: Params
    status: str
    started: float = 0.0
    duration: float = 0.0
    machine: str = ""
    commit: str = ""
    run: str = ""
    node: _PastNode = msgspec.field(default_factory=_PastNode)

    @property
    def point(self) -> str:
        """As `Record.point`."""
        return point_key(self.benchmark, self.version, self.params)


def read_past_rounds(results: Path) -> list[PastRound]:
    """The stored rounds of all machines, in the order of time. What cannot be read tells
    nothing."""
    decode = msgspec.json.Decoder(PastRound).decode
    found = []
    for path in record_files(results):
        # a retraction is a line of its own, which took no time
        found += [
            each for _, each in decode_file(path, decode) if each.status != "retracted"
        ]
    return sorted(found, key=lambda each: each.started)


class Round(NamedTuple):
    """A round of a run. point: as `Record.point` has it.  number: from 0, within its point."""

    point: str
    benchmark: str
    number: int


@dataclass
class _Known:
    """s of the first round of a point in a run, and of a later one; None where no run had it."""

    first: float | None = None
    later: float | None = None

    def of(self, number: int) -> float | None:
        return self.first if number == 0 else self.later

    def add(self, number: int, seconds: float) -> None:
        if number == 0:
            self.first = seconds
        else:
            self.later = seconds


class _Progress:
    """What rounds of one sort, first or later ones, took in this run, against what was predicted
    for them."""

    def __init__(self) -> None:
        self.measured = 0.0
        self.predicted = 0.0

    def ratio(self, other: _Progress) -> float:
        """Measured over predicted. other: of the other sort."""
        measured = WEIGHT + self.measured + OTHER_SORT * other.measured
        predicted = WEIGHT + self.predicted + OTHER_SORT * other.predicted
        return min(MOST_RATIO, max(LEAST_RATIO, measured / predicted))


class RoundTimes:
    """Predicts how long a round takes, s.

    A first round compiles and loads what later rounds find in caches, and a fresh node is slower at
    all of it: first and later rounds are predicted apart, and each is corrected by the ratio that
    this run has shown.

    past: stored rounds, not joined, of this machine and of others, in the order of time.  machine:
    this one. Its own rounds count first, then those of machines that have a GPU as this one does,
    or have none: what they measured, then what they found that they cannot measure; then rounds of
    the other machines, then those of the same benchmark's other points.  has_gpu: whether this
    machine has one.
    """

    def __init__(
        self, past: Iterable[PastRound] = (), machine: str = "", *, has_gpu: bool = False
    ) -> None:
        self._machine = machine
        self._has_gpu = has_gpu
        self._own: dict[str, _Known] = defaultdict(_Known)
        self._alike: dict[str, _Known] = defaultdict(_Known)
        self._skipped: dict[str, _Known] = defaultdict(_Known)
        self._others: dict[str, _Known] = defaultdict(_Known)
        self._of_benchmark: dict[str, dict[int, list[float]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self._now: dict[str, float] = {}
        self._progress = {0: _Progress(), 1: _Progress()}
        self._overhead = 0.0
        self._rounds = 0
        counts: dict[tuple[str, ...], int] = defaultdict(int)
        for record in past:
            run = record.run or str(record.started)
            place = (record.machine, run, record.commit, record.point)
            self._remember(record, counts[place])
            counts[place] += 1

    def _remember(self, record: PastRound, number: int) -> None:
        ok = record.status == "ok"
        alike = bool(record.node.gpus) == self._has_gpu
        # a point that a requirement left out began on no node, and took none of its time
        skipped = record.status == "skipped" and record.duration
        if record.machine == self._machine:
            known = self._own
        elif alike and (ok or skipped):
            known = self._alike if ok else self._skipped
        elif ok:
            known = self._others
        else:
            return
        known[record.point].add(number, record.duration)
        if ok:
            self._of_benchmark[record.benchmark][min(number, 1)].append(record.duration)
        else:
            known[record.point].later = 0.0

    def expect(self, this: Round) -> float:
        """Seconds that this round will take, what lies between two rounds included."""
        sort = min(this.number, 1)
        ratio = self._progress[sort].ratio(self._progress[1 - sort])
        return self._expected(this) * ratio + self.between

    def expect_all(self, rounds: Iterable[Round]) -> float:
        """Seconds that these rounds will take together."""
        return sum(map(self.expect, rounds))

    def learn(self, this: Round, seconds: float, wall: float) -> None:
        """Take in a round of this run. seconds: of the point itself.  wall: from one round's end to
        the next one's."""
        progress = self._progress[min(this.number, 1)]
        expected = self._expected(this)
        progress.predicted += expected
        progress.measured += min(seconds, SURPRISE * expected + 1.0)
        if this.number == 0:
            self._now[this.point] = seconds
        self._overhead += max(0.0, wall - seconds)
        self._rounds += 1

    @property
    def between(self) -> float:
        """Mean seconds between the end of a point and the beginning of the next one: starting and
        ending processes."""
        return self._overhead / self._rounds if self._rounds else 0.0

    def _expected(self, this: Round) -> float:
        """Before the correction by this run."""
        for known in (self._own, self._alike, self._skipped, self._others):
            if (
                this.point in known
                and (seconds := known[this.point].of(this.number)) is not None
            ):
                return seconds
        if this.number and this.point in self._now:
            return _later_round(self._now[this.point])
        alike = self._of_benchmark.get(this.benchmark, {}).get(min(this.number, 1))
        return statistics.median(alike) if alike else UNKNOWN


def _later_round(first: float) -> float:
    """s of a later round of a point, of whose first one alone is known."""
    return LATER_SHARE * min(first, LONG_FIRST) + LATER_SHARE_BEYOND * max(
        0.0, first - LONG_FIRST
    )


@dataclass(frozen=True)
class TimeLimit:
    """How long a run may take. seconds: from `started` on, s of the monotonic clock."""

    seconds: float
    started: float = field(default_factory=clocks.monotonic)

    @property
    def left(self) -> float:
        """s that are left; below 0 where the limit has passed."""
        return self.started + self.seconds - clocks.monotonic()

    def __str__(self) -> str:
        minutes, rest = divmod(self.seconds, 60)
        return f"{minutes:g} min" if minutes and not rest else f"{self.seconds:g} s"


class OutOfTime(Exception):
    """The run's limit has passed: a round that it ended is not stored."""


def parse_limit(text: str, named: str) -> float:
    """Seconds of `9min`, `540s`, `540` or `1.5h`.

    named: what the text was given to, for the message. Raises UsageError for anything else.
    """
    found = _SHAPE.fullmatch(text.strip())
    if found and found[2] in _UNITS:
        seconds = float(found[1]) * _UNITS[found[2]]
        if 0 < seconds <= LONGEST:
            return seconds
    raise UsageError(
        f"{named} is {text[:40]!r}, which is no time; write 9min, 540s or 1.5h"
    )


def limit_of_environment() -> TimeLimit | None:
    """The limit that HPML_LIMIT gives a run which begins now; None where it is not set."""
    text = os.environ.get(LIMIT_VARIABLE, "")
    return TimeLimit(parse_limit(text, LIMIT_VARIABLE)) if text else None
