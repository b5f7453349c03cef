"""The time of a run: the duration of its rounds, predicted from earlier Records and corrected by
the rounds so far; and its optional limit (`hpml run --limit 9min`, HPML_LIMIT=9min for `asv
run`)."""

from __future__ import annotations

import math
import os
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from hpml_plugins import clocks
from hpml_plugins.errors import LONGEST, UsageError
from hpml_plugins.model.benchmark import Params
from hpml_plugins.model.record import point_key
from hpml_plugins.store import decode_file, record_files

#: s of a first round without any information, by whether the machine has a GPU: the median of 38
#: such rounds on CPUs in results/, and the mean of 63 on GPUs.
UNKNOWN = {False: 3.3, True: 9.9}
#: s between the rounds of two commits, without information from a run: the second one is built.
BUILD = 15.0
#: Without information from a run, a later round takes these shares of the first one's seconds,
#: up to LONG_FIRST and beyond: a first round is longer mainly because of compiling and loading. For
#: the 1,200 points in results/ measured in rounds on GPUs and CPUs, a later round took 0.93 of a
#: first one of 2 to 4 s, 0.74 of one of 4 to 8 s and 0.46 of one of 8 to 16 s.
LONG_FIRST = 3.0
LATER_SHARE = 0.95
LATER_SHARE_BEYOND = 0.4
#: How many stored rounds of a point are taken the mean of: the last ones.
RECENT = 5
#: The weight of such a spread, in rounds, relative to the spread of a point's own rounds.
SPREAD_WEIGHT = 2
#: The part of the deviation that all points of a run share.
COMMON = 0.07
#: The same if further commits are measured, whose code may take longer.
COMMON_OF_COMMITS = 0.15
#: How much of what is not known of a point is common to those of its benchmark.
COMMON_OF_BENCHMARK = 0.5
#: Standard deviations from the mean to the ends of the reported range: about 90 % lie between
#: them.
REACH = 1.65
#: If the ends of the range are at most this factor apart, a single number is reported: it is
#: right within 20 %.
ONE_NUMBER = 1.44
#: The weight of the prediction itself, in s, in the ratio of measured to predicted time.
WEIGHT = 30.0
#: The weight of first rounds in that ratio of later ones, and the reverse: a slow machine is
#: slow in first and later rounds, but a fresh one in first rounds only.
OTHER_ROUNDS = 0.3
#: A round that takes longer than this many times its prediction counts as that much: one of them
#: says little of others.
SURPRISE = 4.0
#: Ratios outside these bounds are not trusted.
LEAST_RATIO = 0.2
MOST_RATIO = 5.0
LIMIT_VARIABLE = "HPML_LIMIT"
_UNITS = {"": 1.0, "s": 1.0, "min": 60.0, "h": 3600.0}
_SHAPE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")


class _PastNode(msgspec.Struct):
    """The part of a Record's node that is read."""

    gpus: list[Any] | None = None


class PastRound(msgspec.Struct, omit_defaults=True):
    """The part of a stored round that is read: all of results/ is read at the start of each run."""

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
    """The stored rounds of all machines, in order of time. Unreadable ones are ignored."""
    decode = msgspec.json.Decoder(PastRound).decode
    found = []
    for path in record_files(results):
        # a retraction is a separate line and took no time
        found += [
            each for _, each in decode_file(path, decode) if each.status != "retracted"
        ]
    return sorted(found, key=lambda each: each.started)


class Round(NamedTuple):
    """A round of a run. point: as in `Record.point`.  number: from 0, within its point."""

    point: str
    benchmark: str
    number: int

    @property
    def is_later(self) -> bool:
        """Whether an earlier round of the point precedes it."""
        return self.number > 0


class _Source(NamedTuple):
    """What a round is predicted from. spread: standard deviation of the logarithm of measured over
    predicted time, determined from the runs of results/, each predicted from the earlier ones."""

    name: str
    spread: float


_AGAIN = _Source("later rounds of this run", 0.15)
_OWN = _Source("this machine", 0.35)
_OWN_WITHOUT = _Source("this machine, which gave no number", 1.0)
_ALIKE = _Source("machines of this kind", 0.5)
_ALIKE_WITHOUT = _Source("machines of this kind, which gave no number", 1.0)
_OTHERS = _Source("other machines", 0.5)
_FIRST = _Source("its first round in this run", 0.4)
_BENCHMARK = _Source("others of its benchmark", 0.85)
_NOTHING = _Source("nothing", 1.05)
#: Where rounds were measured, most informative first.
_PLACES = (_OWN, _OWN_WITHOUT, _ALIKE, _ALIKE_WITHOUT, _OTHERS)


class TimeLeft(NamedTuple):
    """How long something takes, s (the median). low, high: with a probability of about 90 % it
    takes at least and at most that long."""

    seconds: float
    low: float
    high: float

    @property
    def is_one_number(self) -> bool:
        """Whether `seconds` alone is reported instead of both ends."""
        return self.high <= ONE_NUMBER * self.low

    def within(self, most: float) -> TimeLeft:
        """Limited to these seconds."""
        return TimeLeft(*(max(0.0, min(each, most)) for each in self))


class _Guess(NamedTuple):
    """The predicted duration of a round, s. spread: of its logarithm."""

    seconds: float
    spread: float
    source: _Source

    @property
    def deviation(self) -> float:
        """Standard deviation, s."""
        return self.seconds * math.sqrt(math.expm1(self.spread**2))


class _Progress:
    """The duration of first or of later rounds in this run, compared with the prediction."""

    def __init__(self) -> None:
        self.measured = 0.0
        self.predicted = 0.0

    def add(self, seconds: float, guess: _Guess) -> None:
        """Add a round. An uncertain prediction says little about the speed of this run, and one
        made from this run itself says nothing."""
        if guess.source is _AGAIN:
            return
        weight = min(1.0, (_OWN.spread / guess.spread) ** 2)
        self.predicted += weight * guess.seconds
        self.measured += weight * min(seconds, SURPRISE * guess.seconds + 1.0)

    def ratio(self, other: _Progress) -> float:
        """Measured over predicted. other: of the other rounds."""
        measured = WEIGHT + self.measured + OTHER_ROUNDS * other.measured
        predicted = WEIGHT + self.predicted + OTHER_ROUNDS * other.predicted
        return min(MOST_RATIO, max(LEAST_RATIO, measured / predicted))


class RoundTimes:
    """Predicts the duration of rounds, s, and its uncertainty.

    A first round compiles and loads what later rounds find in caches, and a fresh node is slower at
    this. So first and later rounds are predicted separately, and each is corrected by the ratio
    observed in this run.

    past: stored rounds, not joined, of this machine and of others, in order of time.  machine: this
    one. Its own rounds are preferred, then those of machines that also have a GPU, or also have
    none; then rounds of other machines, then those of other points of the benchmark. If machines
    measured a point, Records in which it was skipped or failed (often at an older commit) are
    ignored.  has_gpu: whether this machine has a GPU.
    """

    def __init__(
        self, past: Iterable[PastRound] = (), machine: str = "", *, has_gpu: bool = False
    ) -> None:
        self._machine = machine
        self._has_gpu = has_gpu
        #: by point, whether it is a later round, and place: s of each round
        self._known: dict[tuple[str, bool, _Source], list[float]] = defaultdict(list)
        self._of_benchmark: dict[tuple[str, bool, _Source], list[float]] = defaultdict(list)
        self._progress = {False: _Progress(), True: _Progress()}
        self._overhead = 0.0
        self._rounds = 0
        self._builds: list[float] = []
        begun: set[tuple[str, ...]] = set()
        last: dict[tuple[str, str], PastRound] = {}
        for record in past:
            run = record.run or str(record.started)
            place = (record.machine, run, record.commit, record.point)
            self._remember(record, is_later=place in begun)
            begun.add(place)
            if record.status == "skipped" and not record.duration:
                continue
            before = last.get((record.machine, run))
            if before and before.commit != record.commit:
                gap = record.started - before.started - before.duration
                if gap > 0:
                    self._builds.append(gap)
            last[record.machine, run] = record
        self._builds = [statistics.median(self._builds)] if self._builds else [BUILD]

    def _remember(self, record: PastRound, *, is_later: bool) -> None:
        own = record.machine == self._machine
        alike = bool(record.node.gpus) == self._has_gpu
        if record.status == "ok":
            where = _OWN if own else _ALIKE if alike else _OTHERS
            self._known[record.point, is_later, where].append(record.duration)
            self._of_benchmark[record.benchmark, is_later, where].append(record.duration)
        # a point that a requirement left out began on no node, and took none of its time
        elif own or (alike and record.status == "skipped" and record.duration):
            where = _OWN_WITHOUT if own else _ALIKE_WITHOUT
            self._known[record.point, is_later, where].append(record.duration)
            self._known[record.point, True, where] = [0.0]

    def expect(self, this: Round) -> float:
        """Predicted seconds of this round, including the time between two rounds."""
        return self._corrected(this).seconds + self.between

    def expect_all(self, rounds: Iterable[Round]) -> float:
        """Predicted seconds of these rounds together."""
        return sum(map(self.expect, rounds))

    def left(self, planned: Mapping[Round, int], commits: int = 0) -> TimeLeft:
        """The predicted duration of these rounds together. planned: how often each is measured.
        commits: the number of commits started meanwhile."""
        seconds = commits * self.build
        of_point: dict[str, float] = defaultdict(float)
        of_benchmark: dict[str, float] = defaultdict(float)
        for this, count in planned.items():
            guess = self._corrected(this)
            seconds += count * (guess.seconds + self.between)
            of_point[this.point] += count * guess.deviation
            if guess.source in (_BENCHMARK, _NOTHING):
                of_benchmark[this.benchmark] += count * guess.deviation
        if seconds <= 0:
            return TimeLeft(0.0, 0.0, 0.0)
        variance = sum(each**2 for each in of_point.values())
        variance += COMMON_OF_BENCHMARK * sum(each**2 for each in of_benchmark.values())
        variance += ((COMMON_OF_COMMITS if commits else COMMON) * seconds) ** 2
        # log-normal: few points take far longer than predicted
        square = math.log1p(variance / seconds**2)
        median = seconds / math.exp(square / 2)
        reach = math.exp(REACH * math.sqrt(square))
        return TimeLeft(median, median / reach, median * reach)

    def learn(self, this: Round, seconds: float, wall: float) -> None:
        """Take in a round of this run. seconds: of the point itself.  wall: from one round's end to
        the next one's."""
        self._progress[this.is_later].add(seconds, self._expected(this))
        self._known[this.point, this.is_later, _AGAIN].append(seconds)
        self._of_benchmark[this.benchmark, this.is_later, _AGAIN].append(seconds)
        self._overhead += max(0.0, wall - seconds)
        self._rounds += 1

    def learn_build(self, seconds: float) -> None:
        """Add the time between the rounds of two commits of this run."""
        self._builds.append(seconds)

    @property
    def build(self) -> float:
        """Mean seconds between the rounds of two commits."""
        return statistics.fmean(self._builds)

    @property
    def between(self) -> float:
        """Mean seconds between the end of a point and the start of the next: starting and ending
        processes."""
        return self._overhead / self._rounds if self._rounds else 0.0

    def _corrected(self, this: Round) -> _Guess:
        """The prediction corrected by this run."""
        guess = self._expected(this)
        if guess.source is _AGAIN:
            return guess
        others = self._progress[not this.is_later]
        ratio = self._progress[this.is_later].ratio(others)
        return guess._replace(seconds=guess.seconds * ratio)

    def _expected(self, this: Round) -> _Guess:
        """Before the correction by this run."""
        is_later = this.is_later
        if is_later and (again := self._known.get((this.point, True, _AGAIN))):
            return _mean_of(again, _AGAIN)
        for where in _PLACES:
            if known := self._known.get((this.point, is_later, where)):
                return _mean_of(known[-RECENT:], where)
        if is_later and (first := self._known.get((this.point, False, _AGAIN))):
            return _Guess(_later_round(statistics.fmean(first)), _FIRST.spread, _FIRST)
        for where in (_AGAIN, *_PLACES):
            if others := self._of_benchmark.get((this.benchmark, is_later, where)):
                # the mean of a log-normal distribution of this median
                mean = statistics.median(others) * math.exp(_BENCHMARK.spread**2 / 2)
                return _Guess(mean, _BENCHMARK.spread, _BENCHMARK)
        unknown = UNKNOWN[self._has_gpu]
        seconds = _later_round(unknown) if is_later else unknown
        return _Guess(seconds, _NOTHING.spread, _NOTHING)


def _mean_of(known: Sequence[float], source: _Source) -> _Guess:
    """The mean of rounds of a point, and their own spread, weighted by their number."""
    spread = source.spread
    if len(known) > 1 and min(known) > 0:
        logarithms = [math.log(each) for each in known]
        middle = statistics.fmean(logarithms)
        own = sum((each - middle) ** 2 for each in logarithms)
        weight = SPREAD_WEIGHT + len(known) - 1
        spread = math.sqrt((SPREAD_WEIGHT * spread**2 + own) / weight)
    return _Guess(statistics.fmean(known), spread, source)


def _later_round(first: float) -> float:
    """s of a later round of a point for which only the first one is known."""
    return LATER_SHARE * min(first, LONG_FIRST) + LATER_SHARE_BEYOND * max(
        0.0, first - LONG_FIRST
    )


@dataclass(frozen=True)
class TimeLimit:
    """The time limit of a run. seconds: from `started` on, s of the monotonic clock."""

    seconds: float
    started: float = field(default_factory=clocks.monotonic)

    @property
    def left(self) -> float:
        """s that are left; negative after the limit."""
        return self.started + self.seconds - clocks.monotonic()

    def __str__(self) -> str:
        minutes, rest = divmod(self.seconds, 60)
        return f"{minutes:g} min" if minutes and not rest else f"{self.seconds:g} s"


class OutOfTime(Exception):
    """The run's limit has passed; the round that it interrupted is not stored."""


def parse_limit(text: str, named: str) -> float:
    """Parse seconds from `9min`, `540s`, `540` or `1.5h`.

    named: what the text was given to, for the message. Raises UsageError for anything else.
    """
    found = _SHAPE.fullmatch(text.strip())
    if found and found[2] in _UNITS:
        seconds = float(found[1]) * _UNITS[found[2]]
        if 0 < seconds <= LONGEST:
            return seconds
    raise UsageError(f"{named} is {text[:40]!r}, not a duration; write 9min, 540s or 1.5h")


def limit_of_environment() -> TimeLimit | None:
    """The limit from HPML_LIMIT for a run that starts now; None if it is not set."""
    text = os.environ.get(LIMIT_VARIABLE, "")
    return TimeLimit(parse_limit(text, LIMIT_VARIABLE)) if text else None
