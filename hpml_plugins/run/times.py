"""The time of a run: how long its rounds take, predicted from earlier Records and corrected by what
the run has shown so far; and the limit that it may have (`hpml run --limit 9min`, HPML_LIMIT=9min
for `asv run`)."""

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

#: s of a first round of which nothing is known at all, by whether the machine has a GPU: of such
#: rounds in results/ the median of 38 on CPUs, and the mean of 63 on GPUs.
UNKNOWN = {False: 3.3, True: 9.9}
#: s between the rounds of two commits, where no run tells: the second one is built.
BUILD = 15.0
#: Where no run tells, a later round takes these shares of the first one's seconds up to
#: LONG_FIRST and beyond them: what makes a first round longer is mostly compiling and loading.
#: Of the 1,200 points in results/ that GPUs and CPUs measured in rounds, a later round took 0.93 of
#: a first one of 2 to 4 s, 0.74 of one of 4 to 8 s and 0.46 of one of 8 to 16 s.
LONG_FIRST = 3.0
LATER_SHARE = 0.95
LATER_SHARE_BEYOND = 0.4
#: How many stored rounds of a point are taken the mean of: the last ones.
RECENT = 5
#: With how many rounds of its own such a spread counts beside the spread of a point's own rounds.
SPREAD_WEIGHT = 2
#: What the points of a run have in common, as a share of all.
COMMON = 0.07
#: The same where further commits are measured, whose code may take longer.
COMMON_OF_COMMITS = 0.15
#: How much of what is not known of a point is common to those of its benchmark.
COMMON_OF_BENCHMARK = 0.5
#: Standard deviations from the mean to the ends of what is told: about 90 % lie between them.
REACH = 1.65
#: Times that the ends may be apart where one number is told: then it is right within 20 %.
ONE_NUMBER = 1.44
#: s with which the prediction itself counts in the ratio of what a run took to what was predicted.
WEIGHT = 30.0
#: How much first rounds count in that ratio of later ones, and the reverse: a slow machine is slow
#: at first and at later rounds, but a fresh one at first rounds alone.
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

    @property
    def is_later(self) -> bool:
        """Whether a round of the point came before it."""
        return self.number > 0


class _Source(NamedTuple):
    """What a round is predicted from. spread: standard deviation of the logarithm of what it took
    over what was predicted, as found over the runs of results/, each predicted from those before
    it."""

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
#: Where rounds were measured; those that tell most come first.
_PLACES = (_OWN, _OWN_WITHOUT, _ALIKE, _ALIKE_WITHOUT, _OTHERS)


class TimeLeft(NamedTuple):
    """How long something takes, s: as likely longer as shorter. low, high: with about 90 % it takes
    at least and at most that long."""

    seconds: float
    low: float
    high: float

    @property
    def is_one_number(self) -> bool:
        """Whether `seconds` says it: else both ends do."""
        return self.high <= ONE_NUMBER * self.low

    def within(self, most: float) -> TimeLeft:
        """Where there are no more than these seconds."""
        return TimeLeft(*(max(0.0, min(each, most)) for each in self))


class _Guess(NamedTuple):
    """What a round is predicted to take, s. spread: of the logarithm of what it takes."""

    seconds: float
    spread: float
    source: _Source

    @property
    def deviation(self) -> float:
        """Standard deviation, s."""
        return self.seconds * math.sqrt(math.expm1(self.spread**2))


class _Progress:
    """What first rounds, or later ones, took in this run, against what was predicted for them."""

    def __init__(self) -> None:
        self.measured = 0.0
        self.predicted = 0.0

    def add(self, seconds: float, guess: _Guess) -> None:
        """Take in a round. What was known badly tells little of how fast this run is, and what
        this run itself predicted tells nothing."""
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
    """Predicts how long a round takes, s, and how far that may be wrong.

    A first round compiles and loads what later rounds find in caches, and a fresh node is slower at
    all of it: first and later rounds are predicted apart, and each is corrected by the ratio that
    this run has shown.

    past: stored rounds, not joined, of this machine and of others, in the order of time.  machine:
    this one. Its own rounds count first, then those of machines that have a GPU as this one does,
    or have none; then rounds of the other machines, then those of the same benchmark's other
    points. Where machines measured a point, that they once did not (it was skipped or failed, often
    at an older commit) tells nothing.  has_gpu: whether this machine has one.
    """

    def __init__(
        self, past: Iterable[PastRound] = (), machine: str = "", *, has_gpu: bool = False
    ) -> None:
        self._machine = machine
        self._has_gpu = has_gpu
        #: by point, whether it is a later round, and where: s of each round
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
        """Seconds that this round will take, what lies between two rounds included."""
        return self._corrected(this).seconds + self.between

    def expect_all(self, rounds: Iterable[Round]) -> float:
        """Seconds that these rounds will take together."""
        return sum(map(self.expect, rounds))

    def left(self, planned: Mapping[Round, int], commits: int = 0) -> TimeLeft:
        """How long these rounds take together. planned: how often each is.  commits: that are
        begun meanwhile."""
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
        # a log-normal distribution: few points take far longer than what is known of them says
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
        """Take in what lay between the rounds of two commits of this run."""
        self._builds.append(seconds)

    @property
    def build(self) -> float:
        """Mean seconds between the rounds of two commits."""
        return statistics.fmean(self._builds)

    @property
    def between(self) -> float:
        """Mean seconds between the end of a point and the beginning of the next one: starting and
        ending processes."""
        return self._overhead / self._rounds if self._rounds else 0.0

    def _corrected(self, this: Round) -> _Guess:
        """By what this run has shown."""
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
    """The mean of rounds of a point, and their own spread as far as they are many."""
    spread = source.spread
    if len(known) > 1 and min(known) > 0:
        logarithms = [math.log(each) for each in known]
        middle = statistics.fmean(logarithms)
        own = sum((each - middle) ** 2 for each in logarithms)
        weight = SPREAD_WEIGHT + len(known) - 1
        spread = math.sqrt((SPREAD_WEIGHT * spread**2 + own) / weight)
    return _Guess(statistics.fmean(known), spread, source)


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
