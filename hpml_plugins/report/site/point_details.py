"""All details of one point of a metric: its cards, its history over commits, dates and software
stacks, its Records, and the commands that measure it again."""

from __future__ import annotations

import itertools
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from markupsafe import Markup
from packaging.version import InvalidVersion, Version

from hpml_plugins.analysis.measured import MeasuredValue
from hpml_plugins.analysis.verdicts import why_not_judged
from hpml_plugins.model import formatting
from hpml_plugins.model.differences import format_card
from hpml_plugins.model.record import STACK
from hpml_plugins.report.charts import look
from hpml_plugins.report.points import format_samples
from hpml_plugins.report.reading import (
    History,
    Machine,
    Outcome,
    TrackedBenchmark,
    TrackedMetric,
)
from hpml_plugins.report.shares import describe_shares
from hpml_plugins.report.site import line_chart, svg
from hpml_plugins.report.site.card_strips import draw as draw_cards
from hpml_plugins.report.site.changes import MeasuredSeries
from hpml_plugins.report.site.data_files import FOLDER, data_path
from hpml_plugins.report.site.line_chart import ChartLine, Dot, Mark
from hpml_plugins.report.site.matrix import TaskRow, TypeColumn, colour_class
from hpml_plugins.report.site.page import day, fill, graph_link, minute, run_command
from hpml_plugins.store import describe_outside

#: Why values are drawn pale; other reasons are those of `why_not_judged`.
BY_DATE = "not judged: the repository lacks the commit, and only its date places it"
BUSY = "judged with a wider interval: other processes used the CPUs meanwhile"
#: The number of newest Records of one machine in the table of a point; data/ has more of them.
MOST_RECORDS = 30
#: `MeasuredSeries.place` → the series.
SeriesByPlace = Mapping[tuple[str, str, str, str], MeasuredSeries]
#: Characters shown of the reason for a failed point; its Record has the rest.
MOST_REASON = 200
_Item = TypeVar("_Item")


class _Reading(NamedTuple):
    """A Record with a number of the metric.  why: it is drawn pale.  counts: for its commit.  low,
    high: of its interval, if it counts."""

    outcome: Outcome
    value: MeasuredValue
    why: str
    counts: bool
    low: float | None = None
    high: float | None = None

    @classmethod
    def counting(cls, outcome: Outcome, value: MeasuredValue, why: str = "") -> _Reading:
        """One that counts for its commit."""
        own = value.estimate
        return cls(outcome, value, why, True, own.low, own.high)


@dataclass(frozen=True)
class _MachineLine:
    """The measurements of a machine on a branch, oldest first.  missed: outcomes without a number.
    name: the type; also the machine if another one has the same type, and the branch."""

    machine: Machine
    branch: str
    readings: list[_Reading]
    missed: list[Outcome] = field(default_factory=list)
    series: MeasuredSeries | None = None
    name: str = ""

    @property
    def colour(self) -> str:
        """The colour of its type, a class in the style sheet."""
        return colour_class(self.machine.hardware)

    @property
    def marker(self) -> str:
        """The marker for its number of cards, as `svg.marker` draws it."""
        return look(self.machine.hardware.name, self.machine.hardware.count).marker


@dataclass(frozen=True)
class PointDetails:
    """A point of a metric, and its place in the site."""

    history: History
    row: TaskRow
    columns: Sequence[TypeColumn]
    series: SeriesByPlace
    commit_url: str = ""
    #: Of the dots, which stand on several axes: name of the line, identity of the Record, why it is
    #: pale → title.
    _titles: dict[tuple[str, int, str], str] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def metric(self) -> TrackedMetric:
        """The metric of the row."""
        return self.row.metric

    def fill(self) -> str:
        """Render the part of the page."""
        metric = self.metric
        label = self.row.point
        found = [
            self._line(machine, branch)
            for branch in metric.benchmark.index.branches
            for machine in self.history.machines
        ]
        lines = _named(found)
        measured = self.row.measured(self.columns)
        split = _gpus_apart(measured, [column.count > 0 for column in measured])
        return fill(
            "point.html",
            row=self.row,
            measured=measured,
            cards_pictures=[draw_cards(self.row, alike) for alike in split],
            facts=self._facts(lines),
            charts=list(self._charts(lines)),
            lines=lines,
            has_levels=any(map(_has_level, lines)),
            newest=[row for line in lines if (row := self._newest(line))],
            changes=list(self._changes(lines)),
            commands=self._commands(),
            terms=metric.benchmark.explain(label),
            graph=graph_link(metric.name, _selection(metric, label)) if lines else "",
            commit_url=self.commit_url,
        )

    def _line(self, machine: Machine, branch: str) -> _MachineLine | None:
        metric = self.metric
        label = self.row.point
        stored = metric.benchmark.index.stored((label, machine.name))
        if not stored:
            return None
        line = metric.line(label, machine.name, branch)
        judged = {each.revision for each, _ in metric.judged_part(line, branch)}
        newest = _newest_quiet(
            [value for each, value in line if value and each.revision in judged]
        )
        readings = []
        for outcome, value in line:
            if value:
                by_date = outcome.revision not in judged
                why = _why(value, newest, by_date)
                readings.append(_Reading.counting(outcome, value, why))
        counting = {each.outcome.revision: each.value.card for each in readings}
        for outcome in stored:
            found = outcome.readings.get(metric.metric)
            if found and found.card != counting.get(outcome.revision, found.card):
                readings.append(_Reading(outcome, found, "", counts=False))
        missed = [each for each, value in line if not value and each.status == "failed"]
        if not readings and not missed:
            return None
        series = self.series.get((metric.name, label, machine.name, branch))
        readings.sort(key=lambda each: (each.outcome.revision, each.outcome.started))
        return _MachineLine(machine, branch, readings, missed, series)

    def _facts(self, lines: Sequence[_MachineLine]) -> list[str]:
        """Sentences about what the charts do not show, or show pale."""
        metric = self.metric
        label = self.row.point
        values = [each for line in lines for each in line.readings]
        pale = Counter(each.why for each in values if each.why)
        found = []
        if pale:
            told = "; ".join(f"{count} {why}" for why, count in pale.items())
            found.append(f"Pale, of {len(values)} values: {told}")
        index = metric.benchmark.index
        unpublished = sum(
            each.revision < 0 and metric.metric in each.readings
            for machine in self.history.machines
            for each in index.on_line((label, machine.name))
        )
        if unpublished:
            of = "of a commit that is" if unpublished == 1 else "of commits that are"
            counted = formatting.counted(unpublished, "value")
            found.append(
                f"Not on the chart: {counted} {of} not published; listed below by date"
            )
        elsewhere = Counter(
            each.commit
            for machine in self.history.machines
            for each in index.outside((label, machine.name))
            if metric.metric in each.readings
        )
        for line in lines if elsewhere else ():
            for each in line.readings:
                elsewhere.pop(each.outcome.commit, None)
        if text := describe_outside(elsewhere, " or ".join(self.history.branches)):
            found.append(text[0].upper() + text[1:])
        return found

    def _charts(self, lines: Sequence[_MachineLine]) -> Iterator[tuple[str, Markup]]:
        """(name of the axis, chart) for each axis with several positions."""
        if not lines:
            return
        history = self.history
        every = [each for line in lines for each in line.readings]
        revisions = sorted(
            {each.outcome.revision for each in every}
            | {each.revision for line in lines for each in line.missed}
        )
        places = {revision: float(place) for place, revision in enumerate(revisions)}
        commits = [
            (place, history.commit_of(revision)[:8], day(history.date_of(revision)))
            for revision, place in places.items()
        ]
        yield (
            "commit",
            self._chart(lines, lambda each: places[each.revision], commits, places),
        )
        dates = {each.outcome.started for each in every}
        if len(dates) > 1:
            low = min(dates)
            high = max(dates)
            at = [low + share * (high - low) / 4 for share in range(5)]
            labels = [(when, day(1000 * when), "") for when in at]
            yield "date", self._chart(lines, lambda each: each.started, labels)
        of_stacks = _named([self._by_stack(machine) for machine in history.machines])
        environments = {
            each.outcome.environment for line in of_stacks for each in line.readings
        }
        stacks = sorted(environments, key=_stack_name)
        if len(stacks) > 1:
            numbers = {name: float(place) for place, name in enumerate(stacks)}
            names = [(numbers[name], *_stack_name(name)[1:]) for name in stacks]
            yield (
                "stack",
                self._chart(of_stacks, lambda each: numbers[each.environment], names),
            )

    def _by_stack(self, machine: Machine) -> _MachineLine | None:
        """The newest reading of a machine with each software stack, including commits on no
        line."""
        metric = self.metric
        newest = {}
        for outcome in metric.benchmark.index.on_line((self.row.point, machine.name)):
            value = outcome.readings.get(metric.metric)
            if value and outcome.environment:
                newest[outcome.environment] = outcome, value
        readings = [_Reading.counting(*each) for each in newest.values()]
        return _MachineLine(machine, "", readings) if readings else None

    def _chart(
        self,
        lines: Sequence[_MachineLine],
        place: Callable[[Outcome], float],
        labels: Sequence[tuple[float, str, str]],
        places: Mapping[int, float] | None = None,
    ) -> Markup:
        """A chart of the GPUs, and one of the CPUs.  place: of an outcome on the axis.  places: of
        revisions, if the axis is of commits, for drawing levels and changes."""
        title = f"{self.metric.title} {self.row.point}".strip()
        about = f"History of {title}: a dot for each Record"
        dashed = list(zip(lines, itertools.cycle(svg.DASHES), strict=False))
        split = _gpus_apart(dashed, [line.machine.hardware.is_gpu for line in lines])
        charts = []
        for alike in split:
            drawn = [
                self._drawn(line, dash if line.branch else "", place, places)
                for line, dash in alike
            ]
            charts.append(line_chart.draw(drawn, labels, self.metric.unit, about))
        return Markup("").join(charts)

    def _drawn(
        self,
        line: _MachineLine,
        dash: str,
        place: Callable[[Outcome], float],
        places: Mapping[int, float] | None,
    ) -> ChartLine:
        dots = []
        for each in line.readings:
            kinds = ("apart" if each.why else "", "" if each.counts else "other")
            kind = " ".join(filter(None, kinds))
            title = partial(self._title, line.name, each)
            at = place(each.outcome)
            dots.append(Dot(at, each.value.value, each.low, each.high, title, kind))
        levels, marks = self._levels(line, places) if places else ([], [])
        missed = [
            (place(each), f"{line.name}: {each.status}, {each.reason[:MOST_REASON]}")
            for each in line.missed
        ]
        return ChartLine(
            line.name, line.colour, line.marker, dash, dots, levels, marks, missed
        )

    def _title(self, name: str, each: _Reading) -> str:
        """The title of a dot, the same on each axis."""
        outcome = each.outcome
        key = name, id(outcome), each.why
        if key not in self._titles:
            unit = self.metric.unit
            card = f"card {format_card(each.value.card)}" if each.value.card else ""
            when = minute(outcome.started)
            self._titles[key] = line_chart.dot_title(
                name, each.value.value, unit, card, outcome.commit[:8], when, each.why
            )
        return self._titles[key]

    def _levels(
        self, line: _MachineLine, places: Mapping[int, float]
    ) -> tuple[list[tuple[float, float]], list[Mark]]:
        if not line.series:
            return [], []
        levels = [
            (places[each.first], places[each.last], each.value, each.ends[-1])
            for each in line.series.levels
            if each.first in places and each.last in places
        ]
        marks = [
            Mark(places[each.first], each.after, each.verdict, f"{each.wording}")
            for each in line.series.changes
            if each.first in places
        ]
        return line_chart.level_corners(levels), marks

    def _newest(self, line: _MachineLine) -> dict[str, Any] | None:
        """The newest value of a machine."""
        counting = [each for each in line.readings if each.counts]
        if not counting:
            return None
        metric = self.metric
        last = counting[-1]
        current = metric.benchmark.current.get((self.row.point, line.machine.name))
        roof = self.history.roofs.get(line.machine.name)
        shares = ""
        if current and roof and not line.branch:
            shares = describe_shares(current[1], roof, metric.metric)
        _, own = formatting.split_estimate(formatting.estimate(last.value.own, metric.unit))
        boost = last.value.boost
        return {
            "machine": line.machine.name,
            "value": format_samples(last.value, metric.unit),
            "within": f"{own}, boost {formatting.quantity(boost, metric.unit)}"
            if boost
            else own,
            "shares": shares,
            "commit": last.outcome.commit,
            "day": day(1000 * last.outcome.started),
            "readings": len(counting),
            "warnings": last.outcome.warnings,
        }

    def _changes(self, lines: Sequence[_MachineLine]) -> Iterator[dict[str, Any]]:
        """The changes of level, newest first."""
        found = [
            (change, line)
            for line in lines
            if line.series
            for change in line.series.changes
        ]
        for change, line in sorted(found, key=lambda each: -each[0].first):
            yield {
                "commit": self.history.commit_of(change.first),
                "day": day(self.history.date_of(change.first)),
                "name": line.name,
                "verdict": change.verdict,
                "wording": change.wording,
                "before": formatting.quantity(change.before, self.metric.unit),
                "after": formatting.quantity(change.after, self.metric.unit),
            }

    def _commands(self) -> list[tuple[str, str]]:
        """(what it measures, command): with `hpml run` the current benchmark, with asv the one at
        the newest commit of the repository, if there is one. Points that are no longer declared
        are only measured with asv."""
        benchmark = self.metric.benchmark
        label = self.row.point
        commands = []
        if command := run_command(benchmark, label):
            commands.append(("code as it is now", command))
        measured: list[Outcome] = []
        for machine in self.history.machines:
            newest_first = reversed(benchmark.index.on_line((label, machine.name)))
            has_commit = (
                each
                for each in newest_first
                if self.metric.metric in each.readings and each.commit
            )
            measured += itertools.islice(has_commit, 1)
        if measured and any(self.history.order.lines.values()):
            newest = max(measured, key=benchmark.index.rank)
            pattern = f"^{re.escape(f'{benchmark.name}.' if benchmark.plugin else benchmark.name)}"
            words = ["asv", "run", "--bench", pattern, f"{newest.commit[:8]}^!"]
            commands.append(("newest measured commit", shlex.join(words)))
        return commands


def _has_level(line: _MachineLine) -> bool:
    """Whether the chart over commits shows a level as a line."""
    levels = line.series.levels if line.series else ()
    return any(each.first < each.last for each in levels)


def list_records(
    history: History,
    benchmark: TrackedBenchmark,
    label: str,
    commit_url: str,
) -> str:
    """A part of the page: the newest Records of a point with all their metrics, links to the files
    with every sample, and retracted Records."""
    found = [
        (each, machine)
        for machine in history.machines
        for each in benchmark.index.stored((label, machine.name))
        if each.status != "skipped"
    ]
    found.sort(key=lambda each: -each[0].started)
    units = {
        each.metric: each.unit
        for each in history.metrics.values()
        if each.benchmark is benchmark
    }
    standing = [each for each in found if each[0].status != "retracted"]
    of_machine: Counter[str] = Counter()
    listed = []
    for outcome, machine in standing:
        of_machine[machine.name] += 1
        if of_machine[machine.name] <= MOST_RECORDS:
            listed.append((outcome, machine))
    retracted = [
        (each.commit, machine.name, each.reason)
        for each, machine in found
        if each.status == "retracted"
    ]
    return fill(
        "records.html",
        listed=[_record(history, *each, units) for each in listed],
        commits={outcome.commit for outcome, _ in listed},
        count=len(standing),
        retracted=retracted,
        files=[
            (name, f"{FOLDER}/{data_path(name, benchmark.name)}")
            for name in dict.fromkeys(machine.name for each, machine in found if each.file)
        ],
        commit_url=commit_url,
    )


def _record(
    history: History,
    outcome: Outcome,
    machine: Machine,
    units: Mapping[str, str],
) -> dict[str, Any]:
    values = {name: each for name, each in outcome.readings.items() if name in units}
    first = next(iter(values.values()), None)
    told = [
        f"{name} {formatting.estimate(each.own, units[name])}"
        for name, each in values.items()
    ]
    return {
        "started": minute(outcome.started),
        "machine": machine.name,
        "card": format_card(first.card) if first and first.card else "",
        "commit": outcome.commit,
        "published": outcome.revision in history.columns,
        "values": "; ".join(told) or str(outcome.status),
        "samples": first.count if first else "",
        "told": "; ".join(
            filter(None, [outcome.reason, *outcome.conditions, *outcome.warnings])
        ),
    }


def _gpus_apart(items: Sequence[_Item], of_gpu: Sequence[bool]) -> list[list[_Item]]:
    """Items of GPUs and others separately: an axis that includes CPUs would hide differences
    between GPUs."""
    apart = [
        [item for item, flag in zip(items, of_gpu, strict=True) if flag is wanted]
        for wanted in (True, False)
    ]
    return [alike for alike in apart if alike]


def _selection(metric: TrackedMetric, label: str) -> dict[str, str]:
    return {f"p-{name}": text for name, text in metric.benchmark.points[label].items()}


def _named(lines: Sequence[_MachineLine | None]) -> list[_MachineLine]:
    """The lines that exist, with distinct names."""
    found = [line for line in lines if line]
    machines = {(line.machine.hardware, line.machine.name) for line in found}
    of_type = Counter(hardware for hardware, _ in machines)
    named = []
    for line in found:
        hardware = line.machine.hardware
        branch = line.branch
        name = f"{hardware.label} · {line.machine.name}"
        name = name if of_type[hardware] > 1 else hardware.label
        named.append(replace(line, name=f"{name} · branch {branch}" if branch else name))
    return named


def _newest_quiet(values: Sequence[MeasuredValue]) -> MeasuredValue | None:
    """The newest reading that no other process slowed down; else the newest."""
    quiet = [each for each in values if not each.is_busy]
    return next(iter([*reversed(quiet), *reversed(values)]), None)


def _why(value: MeasuredValue, newest: MeasuredValue | None, by_date: bool) -> str:
    """Why a reading is judged with a wider interval than the newest quiet one, or not at all; "" if
    there is no difference."""
    if by_date:
        return BY_DATE
    if value.is_busy:
        return BUSY
    why = why_not_judged(value, newest) if newest else ""
    return why and f"not judged: {why}"


def _stack_name(environment: str) -> tuple[Any, str, str]:
    """Sort key; torch's version, or everything if the name has none; and the rest of an
    environment's name."""
    kind, _, rest = environment.partition("-")
    parts = rest.split("-")
    torch = next((part for part in parts if part.startswith("torch")), "")
    others = ", ".join(part for part in parts if part != torch)
    others = re.sub(r"\bcuda", "CUDA ", re.sub(r"\bpy", "Python ", others))
    installed = ", installed for it" if environment.startswith(STACK) else ""
    version = torch.removeprefix("torch")
    title = f"torch {version}" if torch else rest or environment
    try:
        order = Version(version)
    except InvalidVersion:
        order = Version("0")
    return order, title, f"{others if torch else kind}{installed}"
