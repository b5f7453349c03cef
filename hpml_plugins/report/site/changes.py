"""Changes over the history: changes of level, regressions that did not recover, and suspicious
newest values.

Levels, and the certainty of their differences, come from `hpml_plugins.analysis.levels`. asv's own
search for regressions considers every increase a regression. Here the direction of the metric
decides, and two levels differ only if the variance between runs and cards does not explain the
difference, corrected for the number of levels compared over all series.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hpml_plugins.analysis.levels import (
    ENOUGH_WITH_INTERVAL,
    Level,
    Readings,
    best_level,
)
from hpml_plugins.analysis.measured import Values
from hpml_plugins.analysis.segments import BEGIN, Contrast
from hpml_plugins.analysis.verdicts import (
    ERROR_RATE,
    SIGNATURE_DECIMALS,
    ValuePair,
    compare_values,
    correct,
    why_not_judged,
)
from hpml_plugins.model import formatting
from hpml_plugins.report.reading import History, Machine, Outcome, TrackedMetric
from hpml_plugins.report.site.found_levels import FindLevels, Question, find_levels
from hpml_plugins.report.site.nodes import Gaps

#: The smallest relative change of a level that counts.
THRESHOLD = 0.02
#: The smallest relative difference of a suspected single value.
SUSPECTED = 0.05
#: The number of readings before the newest that define what is usual.
USUAL = 5
#: Largest share of the suspected changes that may be due to chance, corrected for all series.
SUSPICION_RATE = 0.2
#: Why a value is not judged that is placed only by its date.
BY_DATE = "placed by date alone"


@dataclass(frozen=True)
class Change:
    """A change of level between two revisions.

    last: the last revision of the old level.  first: the first known one of the new.  before,
    after: the levels.  verdict: "better", "worse", or "" if the metric has no direction.  steps:
    its parts, if it consists of several changes.  drifts: whether it was gradual, over all
    revisions from last to first.  bound: the bound on the ratio, in words; "" without a ratio, or
    if only the values are known.  scatter: the larger mean deviation of both levels.
    """

    last: int
    first: int
    before: float
    after: float
    verdict: str
    steps: tuple[Change, ...] = ()
    drifts: bool = False
    bound: str = ""
    scatter: float = 0.0

    @property
    def exceeds_scatter(self) -> bool:
        """Whether the levels differ by more than the threshold and the scatter around them."""
        least = max(THRESHOLD * abs(self.before), self.scatter)
        return abs(self.after - self.before) > least

    def is_undone_by(self, value: float | None) -> bool:
        """Whether a later value is nearer to the level before; None: there is none."""
        if value is None:
            return False
        if min(self.before, self.after) > 0:
            middle = math.sqrt(self.before * self.after)
        else:
            middle = (self.before + self.after) / 2
        return (value > middle) == (self.before > middle)

    @property
    def wording(self) -> str:
        """`1.12× (+12 %)`; `higher` or `lower` without a ratio."""
        if self.before > 0:
            return formatting.change(self.after / self.before)
        return "higher" if self.after > self.before else "lower"

    @property
    def size(self) -> float:
        """Sort key: the size of the change, in either direction."""
        if self.before > 0 and self.after > 0:
            return abs(math.log(self.after / self.before))
        return abs(self.after - self.before)


@dataclass(frozen=True)
class MeasuredSeries:
    """One point of a metric on one machine, and its levels.

    label: the point in words.  answers: for each question, whether the levels differ by more than
    runs and cards do, corrected for all series.  branch: whose line it is on, "" for the first.
    bounds: for each question, the bound on the ratio.  judged: the number of readings used for the
    levels.  left_out: reason why others are not judged → their number.  newest: the newest of these
    readings that no other processes disturbed; None if there is none.
    """

    metric: TrackedMetric
    label: str
    machine: Machine
    levels: Sequence[Level] = ()
    answers: Mapping[Question, bool] = field(default_factory=dict)
    branch: str = ""
    bounds: Mapping[Question, str] = field(default_factory=dict)
    judged: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)
    newest: float | None = None

    @property
    def place(self) -> tuple[str, str, str, str]:
        """Metric, point, machine and branch, by name."""
        return self.metric.name, self.label, self.machine.name, self.branch

    @property
    def where(self) -> str:
        """The machine, and the branch unless it is the first, in words."""
        machine = f"{self.machine.hardware.label} ({self.machine.name})"
        return f"{machine}, branch {self.branch}" if self.branch else machine

    @property
    def changes(self) -> list[Change]:
        """Every change of level larger than the threshold and the scatter around both levels,
        oldest first."""
        certain = [self._change(each) for each in self._moves() if self.answers.get(each)]
        return [change for change in certain if change.exceeds_scatter]

    def _moves(self) -> Iterator[Question]:
        """The possible changes of the series, oldest first."""
        for number, level in enumerate(self.levels):
            if level.end is not None:
                yield "drift", number
            if number + 1 < len(self.levels):
                yield "next", number

    def _change(self, move: Question) -> Change:
        """The change from one end of a drifting level to the other, or from a level to the next."""
        what, number = move
        drifts = what == "drift"
        old = self.levels[number]
        new = self.levels[number if drifts else number + 1]
        last, before = (old.first, old.value) if drifts else (old.last, old.ends[-1])
        first, after = (old.last, old.ends[-1]) if drifts else (new.first, new.value)
        return Change(
            last,
            first,
            before,
            after,
            _verdict(before, after, self.metric.direction),
            drifts=drifts,
            bound=self.bounds.get(move, ""),
            scatter=max(old.scatter, new.scatter),
        )

    @functools.cached_property
    def open(self) -> list[Change]:
        """By how much the newest level is worse than the best one, in total: one change, or none.

        It may consist of several steps or drifts: many small changes together may exceed the
        threshold. A benchmark without a known direction has none.
        """
        direction = self.metric.direction
        if not (self.levels and direction and self.answers.get(("lasting", 0))):
            return []
        number, at = best_level(self.levels, direction)
        best = self.levels[number]
        newest = self.levels[-1]
        # a drift counts from the position of the best value
        moves = [
            each
            for each in self._moves()
            if each[1] >= number and (each != ("drift", number) or at == BEGIN)
        ]
        steps = [each for each in map(self._change, moves) if each.verdict == "worse"]
        before = best.ends[0 if at == BEGIN else -1]
        after = newest.ends[-1]
        change = Change(
            steps[0].last if steps else best.last,
            steps[-1].first if steps else newest.first,
            before,
            after,
            _verdict(before, after, direction),
            tuple(steps) if len(steps) > 1 else (),
            len(steps) == 1 and steps[0].drifts,
            self.bounds.get(("lasting", 0), ""),
            max(best.scatter, newest.scatter),
        )
        return [change] if change.verdict == "worse" and change.exceeds_scatter else []


@dataclass(frozen=True)
class Shift:
    """A change of a series, certain or suspected.

    also: other metrics that changed with it because they are derived from the same timing.
    """

    series: MeasuredSeries
    change: Change
    also: tuple[str, ...] = ()

    @property
    def rank(self) -> tuple[Any, ...]:
        """Sort key: the newest first, then the largest."""
        series = self.series
        change = self.change
        return (
            -change.first,
            -change.size,
            series.metric.title,
            series.label,
            series.where,
        )


def places_of(metric: TrackedMetric) -> Iterator[tuple[str, str, str]]:
    """Point, machine and branch of each line of a metric; the branch is "" for the first."""
    index = metric.benchmark.index
    for branch in index.branches:
        for label, machine in index.lines(branch):
            yield label, machine, branch


def find_changes(history: History, find: FindLevels = find_levels) -> list[MeasuredSeries]:
    """Every series with enough readings for a verdict, with its levels."""
    found: list[tuple[MeasuredSeries, dict[Question, Contrast]]] = []
    machines = {machine.name: machine for machine in history.machines}
    for metric in history.measured:
        for label, name, branch in places_of(metric):
            line = [
                (at.revision, each)
                for at, each in metric.judged(label, name, branch)
                if each
            ]
            readings = Readings.of(line)
            if len(readings.readings) >= 2 * ENOUGH_WITH_INTERVAL:
                series = MeasuredSeries(metric, label, machines[name], branch=branch)
                found.append(ask(series, readings, find))
    chances = correct([each.p for _, asked in found for each in asked.values()])
    certain = iter([chance < ERROR_RATE for chance in chances])
    return [
        replace(series, answers={question: next(certain) for question in asked})
        for series, asked in found
    ]


def ask(
    series: MeasuredSeries, readings: Readings, find: FindLevels = find_levels
) -> tuple[MeasuredSeries, dict[Question, Contrast]]:
    """The series with its levels, and the difference for each question."""
    levels, answers = find(readings, series.metric.direction)
    quiet = (each.value for each in reversed(readings.readings) if not each.is_busy)
    told = replace(
        series,
        levels=levels,
        bounds={each.question: each.bound for each in answers},
        judged=len(readings.readings),
        left_out=readings.left_out,
        newest=next(quiet, None),
    )
    return told, {each.question: each.difference for each in answers}


def _verdict(old: float, new: float, direction: str) -> str:
    if not direction or old == new:
        return ""
    return "worse" if (new > old) == (direction == "lower") else "better"


def find_shifts(
    history: History, series: Sequence[MeasuredSeries], gaps: Sequence[Gaps] = ()
) -> tuple[dict[str, list[Shift]], Counter[str]]:
    """Open regressions, lasting improvements, and of both kinds those suspected and those that the
    newest value speaks against, each in the order of pages.

    Also returns the number of series that cannot be suspected, see `find_suspected`.
    """
    worse = [
        Shift(each, change)
        for each in series
        for change in each.open
        if is_own(history, each, change)
    ]
    last = [
        Shift(each, change)
        for each in series
        for change in each.changes[-1:]
        if is_own(history, each, change)
    ]
    better = [shift for shift in last if shift.change.verdict == "better"]
    suspected, left_out = find_suspected(
        history, {shift.series.place for shift in (*worse, *better)}, gaps
    )
    worse, back = _split(worse)
    better, lost = _split(better)
    kinds = {
        "open regression": worse,
        "suspected regression": [
            shift for shift in suspected if shift.change.verdict == "worse"
        ],
        "improvement": better,
        "suspected improvement": [
            shift for shift in suspected if shift.change.verdict == "better"
        ],
        "contradicted regression": back,
        "contradicted improvement": lost,
    }
    return {
        kind: sorted(one_of_each_timing(found), key=operator.attrgetter("rank"))
        for kind, found in kinds.items()
    }, left_out


def _split(shifts: Iterable[Shift]) -> tuple[list[Shift], list[Shift]]:
    """Those that stand, and those that the newest value speaks against: it is nearer to the level
    before. It is one reading, which the next run may confirm or refute."""
    stand: list[Shift] = []
    undone: list[Shift] = []
    for shift in shifts:
        is_undone = shift.change.is_undone_by(shift.series.newest)
        (undone if is_undone else stand).append(shift)
    return stand, undone


def one_of_each_timing(shifts: Iterable[Shift]) -> list[Shift]:
    """Select one of the metrics of each timing (time, rate, bandwidth), which change together; it
    lists the others. The time is preferred."""
    found: dict[object, list[Shift]] = {}
    times_first = sorted(shifts, key=lambda shift: shift.series.metric.unit != "s")
    for number, shift in enumerate(times_first):
        found.setdefault(_timing(shift) or number, []).append(shift)
    return [
        replace(first, also=tuple(each.series.metric.metric for each in others))
        for first, *others in found.values()
    ]


def _timing(shift: Shift) -> object:
    """A key shared by all metrics of one timing that changed between the same commits; None if no
    timing is known."""
    series = shift.series
    change = shift.change
    metric = series.metric
    of_line = series.label, series.machine.name, series.branch
    sides = metric.at((change.last, change.first), *of_line)
    values = [side and side.readings.get(metric.metric) for side in sides]
    timings = [value and value.timing for value in values]
    if None in timings:
        return None
    signatures = [round(timing, SIGNATURE_DECIMALS) for timing in timings if timing]
    return (*_series_of_point(series), change.last, *signatures)


def _series_of_point(series: MeasuredSeries) -> tuple[str, str, str, str]:
    """What all metrics of a point share: benchmark, point, machine and branch, by name."""
    return (series.metric.benchmark.name, *series.place[1:])


def is_own(history: History, series: MeasuredSeries, change: Change) -> bool:
    """Whether a change belongs to the series' own branch; changes inherited from the first branch
    are reported there."""
    return not series.branch or change.first not in history.own


def find_suspected(
    history: History, known: Container[tuple[str, str, str, str]], gaps: Sequence[Gaps] = ()
) -> tuple[list[Shift], Counter[str]]:
    """Newest values that differ from what is usual by more than SUSPECTED and by more than runs and
    cards explain.

    Each is one reading, which the next run may confirm. Usual is the median of the USUAL previous
    readings, or of at least ENOUGH_WITH_INTERVAL: with two readings it is unknown which one is the
    outlier. A series that is no longer measured has no next run. Also returns how many series are
    left out as "old" or "young" for these two reasons, and as "unclear" if the two values are not
    compared because of how they were timed (`why_not_judged`).

    known: `MeasuredSeries.place` of confirmed changes.
    """
    of_machine = {gap.name: gap for gap in gaps}
    suspects: list[tuple[Shift, Values, Values]] = []
    left_out: Counter[str] = Counter()
    for series, recent in _recent(history):
        taken_over = series.branch and recent[0].revision in history.own
        if series.place in known or taken_over:
            continue
        if _is_gone(series, of_machine.get(series.machine.name)):
            left_out["old"] += 1
        elif len(recent) <= ENOUGH_WITH_INTERVAL:
            left_out["young"] += 1
        else:
            suspects.append(_beside_usual(series, recent))
    compared = compare_values(
        [
            ValuePair(
                _series_of_point(shift.series), usual, newest, shift.series.metric.metric
            )
            for shift, usual, newest in suspects
        ]
    )
    chances = iter(correct([each.p for each in compared if each.p is not None]))
    suspected = []
    for (shift, usual, newest), found in zip(suspects, compared, strict=True):
        name = shift.series.metric.metric
        differ = shift.change.before != shift.change.after
        is_unclear = bool(differ and why_not_judged(usual[name], newest[name]))
        if is_unclear:
            left_out["unclear"] += 1
        if found.p is None or next(chances) >= SUSPICION_RATE or is_unclear:
            continue
        if found.ratio and abs(found.ratio - 1) > SUSPECTED:
            bound = found.undirected.full_wording(shift.series.metric.unit)
            suspected.append(replace(shift, change=replace(shift.change, bound=bound)))
    return suspected, left_out


def _recent(history: History) -> Iterator[tuple[MeasuredSeries, list[Outcome]]]:
    """Every series of a metric with a direction, with its newest measured outcomes, newest
    first."""
    machines = {machine.name: machine for machine in history.machines}
    for metric in history.measured:
        for label, name, branch in places_of(metric) if metric.direction else ():
            newest_first = metric.newest_first(label, name, branch)
            measured = (outcome for outcome, reading in newest_first if reading)
            if recent := list(itertools.islice(measured, USUAL + 1)):
                yield MeasuredSeries(metric, label, machines[name], branch=branch), recent


def _is_gone(series: MeasuredSeries, gap: Gaps | None) -> bool:
    """Whether the series, or its machine, is no longer measured."""
    if gap is None:
        return False
    dropped = gap.dropped.get(series.metric.benchmark.heading, ())
    return gap.stale or series.label in [point for point, *_ in dropped]


def _beside_usual(
    series: MeasuredSeries, recent: Sequence[Outcome]
) -> tuple[Shift, Values, Values]:
    """The change from what is usual to the newest value; the values of both."""
    name = series.metric.metric
    newest, *before = (outcome.readings for outcome in recent)
    usual = sorted(before, key=lambda readings: readings[name].value)[len(before) // 2]
    old = usual[name].value
    new = newest[name].value
    verdict = _verdict(old, new, series.metric.direction)
    change = Change(recent[1].revision, recent[0].revision, old, new, verdict)
    return Shift(series, change), usual, newest


@dataclass(frozen=True)
class Judged:
    """The number of judged values of a machine. left_out: reason why others are not → their number.
    last: its newest commit's date, ms since 1970.  short: the number of series with too few
    readings to judge any of them.
    """

    machine: str
    judged: int
    left_out: Counter[str]
    last: float
    short: int = 0

    @property
    def wording(self) -> str:
        """`11 of 16 values not judged: one side throttled`; "" if all are judged."""
        if not self.left_out:
            return ""
        reasons = ", ".join(
            f"{count:,} {reason}" for reason, count in self.left_out.most_common()
        )
        missing = self.left_out.total()
        return f"{missing:,} of {missing + self.judged:,} values not judged: {reasons}"


def count_judged(history: History, series: Iterable[MeasuredSeries]) -> list[Judged]:
    """The number of values used to judge each machine's series, by machine name; for the first
    branch."""
    found: dict[str, tuple[Counter[str], Counter[str]]] = {}
    short = _count_series(history)
    short.subtract(each.machine.name for each in series if not each.branch)
    for each in series:
        if not each.branch:
            judged, left_out = found.setdefault(each.machine.name, (Counter(), Counter()))
            judged[""] += each.judged
            left_out.update(each.left_out)
    for name, count in _by_date(history).items():
        found.setdefault(name, (Counter(), Counter()))[1][BY_DATE] += count
    for name in short:
        found.setdefault(name, (Counter(), Counter()))
    seen = history.seen
    dates = {name: history.dates[max(columns)] for name, columns in seen.items() if columns}
    return [
        Judged(name, judged.total(), left_out, dates.get(name, 0.0), short[name])
        for name, (judged, left_out) in sorted(found.items())
    ]


def _count_series(history: History) -> Counter[str]:
    """Machine → the number of its series with a value, on the line of the first branch."""
    found: Counter[str] = Counter()
    for metric in history.measured:
        for label, machine in metric.benchmark.index.lines():
            found[machine] += any(value for _, value in metric.newest_first(label, machine))
    return +found


def _by_date(history: History) -> Counter[str]:
    """Machine → the number of values not used in any series because they are placed only by
    date."""
    found: Counter[str] = Counter()
    for metric in history.measured if history.order.by_date else ():
        for label, machine in metric.benchmark.index.lines():
            line = metric.line(label, machine)
            judged = metric.judged(label, machine)
            found[machine] += sum(bool(each) for _, each in line) - sum(
                bool(each) for _, each in judged
            )
    return +found
