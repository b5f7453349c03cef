"""Changes of level over the history, and what got worse and did not recover: our page and the Atom
feed.

Levels, and how sure their differences are, come from `hpml_plugins.analysis.levels`. asv's own
search for regressions takes every rise for one; here the direction of the metric decides, and two
levels differ only where the variance between runs and cards does not explain it, corrected for how
many levels of all series are compared.
"""

from __future__ import annotations

import datetime
import functools
import itertools
import math
import operator
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from hpml_plugins.analysis.levels import (
    BEGIN,
    END,
    Contrast,
    ReadingSeries,
    find_segments,
)
from hpml_plugins.analysis.measured import EXACT, MeasuredValue, Values
from hpml_plugins.analysis.variance import (
    FLOOR,
    UNKNOWN,
    UNKNOWN_CARDS,
    UNKNOWN_CARDS_FREEDOM,
    UNKNOWN_FREEDOM,
    Spread,
)
from hpml_plugins.analysis.verdicts import (
    ERROR_RATE,
    SIGNATURE_DECIMALS,
    compare_values,
    correct,
    why_not_judged,
)
from hpml_plugins.model import formatting
from hpml_plugins.model.differences import differences
from hpml_plugins.report.reading import History, Machine, TrackedMetric, stored_record
from hpml_plugins.report.site.nodes import Gaps
from hpml_plugins.report.site.page import day, fill, graph_link, point_link
from hpml_plugins.terminal import printable

#: Smallest part of the level that counts.
THRESHOLD = 0.02
#: Smallest part by which a single value differs that is suspected.
SUSPECTED = 0.05
#: Readings that a level needs on either side of a change: two with intervals, or three. A single
#: run that stands out has often been a busy machine; the next one tells.
ENOUGH_WITH_INTERVAL, ENOUGH = 2, 3
#: Of a series: the newest; and cards that are told apart. What a fit takes grows with the product.
MOST_READINGS, MOST_CARDS = 2000, 64
#: How many readings before the newest say what was usual.
USUAL = 5
#: What is known of values that were never repeated.
UNKNOWN_SPREAD = Spread(
    UNKNOWN**2, UNKNOWN_FREEDOM, UNKNOWN**2 + UNKNOWN_CARDS**2, UNKNOWN_CARDS_FREEDOM
)
#: Largest share of what the page suspects that may be chance, corrected for all series.
SUSPICION_RATE = 0.2
#: How many of each kind the page lists, newest first; of one change the largest steps.
LISTED, MOST_STEPS = 500, 3
#: Why a value is not judged that only its date places.
BY_DATE = "placed by date alone"


class Level(NamedTuple):
    """A part of a series. first, last: revisions.  scatter: mean deviation from the value.

    end: the value at its end, where it drifts from one to the other; None where it does not.
    """

    first: int
    last: int
    value: float
    scatter: float
    end: float | None = None

    @property
    def ends(self) -> tuple[float, ...]:
        """The value, or both where it drifts."""
        return (self.value,) if self.end is None else (self.value, self.end)


@dataclass(frozen=True)
class Change:
    """A change of level between two revisions.

    last: the last revision of the old level.  first: the first known one of the new.  before,
    after: the levels. verdict: "better", "worse", or "" where the metric has no direction.  steps:
    what it consists of, where that is several changes.  drifts: whether it came steadily, over all
    revisions from last to first.  bound: what is sure of the ratio, in words; "" where there is no
    ratio, or nothing but the values is known.  scatter: the larger mean deviation of both levels.
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

    @property
    def wording(self) -> str:
        """`1.12× (+12 %)`; `higher` or `lower` where there is no ratio."""
        if self.before > 0:
            return formatting.change(self.after / self.before)
        return "higher" if self.after > self.before else "lower"

    @property
    def size(self) -> float:
        """For sorting: how large the change is, whichever way."""
        if self.before > 0 and self.after > 0:
            return abs(math.log(self.after / self.before))
        return abs(self.after - self.before)


@dataclass(frozen=True)
class Readings:
    """One series: revisions, ascending, with a reading each.  left_out: why readings are not judged
    → how many."""

    revisions: np.ndarray
    readings: Sequence[MeasuredValue]
    left_out: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, line: Sequence[tuple[int, MeasuredValue]]) -> Readings:
        """Of (revision, reading), ascending: those that may be compared with the newest."""
        why = [why_not_judged(reading, line[-1][1]) for _, reading in line]
        kept = [each for each, reason in zip(line, why, strict=True) if not reason]
        left_out = Counter(reason for reason in why if reason)
        if len(kept) > MOST_READINGS:
            left_out[f"older than the newest {MOST_READINGS:,}"] = len(kept) - MOST_READINGS
            kept = kept[-MOST_READINGS:]
        return cls(
            np.array([revision for revision, _ in kept]),
            [reading for _, reading in kept],
            left_out,
        )

    @property
    def are_counts(self) -> bool:
        """Whether the values were counted: they come again exactly."""
        return all(reading.spread == EXACT for reading in self.readings)

    def series(self) -> ReadingSeries:
        """For the statistics: logarithms, with the reference steps of their visits as a covariate;
        where a value is not above 0, shares of the median size."""
        values = np.array([reading.value for reading in self.readings], float)
        references = np.array([_reference(reading) for reading in self.readings])
        if values.min() > 0:
            values = np.log(values)
            covariates = references[:, None]
        else:
            values = values / self._scale
            covariates = np.empty((0, 0))
        numbers: dict[str, int] = {}
        cards = np.array(
            [numbers.setdefault(reading.card, len(numbers)) for reading in self.readings]
        )
        spreads = [reading.spread or UNKNOWN_SPREAD for reading in self.readings]
        newest = spreads[-1] if math.isfinite(spreads[-1].same_freedom) else UNKNOWN_SPREAD
        runs = np.array([max(spread.same_card, FLOOR**2) for spread in spreads])
        between = max(newest.any_card - newest.same_card, 0.0)
        freedom = newest.same_freedom
        # hardly any comes again: cards are noise like another
        if len(numbers) > min(MOST_CARDS, len(values) / 2):
            runs = runs + between
            between = 0.0
            cards = np.zeros_like(cards)
            freedom = newest.any_freedom
        busy = np.array([reading.is_busy for reading in self.readings])
        variances = runs, freedom, between, newest.any_freedom
        return ReadingSeries(values, cards, *variances, covariates, busy)

    @property
    def _scale(self) -> float:
        return float(np.median([abs(reading.value) for reading in self.readings])) or 1.0

    def find_levels(self) -> Levels:
        """The levels of the readings, and how probable their differences are for equal code."""
        if self.are_counts:
            return self._levels_of_counts()
        found = find_segments(self.series())
        if outliers := found.outliers:
            kept = [
                number for number in range(len(self.readings)) if number not in outliers
            ]
            rest = Readings(
                self.revisions[kept], [self.readings[number] for number in kept]
            )
            return rest.find_levels()
        logarithmic = min(reading.value for reading in self.readings) > 0

        def value(segment: int, at: float) -> float:
            level = found.value(segment, at)
            return math.exp(level) if logarithmic else level * self._scale

        starts = [
            (0, 0),
            *(found.boundary(number) for number in range(1, len(found.segments))),
        ]
        ends = [*starts[1:], (len(self.readings), 0)]
        levels, numbers = [], []
        for number, segment in enumerate(found.segments):
            if self._is_level(segment.first, segment.end):
                begin = value(number, BEGIN)
                end = value(number, END)
                if logarithmic:
                    fitted = np.geomspace(begin, end, segment.end - segment.first)
                else:
                    fitted = np.array([begin])
                level = self._level(
                    segment.first, segment.end, fitted, end if segment.drifts else None
                )
                # What may belong to either side is of neither.
                first = int(self.revisions[starts[number][1]])
                last = int(self.revisions[ends[number][0] - 1])
                levels.append(level._replace(first=first, last=max(first, last)))
                numbers.append(number)

        def contrast(old: tuple[int, float], new: tuple[int, float]) -> Contrast:
            return found.contrast((numbers[old[0]], old[1]), (numbers[new[0]], new[1]))

        return Levels(levels, contrast, logarithmic=logarithmic)

    def _levels_of_counts(self) -> Levels:
        values = [reading.value for reading in self.readings]
        starts = [0, *(at for at in range(1, len(values)) if values[at] != values[at - 1])]
        parts = itertools.pairwise((*starts, len(values)))
        levels = [
            self._level(a, b, np.array([values[a]]))
            for a, b in parts
            if self._is_level(a, b)
        ]
        return Levels(
            levels,
            lambda old, new: Contrast(levels[new[0]].value - levels[old[0]].value),
            logarithmic=False,
        )

    def _is_level(self, first: int, end: int) -> bool:
        """Whether so many readings are a level: of one that stands out the next run tells."""
        estimates = (reading.estimate for reading in self.readings[first:end])
        known = sum(
            estimate.low is not None and math.isfinite(estimate.low)
            for estimate in estimates
        )
        counted = sum(reading.spread == EXACT for reading in self.readings[first:end])
        return known >= ENOUGH_WITH_INTERVAL or counted >= ENOUGH or end - first >= ENOUGH

    def _level(
        self, first: int, end: int, fitted: np.ndarray, drifts_to: float | None = None
    ) -> Level:
        values = np.array([reading.value for reading in self.readings[first:end]])
        scatter = float(np.mean(np.abs(values - fitted)))
        return Level(
            int(self.revisions[first]),
            int(self.revisions[end - 1]),
            float(fitted[0]),
            scatter,
            drifts_to,
        )


@dataclass(frozen=True)
class Levels:
    """The levels of a series, oldest first. contrast: the difference of two: (number, BEGIN or END)
    of each.  logarithmic: whether differences are of logarithms."""

    levels: Sequence[Level]
    contrast: Callable[[tuple[int, float], tuple[int, float]], Contrast]
    logarithmic: bool

    def steps(self) -> list[Contrast]:
        """From each level's end to the beginning of the next."""
        return [
            self.contrast((number, END), (number + 1, BEGIN))
            for number in range(len(self.levels) - 1)
        ]

    def bound(self, difference: Contrast) -> str:
        """What is sure of the ratio of two levels: `at least 1.10×`."""
        if not self.logarithmic or not difference.variance:
            return ""
        return formatting.least_times(math.exp(difference.least))


def _reference(reading: MeasuredValue) -> float:
    return math.nan if reading.reference is None else reading.reference


@dataclass(frozen=True)
class MeasuredSeries:
    """One point of a metric on one machine, and its levels.

    label: the point in words.  answers: whether the levels that a question is about differ by more
    than runs and cards do, of all series that are asked at once.  branch: of whose line, "" for the
    first.  bounds: of each question, what is sure of the ratio.  judged: of how many readings the
    levels are.  left_out: why others are not judged → how many.
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

    @property
    def place(self) -> tuple[str, str, str, str]:
        """Metric, point, machine and branch, by name."""
        return self.metric.name, self.label, self.machine.name, self.branch

    @property
    def changes(self) -> list[Change]:
        """Every change of level that is larger than the threshold and the scatter around both
        levels, oldest first."""
        certain = [self._change(each) for each in self._moves() if self.answers.get(each)]
        return [change for change in certain if change.exceeds_scatter]

    def _moves(self) -> Iterator[Question]:
        """Where the series may have changed, oldest first."""
        for number, level in enumerate(self.levels):
            if level.end is not None:
                yield "drift", number
            if number + 1 < len(self.levels):
                yield "next", number

    def _change(self, move: Question) -> Change:
        """From one end of a level that drifts to the other, or from a level to the next."""
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
        """What the newest level is worse by than the best one, whole, if it is: one change, or
        none.

        It may have come in several steps, or drifted: many small ones together may exceed the
        threshold. A benchmark whose direction is not known has none: nobody can say.
        """
        direction = self.metric.direction
        if not (self.levels and direction and self.answers.get(("lasting", 0))):
            return []
        number, at = best_level(self.levels, direction)
        best = self.levels[number]
        newest = self.levels[-1]
        # a drift counts from where the best value is
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


def best_level(levels: Sequence[Level], direction: str) -> tuple[int, float]:
    """The best level of a series, and at which end of it, by a direction; of equal ones the
    newest."""
    ends = [
        (value, number, at)
        for number, level in enumerate(levels)
        for at, value in zip((BEGIN, END)[: len(level.ends)], level.ends, strict=True)
    ]
    sign = 1 if direction == "higher" else -1
    _, number, at = max(ends, key=lambda end: (sign * end[0], end[1], end[2]))
    return number, at


@dataclass(frozen=True)
class Shift:
    """A change of a series, certain or suspected.

    also: other metrics that changed with it, since they follow from the same timing.
    """

    series: MeasuredSeries
    change: Change
    also: tuple[str, ...] = ()

    @property
    def rank(self) -> tuple[Any, ...]:
        """For sorting: the newest first, then the largest."""
        series = self.series
        change = self.change
        return (
            -change.first,
            -change.size,
            series.metric.title,
            series.label,
            _where(series),
        )


def find_shifts(
    history: History, series: Sequence[MeasuredSeries], gaps: Sequence[Gaps] = ()
) -> tuple[dict[str, list[Shift]], Counter[str]]:
    """Open regressions, improvements that lasted, and suspected ones of both, each in the order of
    pages.

    Also how many series nothing is suspected of, see `find_suspected`.
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
    kinds = {
        "open regression": worse,
        "suspected regression": [
            shift for shift in suspected if shift.change.verdict == "worse"
        ],
        "improvement": better,
        "suspected improvement": [
            shift for shift in suspected if shift.change.verdict == "better"
        ],
    }
    return {
        kind: sorted(one_of_each_timing(found), key=operator.attrgetter("rank"))
        for kind, found in kinds.items()
    }, left_out


def one_of_each_timing(shifts: Iterable[Shift]) -> list[Shift]:
    """Of the metrics of one timing (time, rate, bandwidth), which change together, one, which names
    the others: the time, if it is among them."""
    found: dict[object, list[Shift]] = {}
    times_first = sorted(shifts, key=lambda shift: shift.series.metric.unit != "s")
    for number, shift in enumerate(times_first):
        found.setdefault(_timing(shift) or number, []).append(shift)
    return [
        replace(first, also=tuple(each.series.metric.metric for each in others))
        for first, *others in found.values()
    ]


def _timing(shift: Shift) -> object:
    """The same for all metrics of one timing that changed between the same commits; None where no
    timing is known."""
    series = shift.series
    change = shift.change
    line = series.metric.line(series.label, series.machine.name, series.branch)
    sides = {at.revision: each for at, each in line if each}
    timings = [each and each.timing for each in map(sides.get, (change.last, change.first))]
    if None in timings:
        return None
    signatures = [round(timing, SIGNATURE_DECIMALS) for timing in timings if timing]
    return (series.metric.benchmark.name, *series.place[1:], change.last, *signatures)


def is_own(history: History, series: MeasuredSeries, change: Change) -> bool:
    """Whether a change is of the series' own branch: what another took over from the first is said
    there."""
    return not series.branch or change.first not in history.own


def find_suspected(
    history: History, known: Container[tuple[str, str, str, str]], gaps: Sequence[Gaps] = ()
) -> tuple[list[Shift], Counter[str]]:
    """Newest values that differ from what was usual by more than SUSPECTED and than runs and cards
    explain.

    Each is one reading, which the next run may confirm or not. Usual is the median of the USUAL
    readings before, or of at least ENOUGH_WITH_INTERVAL: of two readings nothing tells which of
    them stands out. A series that is no longer measured has no next run. Also returns how many
    series are left out as "old" or "young" for these two reasons, and as "unclear" because the two
    values are not compared: a card that throttled.

    known: `MeasuredSeries.place` of what is more than suspected.
    """
    machines = {machine.name: machine for machine in history.machines}
    of_machine = {gap.name: gap for gap in gaps}
    asked: list[tuple[Values, Values, str]] = []
    shifts: list[Shift] = []
    left_out: Counter[str] = Counter()
    for metric in history.measured:
        for label, name, branch in places_of(metric) if metric.direction else ():
            measured = (
                outcome
                for outcome, reading in reversed(metric.judged(label, name, branch))
                if reading
            )
            recent = list(itertools.islice(measured, USUAL + 1))
            series = MeasuredSeries(metric, label, machines[name], branch=branch)
            if (
                not recent
                or series.place in known
                or (branch and recent[0].revision in history.own)
            ):
                continue
            gap = of_machine.get(name)
            if gap:
                dropped = [
                    point for point, *_ in gap.dropped.get(metric.benchmark.heading, ())
                ]
            else:
                dropped = []
            gone = (gap and gap.stale) or label in dropped
            young = len(recent) <= ENOUGH_WITH_INTERVAL
            if gone or young:
                left_out["old" if gone else "young"] += 1
                continue
            newest, *before = (outcome.readings for outcome in recent)
            usual = sorted(before, key=lambda readings: readings[metric.metric].value)[
                len(before) // 2
            ]
            old = usual[metric.metric].value
            new = newest[metric.metric].value
            asked.append((usual, newest, metric.metric))
            verdict = _verdict(old, new, metric.direction)
            shifts.append(
                Shift(
                    series,
                    Change(recent[1].revision, recent[0].revision, old, new, verdict),
                )
            )
    compared = compare_values(asked)
    left_out["unclear"] = sum(
        bool(why_not_judged(old[name], new[name]))
        for old, new, name in asked
        if old[name].value != new[name].value
    )
    left_out = +left_out
    chances = iter(correct([each.p for each in compared if each.p is not None]))
    suspected = []
    for shift, found in zip(shifts, compared, strict=True):
        if found.p is None or next(chances) >= SUSPICION_RATE:
            continue
        if found.ratio and abs(found.ratio - 1) > SUSPECTED:
            bound = found.undirected.full_wording(shift.series.metric.unit)
            suspected.append(replace(shift, change=replace(shift.change, bound=bound)))
    return suspected, left_out


def places_of(metric: TrackedMetric) -> Iterator[tuple[str, str, str]]:
    """Point, machine and branch of each line of a metric; the branch "" for the first."""
    index = metric.benchmark.index
    for branch in index.branches:
        for label, machine in index.lines(branch):
            yield label, machine, branch


#: What is asked about the levels of a series: whether a level and the next differ, whether a level
#: drifts, and whether the newest differs from the best; the number of the level.
Question = tuple[Literal["next", "drift", "lasting"], int]


def find_changes(history: History) -> list[MeasuredSeries]:
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
                found.append(
                    ask(
                        MeasuredSeries(metric, label, machines[name], branch=branch),
                        readings,
                    )
                )
    chances = correct([each.p for _, asked in found for each in asked.values()])
    certain = iter([chance < ERROR_RATE for chance in chances])
    return [
        replace(series, answers={question: next(certain) for question in asked})
        for series, asked in found
    ]


def ask(
    series: MeasuredSeries, readings: Readings
) -> tuple[MeasuredSeries, dict[Question, Contrast]]:
    """The series with its levels, and the difference that each question is about."""
    levels = readings.find_levels()
    asked = _questions(levels, series.metric.direction)
    told = replace(
        series,
        levels=levels.levels,
        bounds={question: levels.bound(each) for question, each in asked.items()},
        judged=len(readings.readings),
        left_out=readings.left_out,
    )
    return told, asked


def _questions(levels: Levels, direction: str) -> dict[Question, Contrast]:
    """The difference that each question is about; a series of one level asks once, in vain."""
    asked: dict[Question, Contrast] = {
        ("next", number): each for number, each in enumerate(levels.steps())
    }
    for number, level in enumerate(levels.levels):
        if level.end is not None:
            asked["drift", number] = levels.contrast((number, BEGIN), (number, END))
    if levels.levels:
        newest = len(levels.levels) - 1
        asked["lasting", 0] = levels.contrast(
            best_level(levels.levels, direction), (newest, END)
        )
    return asked


def _verdict(old: float, new: float, direction: str) -> str:
    if not direction or old == new:
        return ""
    return "worse" if (new > old) == (direction == "lower") else "better"


def _where(series: MeasuredSeries) -> str:
    machine = f"{series.machine.hardware.label} ({series.machine.name})"
    return f"{machine}, branch {series.branch}" if series.branch else machine


def show_shift(shift: Shift, history: History) -> dict[str, Any]:
    """A change as pages and the feed word it.

    commits: that of the change; the last before and the first after it where others lie between
    them.  identity: the same whatever the numbers.
    """
    series = shift.series
    change = shift.change
    metric = series.metric
    machine = series.machine.name
    old, new = (
        history.commits[history.columns[revision]]
        for revision in (change.last, change.first)
    )
    commits = [new] if change.first == change.last + 1 else [old, new]
    texts = metric.benchmark.points[series.label]
    selection = {"machine": machine, **({"branch": series.branch} if series.branch else {})}
    selection |= {f"p-{name}": text for name, text in texts.items()}
    date = history.dates[history.columns[change.first]]
    line = {
        o.revision: o
        for o, _ in metric.line(series.label, machine, series.branch)
        if o.file
    }
    sides = [line[revision] for revision in (change.last, change.first) if revision in line]
    records = list(map(stored_record, sides))
    return {
        "title": metric.title,
        "point": series.label,
        "where": _where(series),
        "machine": machine,
        "date": date,
        "day": day(date),
        "commits": commits,
        "range": "..".join(commit[:8] for commit in commits),
        "before": formatting.quantity(change.before, metric.unit),
        "after": formatting.quantity(change.after, metric.unit),
        "also": ", ".join(shift.also),
        "change": change.wording,
        "bound": change.bound,
        "steps": describe_steps(change, history),
        "verdict": change.verdict,
        "differences": "; ".join(map(str, differences(*records)))
        if len(records) == 2
        else "",
        "link": point_link(metric.benchmark.name, metric.metric, series.label),
        "graph": graph_link(metric.name, {**selection, "commits": "-".join(commits)}),
        "identity": [
            metric.name,
            series.label,
            machine,
            old,
            new,
            *([series.branch] if series.branch else []),
        ],
    }


def describe_steps(change: Change, history: History) -> str:
    """How a change came, where it is not one step: `in 2 steps: 1.10× (+10 %) at 1a2b3c4d, 1.05×
    (+5.0 %) at 5e6f7a8b`."""
    if change.drifts:
        return "a steady drift"
    if not change.steps:
        return ""
    told = [
        f"{step.wording} {'up to' if step.drifts else 'at'}"
        f" {history.commits[history.columns[step.first]][:8]}"
        for step in sorted(change.steps, key=operator.attrgetter("size"), reverse=True)[
            :MOST_STEPS
        ]
    ]
    more = ", …" if len(change.steps) > MOST_STEPS else ""
    return f"in {len(change.steps)} steps, the largest: {', '.join(told)}{more}"


@dataclass(frozen=True)
class Judged:
    """How many values of a machine are judged. left_out: why others are not → how many.  last: its
    newest commit's date, ms since 1970.
    """

    machine: str
    judged: int
    left_out: Counter[str]
    last: float

    @property
    def wording(self) -> str:
        """`11 of 16 values not judged: one side throttled`, "" where all are."""
        if not self.left_out:
            return ""
        reasons = ", ".join(
            f"{count:,} {reason}" for reason, count in self.left_out.most_common()
        )
        missing = self.left_out.total()
        return f"{missing:,} of {missing + self.judged:,} values not judged: {reasons}"


def count_judged(history: History, series: Iterable[MeasuredSeries]) -> list[Judged]:
    """How many values each machine's series are judged by, in the order of machines' names; of the
    first branch."""
    found: dict[str, tuple[Counter[str], Counter[str]]] = {}
    for each in series:
        if not each.branch:
            judged, left_out = found.setdefault(each.machine.name, (Counter(), Counter()))
            judged[""] += each.judged
            left_out.update(each.left_out)
    for name, count in _by_date(history).items():
        found.setdefault(name, (Counter(), Counter()))[1][BY_DATE] += count
    seen = history.seen
    dates = {name: history.dates[max(columns)] for name, columns in seen.items() if columns}
    return [
        Judged(name, judged.total(), left_out, dates.get(name, 0.0))
        for name, (judged, left_out) in sorted(found.items())
    ]


def _by_date(history: History) -> Counter[str]:
    """Machine → the values that no series is judged by because only their dates place them."""
    found: Counter[str] = Counter()
    for metric in history.measured:
        for label, machine in metric.benchmark.index.lines():
            line = metric.line(label, machine)
            judged = metric.judged(label, machine)
            found[machine] += sum(bool(each) for _, each in line) - sum(
                bool(each) for _, each in judged
            )
    return +found


def write_feed(
    path: Path,
    shown: Sequence[Mapping[str, Any]],
    project: str,
    gaps: Iterable[Gaps] = (),
    judged: Iterable[Judged] = (),
) -> None:
    """The Atom feed, by asv's writer. XML has no way to write most control characters: they appear
    as escapes.

    judged: a machine of which values are not judged is an entry of its newest commit's day. shown:
    see `show_shift`.  gaps: a machine that is stale, and each benchmark of which it has ceased to
    measure points, is an entry of the day of the last measurement; a machine with failed points one
    of its newest commit's day.
    """
    from asv import feed

    entries = []
    for each in shown:
        title = f"{each['change']}: {each['title']} {each['point']}".strip()
        plain = {
            name: printable(value) if isinstance(value, str) else value
            for name, value in each.items()
        }
        text = fill("feed_change.html", **plain)
        identity = each["identity"]
        entries.append(
            (f"{title} on {each['where']}", each["link"], each["date"], identity, text)
        )
    for gap in gaps:
        entries += [(*entry, "") for entry in _gap_entries(gap)]
    for count in judged:
        if count.left_out:
            title = f"{count.machine}: {count.wording}"
            identity = ["not judged", count.machine]
            entries.append((title, "changes.html", count.last, identity, ""))
    written = []
    for title, link, date, identity, text in entries:
        title = printable(title)
        link = printable(link)
        when = datetime.datetime.fromtimestamp(date / 1000, datetime.UTC)
        text = printable(text) or f'<a href="{link}">{escape(title)}</a>'
        told = list(map(printable, identity))
        written.append(
            feed.FeedEntry(title, when.replace(tzinfo=None), link, text, told, when)
        )
    project = printable(project)
    title = f"{project} performance regressions"
    feed.write_atom(
        str(path), written, title=title, author=project, address=f"{project}.asv"
    )


def _gap_entries(gap: Gaps) -> Iterator[tuple[str, str, float, list[str]]]:
    """Title, address, date and identity of what is missing on a machine."""
    link = f"evidence.html#{gap.anchor}"
    if gap.stale:
        title = f"{gap.name}: not measured since {day(gap.last)}"
        yield title, link, gap.last, ["missing", gap.name, ""]
    for benchmark, points in gap.dropped.items():
        last = max(date for _, _, date, _ in points)
        what = f"{formatting.counted(len(points), 'point')} of {benchmark} no longer"
        title = f"{gap.name}: {what} measured since {day(last)}"
        yield title, link, last, ["missing", gap.name, benchmark]
    if gap.failed:
        title = f"{gap.name}: {formatting.counted(gap.failed, 'point')} failed"
        yield title, link, gap.last, ["failed", gap.name]
