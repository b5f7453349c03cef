"""Changes of level over the history, and what got worse and did not recover: our page and the Atom feed.

asv's solver, as a library, fits a piecewise constant level to each series. asv's own search for regressions in these
levels takes every rise for one; here the direction of the metric decides, and two levels differ only where the variance
between runs and cards does not explain it, corrected for how many levels of all series are compared.
"""

from __future__ import annotations

import datetime
import functools
import itertools
import math
import operator
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hpml_plugins.analysis.measured import EXACT, MeasuredValue, Values
from hpml_plugins.analysis.variance import UNKNOWN, UNKNOWN_FREEDOM, p_value
from hpml_plugins.analysis.verdicts import ERROR_RATE, compare_values, correct, why_not_judged  # fmt: skip
from hpml_plugins.model import formatting
from hpml_plugins.model.differences import differences
from hpml_plugins.report.reading import History, Machine, TrackedMetric, stored_record
from hpml_plugins.report.site.nodes import Gaps
from hpml_plugins.report.site.page import day, graph_link, history_link, write_page
from hpml_plugins.terminal import printable

#: Smallest part of the level that counts.
THRESHOLD = 0.05
#: Readings that a level needs on either side of a change: two with intervals, or three. A single run that stands out
#: has often been a busy machine; the next one tells.
ENOUGH_WITH_INTERVAL, ENOUGH = 2, 3
#: What a jump costs, in units of the noise times ln(readings): a reading that stands alone makes a level of its own
#: where it is 6 ln(n) times the noise off, two where they are 3 ln(n).
PENALTY = 3.0
#: Part of the value that counts as noise where neighbours do not differ.
LEAST_NOISE = 0.001
#: How many readings before the newest say what was usual.
USUAL = 5
#: Largest share of what the page suspects that may be chance, corrected for all series.
SUSPICION_RATE = 0.2
#: How many of each kind the page lists, newest first.
LISTED = 500


class Level(NamedTuple):
    """A part of a series. first, last: revisions.  scatter: mean deviation from the value."""

    first: int
    last: int
    value: float
    scatter: float


@dataclass(frozen=True)
class Change:
    """A change of level between two revisions.

    last: the last revision of the old level.  first: the first known one of the new.  before, after: the levels.
    verdict: "better", "worse", or "" where the metric has no direction.
    """

    last: int
    first: int
    before: float
    after: float
    verdict: str

    @property
    def wording(self) -> str:
        """`12 % higher`, `20 % lower`, `higher` where there is no share."""
        word = "higher" if self.after > self.before else "lower"
        return f"{abs(self.after / self.before - 1) * 100:.3g} % {word}" if self.before > 0 else word

    @property
    def size(self) -> float:
        """For sorting: how large the change is, whichever way."""
        if self.before > 0 and self.after > 0:
            return abs(math.log(self.after / self.before))
        return abs(self.after - self.before)


@dataclass(frozen=True)
class Readings:
    """One series: revisions, ascending, with a reading each."""

    revisions: np.ndarray
    readings: Sequence[MeasuredValue]

    @classmethod
    def of(cls, line: Sequence[tuple[int, MeasuredValue]]) -> Readings:
        """Of (revision, reading), ascending: undisturbed ones that may be compared with the newest of them."""
        quiet = [each for each in line if not each[1].is_busy]
        kept = [each for each in quiet if not why_not_judged(each[1], quiet[-1][1])]
        return cls(np.array([revision for revision, _ in kept]), [reading for _, reading in kept])

    def p_value(self, old: Level, new: Level) -> float:
        """How probable a difference as large as that between two levels is for equal code.

        A t-test of the logarithms whose variance is the prior of the point, moderated by the scatter of the readings
        around both levels (Smyth 2004; see `hpml_plugins.analysis.variance`). On several cards each card is one reading
        of a level. 0 for what was counted; also for values not above 0, of which nothing is known but the scatter.
        """
        ends = (np.searchsorted(self.revisions, [level.first, level.last + 1]) for level in (old, new))
        inside = [self.readings[first:end] for first, end in ends]
        both = [*inside[0], *inside[1]]
        if all(reading.spread == EXACT for reading in both) or min(reading.value for reading in both) <= 0:
            return 0.0
        spreads = [reading.spread for reading in both if reading.spread and reading.spread != EXACT]
        several = len({reading.card for reading in both}) > 1
        priors = [spread[2:] if several else spread[:2] for spread in spreads] or [(UNKNOWN**2, UNKNOWN_FREEDOM)]
        prior, prior_freedom = max(priors)
        levels = [_logarithms(readings, several) for readings in inside]
        squares = sum(float(np.sum((level - level.mean()) ** 2)) for level in levels)
        freedom = prior_freedom + sum(len(level) - 1 for level in levels)
        variance = (prior_freedom * prior + squares) / freedom * sum(1 / len(level) for level in levels)
        return p_value(float(levels[1].mean() - levels[0].mean()), variance, freedom)

    def levels(self) -> list[Level]:
        """The levels of ENOUGH readings that asv's solver fits (least absolute deviations, a penalty for each jump).

        asv's `detect_steps` solves for about ten penalties and takes the one of the best fit: 14 ms for 400 readings,
        where this takes 2. The penalty here is a multiple of the noise, which the differences between neighbours tell:
        few of them are steps.
        """
        from asv.step_detect import solve_potts_approx

        values = np.array([reading.value for reading in self.readings], float)
        estimates = [reading.estimate for reading in self.readings]
        low, high = np.array([(each.low, each.high) for each in estimates], float).T
        known = np.isfinite(low)
        # Weighed as asv does: by the intervals, and 1 without one.
        weights = np.divide(2, high - low, out=np.full(len(low), np.nan), where=high > low)
        if (finite := weights[np.isfinite(weights)]).size:
            weights /= np.median(finite)
        weights = np.nan_to_num(weights, nan=1.0, posinf=1.0)
        noise = max(np.median(np.abs(np.diff(values))), LEAST_NOISE * abs(float(np.median(values))))
        penalty = PENALTY * float(noise) * math.log(len(values))
        at = self.revisions.tolist()
        found, left = [], 0
        fitted = solve_potts_approx(values.tolist(), weights.tolist(), gamma=penalty)
        for right, level, distance in zip(*fitted, strict=True):
            if known[left:right].sum() >= ENOUGH_WITH_INTERVAL or right - left >= ENOUGH:
                found.append(Level(at[left], at[right - 1], level, abs(distance) / (right - left)))
            left = right
        return found


def _logarithms(readings: Sequence[MeasuredValue], by_card: bool) -> np.ndarray:
    """The logarithm of each reading; by_card: the mean of each card's."""
    found: dict[object, list[float]] = {}
    for number, reading in enumerate(readings):
        found.setdefault(reading.card if by_card else number, []).append(math.log(reading.value))
    return np.array([sum(each) / len(each) for each in found.values()])


@dataclass(frozen=True)
class MeasuredSeries:
    """One point of a metric on one machine, and its levels.

    label: the point in words.  branch: of whose line, "" for the first.  certain: whether each level and the next
    differ by more than runs and cards do, of all series that are asked at once.
    """

    metric: TrackedMetric
    label: str
    machine: Machine
    levels: Sequence[Level] = ()
    certain: list[bool] = field(default_factory=list)
    branch: str = ""

    @property
    def place(self) -> tuple[str, str, str, str]:
        """Metric, point, machine and branch, by name."""
        return self.metric.name, self.label, self.machine.name, self.branch

    @property
    def changes(self) -> list[Change]:
        """Every change of level that is larger than the threshold and the scatter around both levels, oldest first."""
        return [
            Change(old.last, new.first, old.value, new.value, _verdict(old.value, new.value, self.metric.direction))
            for (old, new), certain in zip(itertools.pairwise(self.levels), self.certain, strict=False)
            if certain and _exceeds(old, new)
        ]

    @functools.cached_property
    def open(self) -> list[Change]:
        """The changes for the worse that no later level made good, oldest first.

        Each is against the best level since, so that small ones together may exceed the threshold. A benchmark whose
        direction is not known has none: nobody can say.
        """
        if not self.levels:
            return []
        found: list[Change] = []
        direction = self.metric.direction
        since = best = self.levels[-1]
        for (old, new), certain in reversed(list(zip(itertools.pairwise(self.levels), self.certain, strict=False))):
            if certain and _verdict(old.value, since.value, direction) == "worse" and _exceeds(old, since):
                found.append(Change(old.last, new.first, old.value, best.value, "worse"))
                since = old
            best = (max if direction == "higher" else min)(best, old, key=operator.attrgetter("value"))
        return found[::-1]


@dataclass(frozen=True)
class Shift:
    """A change of a series, certain or suspected."""

    series: MeasuredSeries
    change: Change

    @property
    def rank(self) -> tuple[Any, ...]:
        """For sorting: the newest first, then the largest."""
        series, change = self.series, self.change
        return -change.first, -change.size, series.metric.title, series.label, _where(series)


def find_shifts(
    history: History, series: Sequence[MeasuredSeries], gaps: Sequence[Gaps] = ()
) -> tuple[dict[str, list[Shift]], Counter[str]]:
    """Open regressions, improvements that lasted, and suspected ones of both, each in the order of pages.

    Also how many series nothing is suspected of, see `find_suspected`.
    """
    worse = [Shift(each, change) for each in series for change in each.open if is_own(history, each, change)]
    last = [Shift(each, change) for each in series for change in each.changes[-1:] if is_own(history, each, change)]
    better = [shift for shift in last if shift.change.verdict == "better"]
    suspected, left_out = find_suspected(history, {shift.series.place for shift in (*worse, *better)}, gaps)
    kinds = {
        "open regression": worse,
        "suspected regression": [shift for shift in suspected if shift.change.verdict == "worse"],
        "improvement": better,
        "suspected improvement": [shift for shift in suspected if shift.change.verdict == "better"],
    }
    return {kind: sorted(found, key=operator.attrgetter("rank")) for kind, found in kinds.items()}, left_out


def is_own(history: History, series: MeasuredSeries, change: Change) -> bool:
    """Whether a change is of the series' own branch: what another took over from the first is said there."""
    return not series.branch or change.first not in history.own


def find_suspected(
    history: History, known: Container[tuple[str, str, str, str]], gaps: Sequence[Gaps] = ()
) -> tuple[list[Shift], Counter[str]]:
    """Newest values that differ from what was usual by more than THRESHOLD and than runs and cards explain.

    Each is one reading, which the next run may confirm or not. Usual is the median of the USUAL readings before, or of
    at least ENOUGH_WITH_INTERVAL: of two readings nothing tells which of them stands out. A series that is no longer
    measured has no next run. Also returns how many series are left out as "old" or "young" for these two reasons.

    known: `MeasuredSeries.place` of what is more than suspected.
    """
    machines, of_machine = {machine.name: machine for machine in history.machines}, {gap.name: gap for gap in gaps}
    asked: list[tuple[Values, Values, str]] = []
    shifts: list[Shift] = []
    left_out: Counter[str] = Counter()
    for metric in history.measured:
        for label, name, branch in places_of(metric) if metric.direction else ():
            measured = (outcome for outcome, reading in reversed(metric.judged(label, name, branch)) if reading)
            recent = list(itertools.islice(measured, USUAL + 1))
            series = MeasuredSeries(metric, label, machines[name], branch=branch)
            if not recent or series.place in known or (branch and recent[0].revision in history.own):
                continue
            gap = of_machine.get(name)
            dropped = [point for point, *_ in gap.dropped.get(metric.benchmark.heading, ())] if gap else []
            gone, young = (gap and gap.stale) or label in dropped, len(recent) <= ENOUGH_WITH_INTERVAL
            if gone or young:
                left_out["old" if gone else "young"] += 1
                continue
            newest, *before = (outcome.readings for outcome in recent)
            usual = sorted(before, key=lambda readings: readings[metric.metric].value)[len(before) // 2]
            old, new = usual[metric.metric].value, newest[metric.metric].value
            asked.append((usual, newest, metric.metric))
            verdict = _verdict(old, new, metric.direction)
            shifts.append(Shift(series, Change(recent[1].revision, recent[0].revision, old, new, verdict)))
    compared = compare_values(asked)
    chances = iter(correct([each.p for each in compared if each.p is not None]))
    suspected = [
        shift
        for shift, each in zip(shifts, compared, strict=True)
        if each.p is not None and next(chances) < SUSPICION_RATE and each.ratio and abs(each.ratio - 1) > THRESHOLD
    ]
    return suspected, left_out


def places_of(metric: TrackedMetric) -> Iterator[tuple[str, str, str]]:
    """Point, machine and branch of each line of a metric; the branch "" for the first."""
    benchmark = metric.benchmark
    for branch, lines in (("", benchmark.lines), *benchmark.branches.items()):
        for label, machine in lines:
            yield label, machine, branch


def find_changes(history: History) -> list[MeasuredSeries]:
    """Every series with enough readings for a verdict, with its levels."""
    found: list[MeasuredSeries] = []
    asked: list[list[float]] = []
    machines = {machine.name: machine for machine in history.machines}
    for metric in history.measured:
        for label, name, branch in places_of(metric):
            readings = Readings.of([(at.revision, each) for at, each in metric.judged(label, name, branch) if each])
            if len(readings.readings) >= 2 * ENOUGH_WITH_INTERVAL:
                levels = readings.levels()
                found.append(MeasuredSeries(metric, label, machines[name], levels, branch=branch))
                # a series of one level asks once, in vain
                asked.append(list(itertools.starmap(readings.p_value, itertools.pairwise(levels))) or [1.0])
    certain = (p < ERROR_RATE for p in correct(list(itertools.chain(*asked))))
    for series, p_values in zip(found, asked, strict=True):
        series.certain.extend(itertools.islice(certain, len(p_values)))
    return found


def _verdict(old: float, new: float, direction: str) -> str:
    if not direction or old == new:
        return ""
    return "worse" if (new > old) == (direction == "lower") else "better"


def _exceeds(old: Level, new: Level) -> bool:
    """Whether two levels differ by more than the threshold and the scatter around each."""
    return abs(new.value - old.value) > max(THRESHOLD * abs(old.value), old.scatter, new.scatter)


def write_regressions(
    shifts: Mapping[str, Sequence[Shift]], left_out: Mapping[str, int], looked: int, history: History,
    gaps: Sequence[Gaps], html_dir: Path, project: str, commit_url: str,
) -> None:  # fmt: skip
    """Write our page, with changes of every kind, and the Atom feed of the open regressions and of what is missing.

    left_out: see `find_suspected`.  looked: how many series were looked at.  commit_url: see `page.commit_links`.
    """
    shown = {kind: [show_shift(each, history) for each in found[:LISTED]] for kind, found in shifts.items()}
    write_feed(html_dir / "regressions.xml", shown["open regression"], project, gaps)
    totals = {kind: len(found) for kind, found in shifts.items()}
    write_page(
        html_dir, "regressions.html", project=project, shown=shown, totals=totals, looked=looked,
        left_out=left_out, commit_url=commit_url, outside=history.left_out,
    )  # fmt: skip


def _where(series: MeasuredSeries) -> str:
    machine = f"{series.machine.hardware.label} ({series.machine.name})"
    return f"{machine}, branch {series.branch}" if series.branch else machine


def show_shift(shift: Shift, history: History) -> dict[str, Any]:
    """A change as pages and the feed word it.

    commits: that of the change; the last before and the first after it where others lie between them.  identity: the
    same whatever the numbers.
    """
    series, change = shift.series, shift.change
    metric, machine = series.metric, series.machine.name
    old, new = (history.commits[history.columns[revision]] for revision in (change.last, change.first))
    commits = [new] if change.first == change.last + 1 else [old, new]
    texts = metric.benchmark.points[series.label]
    selection = {"machine": machine, **({"branch": series.branch} if series.branch else {})}
    selection |= {f"p-{name}": text for name, text in texts.items()}
    date = history.dates[history.columns[change.first]]
    line = {o.revision: o for o, _ in metric.line(series.label, machine, series.branch) if o.file}
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
        "change": change.wording,
        "verdict": change.verdict,
        "differences": "; ".join(map(str, differences(*records))) if len(records) == 2 else "",
        "link": history_link(metric.name, series.label),
        "graph": graph_link(metric.name, {**selection, "commits": "-".join(commits)}),
        "identity": [metric.name, series.label, machine, old, new, *([series.branch] if series.branch else [])],
    }


def write_feed(path: Path, shown: Sequence[Mapping[str, Any]], project: str, gaps: Iterable[Gaps] = ()) -> None:
    """The Atom feed, by asv's writer. XML has no way to write most control characters: they appear as escapes.

    shown: see `show_shift`.  gaps: a machine that is stale, and each benchmark of which it has ceased to measure
    points, is an entry of the day of the last measurement; a machine with failed points one of its newest commit's day.
    """
    from asv import feed

    def entries() -> Iterator[Any]:
        for each in shown:
            texts = {name: printable(text) for name, text in each.items() if isinstance(text, str)}
            title = "{change}: {title} {point}".format_map(texts).strip() + f" on {texts['where']}"
            words = {name: escape(text) for name, text in texts.items()}
            text = (
                '<a href="{link}">{title} {point}</a> on {where}: {before} before, {after} after ({change}), '
                "in {range} of {day}.".format_map(words)
            )
            if texts["differences"]:
                text += " What else differs: {differences}.".format_map(words)
            yield entry(title, texts["link"], each["date"], list(map(printable, each["identity"])), text)
        for gap in gaps:
            machine, link = printable(gap.name), f"nodes.html#{gap.anchor}"
            since = {"": gap.last} if gap.stale else {}
            since |= {of: max(date for _, _, date, _ in points) for of, points in gap.dropped.items()}
            for benchmark, date in since.items():
                number = len(gap.dropped.get(benchmark, ()))
                what = f"{formatting.counted(number, 'point')} of {printable(benchmark)} no longer" if number else "not"
                title = f"{machine}: {what} measured since {day(date)}"
                yield entry(title, link, date, ["missing", machine, printable(benchmark)])
            if gap.failed:
                title = f"{machine}: {formatting.counted(gap.failed, 'point')} failed"
                yield entry(title, link, gap.last, ["failed", machine])

    def entry(title: str, link: str, date: float, identity: list[str], text: str = "") -> Any:
        when = datetime.datetime.fromtimestamp(date / 1000, datetime.UTC)
        text = text or f'<a href="{link}">{escape(title)}</a>'
        return feed.FeedEntry(title, when.replace(tzinfo=None), link, text, identity, when)

    project = printable(project)
    title = f"{project} performance regressions"
    feed.write_atom(str(path), list(entries()), title=title, author=project, address=f"{project}.asv")
