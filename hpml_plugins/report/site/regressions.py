"""Changes of level over the history, and what got worse and did not recover: our page, asv's page and the Atom feed.

asv's step detection, as a library, fits a piecewise constant level to each series. Its own search for regressions in
these levels takes every rise for one. Here it is given times as they are and throughputs mirrored.
"""

from __future__ import annotations

import bisect
import datetime
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from hpml_plugins.model import formatting
from hpml_plugins.report.reading import OK, History, Machine, TrackedMetric
from hpml_plugins.report.site.history import LineKey
from hpml_plugins.report.site.page import day, graph_link, history_link, write_page, write_static

#: asv's: first revision, last revision + 1, level, minimum, mean deviation from the level.
Step = tuple[int, int, float, float, float]
#: What asv.conf.json allows of a series: (entry, branch, steps) → the steps to look at and the threshold, or None.
Limit = Callable[[str, str, list[Step]], "tuple[list[Step], float] | None"]
#: (asv's name, machine, branch) → the path of asv's graph, and its parameters.
Graphs = Mapping[tuple[str, str, str], tuple[str, Mapping[str, Any]]]

#: Smallest part of the level that counts, where asv.conf.json says nothing (`regressions_thresholds`).
THRESHOLD = 0.05
#: Readings that a level needs on either side of a change: two with intervals, or three. A single run that stands out
#: has often been a busy machine; the next one tells.
ENOUGH_WITH_INTERVAL, ENOUGH = 2, 3
#: What a jump costs, in units of the noise times ln(readings): a reading that stands alone makes a level of its own
#: where it is 6 ln(n) times the noise off, two where they are 3 ln(n).
PENALTY = 3.0
#: Part of the value that counts as noise where neighbours do not differ.
LEAST_NOISE = 0.001
#: How many our page lists, newest first; the JSON has all.
LISTED = 500


@dataclass(frozen=True)
class Change:
    """A change of level between two revisions.

    last: the last revision of the old level.  first: the first known one of the new.  before, after: the levels.
    verdict: "better", "worse", or "" where the benchmark's direction is not known.
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
class Regressed:
    """A series that is worse now than it was. changes: those for the worse that still hold, oldest first."""

    latest: float
    best: float
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class Readings:
    """One series: revisions, ascending, with a value each and its interval, NaN where there is none."""

    revisions: np.ndarray
    values: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def has_enough(self, first: int, last: int) -> bool:
        """Whether revisions first ≤ r < last have as many readings as a level needs."""
        inside = self._inside(first, last)
        with_interval = int(np.isfinite(self.low[inside]).sum())
        return with_interval >= ENOUGH_WITH_INTERVAL or len(self.revisions[inside]) >= ENOUGH

    def interval(self, first: int, last: int) -> tuple[float, float] | None:
        """The median of the lower and of the upper bounds of revisions first ≤ r < last; None where there are none."""
        inside = self._inside(first, last)
        low, high = (bounds[inside][np.isfinite(bounds[inside])] for bounds in (self.low, self.high))
        return (float(np.median(low)), float(np.median(high))) if len(low) else None

    def steps(self) -> list[Step]:
        """The levels that asv's solver fits (least absolute deviations, a penalty for each jump).

        asv's `detect_steps` solves for about ten penalties and takes the one of the best fit: 14 ms for 400 readings,
        where this takes 2. The penalty here is a multiple of the noise, which the differences between neighbours tell:
        few of them are steps.
        """
        from asv.step_detect import solve_potts_approx

        width = self.high - self.low
        weights = np.where(width > 0, 2 / np.where(width > 0, width, 1), np.nan)  # as asv weighs its readings
        typical = np.nanmedian(weights) if np.isfinite(weights).any() else 1.0
        weights = np.where(np.isfinite(weights), weights / typical, 1.0)
        noise = max(np.median(np.abs(np.diff(self.values))), LEAST_NOISE * abs(float(np.median(self.values))))
        penalty = PENALTY * float(noise) * math.log(len(self.values))
        values, at = self.values.tolist(), self.revisions.tolist()
        found, left = [], 0
        for right, level, distance in zip(*solve_potts_approx(values, weights.tolist(), gamma=penalty), strict=True):
            scatter = abs(distance) / (right - left)
            found.append((at[left], at[right - 1] + 1, level, min(values[left:right]), scatter))
            left = right
        return found

    def _inside(self, first: int, last: int) -> slice:
        start, end = np.searchsorted(self.revisions, (first, last))
        return slice(int(start), int(end))


@dataclass(frozen=True)
class MeasuredSeries:
    """One point of a metric on one machine and branch, with its changes of level. point: its place."""

    metric: TrackedMetric
    point: int
    machine: Machine
    branch: str
    regressed: Regressed | None
    changes: tuple[Change, ...]

    @property
    def label(self) -> str:
        """The point in words."""
        return self.metric.points.labels[self.point]

    @property
    def entry(self) -> str:
        """asv's name of the series."""
        return entry_name(self.metric, self.point)

    @property
    def where(self) -> str:
        """The hardware and the machine."""
        return f"{self.machine.hardware.label} ({self.machine.name})"


def entry_name(metric: TrackedMetric, point: int) -> str:
    """asv's name of one point of a benchmark."""
    texts = metric.points.texts[point]
    return f"{metric.name}({', '.join(texts.values())})" if texts else metric.name


def find_changes(history: History, branches: Mapping[str, Mapping[str, int]], limit: Limit) -> list[MeasuredSeries]:
    """Every series with enough readings for a verdict, with its changes.

    branches: name → commit → its place in the branch's first-parent history.  limit: what asv.conf.json says.
    """
    found = []
    for branch, commits in branches.items():
        columns = np.array([number for number, commit in enumerate(history.commits) if commit in commits], int)
        revisions = np.array([history.revisions[column] for column in columns], int)
        for name, lines in history.lines.items():
            metric = history.metrics[name]
            for row, machine in enumerate(history.machines):
                measured = lines.status[row, columns] == OK
                for point in np.flatnonzero(measured.sum(axis=0) >= 2 * ENOUGH_WITH_INTERVAL).tolist():
                    at = columns[measured[:, point]]
                    values, low, high = (each[row, at, point] for each in (lines.values, lines.low, lines.high))
                    readings = Readings(revisions[measured[:, point]], values, low, high)
                    limited = limit(entry_name(metric, point), branch, readings.steps())
                    steps, threshold = limited or ([], THRESHOLD)
                    regressed = find_regression(steps, metric.direction, readings, threshold)
                    changes = tuple(level_changes(steps, metric.direction, readings, threshold))
                    found.append(MeasuredSeries(metric, point, machine, branch, regressed, changes))
    return found


def level_changes(
    steps: Sequence[Step], direction: str, readings: Readings | None = None, threshold: float = THRESHOLD
) -> list[Change]:
    """Every change of level that is larger than the threshold, the scatter around both levels and their intervals."""
    found = []
    for old, new in itertools.pairwise(steps):
        if differs(old, new, readings, threshold):
            rises = new[2] > old[2]
            verdict = "" if not direction else "worse" if rises == (direction == "lower") else "better"
            found.append(Change(old[1] - 1, new[0], old[2], new[2], verdict))
    return found


def differs(old: Step, new: Step, readings: Readings | None, threshold: float) -> bool:
    """Whether two levels differ: by more than the threshold and their scatter, and interval against interval."""
    difference = abs(new[2] - old[2])
    if not difference > max(threshold * abs(old[2]), old[4], new[4]):
        return False
    if readings is None:
        return True
    if not (readings.has_enough(old[0], old[1]) and readings.has_enough(new[0], new[1])):
        return False
    before, after = readings.interval(old[0], old[1]), readings.interval(new[0], new[1])
    return before is None or after is None or before[1] < after[0] or after[1] < before[0]


def find_regression(
    steps: Sequence[Step], direction: str, readings: Readings | None = None, threshold: float = THRESHOLD
) -> Regressed | None:
    """What is worse now than at its best, and the changes that made it so; None where nothing is.

    A change that was made good again later is none. A benchmark whose direction is not known has none: nobody can say.
    """
    if direction not in ("lower", "higher") or len(steps) < 2:
        return None
    from asv.step_detect import detect_regressions

    by = "nothing" if direction == "lower" else "inverse" if all(step[2] > 0 for step in steps) else "sign"

    def original(value: float) -> float:
        return _mirror((0, 0, value, value, 0.0), by)[2]

    latest, best, jumps = detect_regressions([_mirror(step, by) for step in steps], threshold)
    kept = []
    for last, first, before, after in jumps or ():
        old = next(step for step in steps if step[0] <= last < step[1])
        new = next(step for step in steps if step[0] == first)
        if differs(old, new, readings, 0):  # the threshold has been applied, to the sum of several small steps
            kept.append(Change(last, first, original(before), original(after), "worse"))
    return Regressed(original(latest), original(best), tuple(kept)) if kept else None


def _mirror(step: Step, by: str) -> Step:
    """A level of which more is better as one of which less is, and back.

    by: "nothing"; "inverse", 1 / v, which keeps shares; "sign", −v, where a level is not above 0.
    """
    left, right, value, least, scatter = step
    if by == "inverse":
        return left, right, 1 / value, 1 / value, scatter / value**2
    return (left, right, -value, -least, scatter) if by == "sign" else step


def by_line(series: Sequence[MeasuredSeries]) -> dict[LineKey, tuple[Change, ...]]:
    """(asv's name, point, machine) → changes, for the page of the history."""
    return {(each.metric.name, each.label, each.machine.name): each.changes for each in series}


@dataclass(frozen=True)
class ListedRegression:
    """A regression as the page and the feed word it."""

    title: str
    point: str
    where: str
    day: str
    range: str
    before: str
    after: str
    change: str
    link: str
    graph: str
    date: float
    machine: str
    commits: tuple[str, str]
    name: str


def write_regressions(
    series: Sequence[MeasuredSeries], history: History, branches: Mapping[str, Mapping[str, int]],
    html_dir: Path, project: str,
) -> None:  # fmt: skip
    """Write our page and the Atom feed."""
    found = [(each, change) for each in series for change in (each.regressed.changes if each.regressed else ())]
    found.sort(key=lambda item: (-item[1].first, -item[1].size, item[0].metric.title, item[0].label, item[0].where))
    shown = [_show(each, change, history, branches) for each, change in found[:LISTED]]
    write_feed(html_dir / "regressions.xml", shown, project)
    write_static(html_dir, "lists.js")
    write_page(html_dir, "regressions.html", project=project, shown=shown, total=len(found), looked=len(series))


def asv_regressions(
    series: Sequence[MeasuredSeries], history: History, branches: Mapping[str, Mapping[str, int]], graphs: Graphs,
    declarations: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:  # fmt: skip
    """The content of asv's regressions.json: the same list for asv's page, of the series that asv has graphs of."""
    rows = []
    for each in series:
        graph = graphs.get((each.metric.name, each.machine.name, each.branch))
        index = asv_index(each.metric, each.point, declarations.get(each.metric.name, {}))
        if each.regressed is None or graph is None or index is None:
            continue
        path, params = graph
        jumps = [
            [None if _is_single(change, history, branches[each.branch]) else change.last, change.first,
             change.before, change.after]
            for change in each.regressed.changes
        ]  # fmt: skip
        place = index if each.metric.points.texts[each.point] else None
        rows.append([each.entry, f"{path}.json", params, place, each.regressed.latest, each.regressed.best, jumps])
    return {"regressions": rows}


def asv_index(metric: TrackedMetric, point: int, declaration: Mapping[str, Any]) -> int | None:
    """The place of a point in asv's grid of the benchmark; None where asv does not have it."""
    index = 0
    texts = metric.points.texts[point]
    for name, values in zip(declaration.get("param_names") or [], declaration.get("params") or [], strict=False):
        if texts.get(name) not in values:
            return None
        index = index * len(values) + values.index(texts[name])
    return index


def _is_single(change: Change, history: History, branch: Mapping[str, int]) -> bool:
    """Whether the change is surely one commit's: there is no other between them in the branch."""
    old, new = (history.commits[bisect.bisect_left(history.revisions, each)] for each in (change.last, change.first))
    return branch.get(new, -1) - branch.get(old, -1) == 1


def _show(
    series: MeasuredSeries, change: Change, history: History, branches: Mapping[str, Mapping[str, int]]
) -> ListedRegression:
    column = bisect.bisect_left(history.revisions, change.first)
    old = history.commits[bisect.bisect_left(history.revisions, change.last)]
    new = history.commits[column]
    single = _is_single(change, history, branches[series.branch])
    texts = series.metric.points.texts[series.point]
    selection = {"machine": series.machine.name, **{f"p-{name}": text for name, text in texts.items()}}
    selection["commits"] = new if single else f"{old}-{new}"
    return ListedRegression(
        title=series.metric.title,
        point=series.label,
        where=series.where,
        day=day(history.dates[column]),
        range=new[:8] if single else f"{old[:8]}..{new[:8]}",
        before=formatting.quantity(change.before, series.metric.unit),
        after=formatting.quantity(change.after, series.metric.unit),
        change=change.wording,
        link=history_link(series.metric.name, series.label),
        graph=graph_link(series.metric.name, selection),
        date=history.dates[column],
        machine=series.machine.name,
        commits=(old, new),
        name=series.metric.name,
    )


def write_feed(path: Path, shown: Sequence[ListedRegression], project: str) -> None:
    """The Atom feed, by asv's writer. An entry's identity is its point, machine and commits, whatever the numbers."""
    from asv import feed

    def entries() -> Iterator[Any]:
        for each in shown:
            when = datetime.datetime.fromtimestamp(each.date / 1000, datetime.UTC)
            title = f"{each.change}: {each.title} {each.point}".strip() + f" on {each.where}"
            text = (
                f'<a href="{escape(each.link)}">{escape(each.title)} {escape(each.point)}</a> on {escape(each.where)}: '
                f"{escape(each.before)} before, {escape(each.after)} after ({escape(each.change)}), "
                f"in {escape(each.range)} of {each.day}."
            )
            identity = [each.name, each.point, each.machine, *each.commits]
            yield feed.FeedEntry(title, when.replace(tzinfo=None), each.link, text, identity, when)

    title = f"{project} performance regressions"
    feed.write_atom(str(path), list(entries()), title=title, author=project, address=f"{project}.asv")
