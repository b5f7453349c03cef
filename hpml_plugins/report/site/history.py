"""Writes `history.html`, the page of a point, and its numbers: a small file per point, read when it
is looked at."""

from __future__ import annotations

import itertools
import re
import shlex
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.version import InvalidVersion, Version

from hpml_plugins.analysis.measured import MeasuredValue
from hpml_plugins.analysis.verdicts import why_not_judged
from hpml_plugins.model import formatting
from hpml_plugins.model.differences import spell_card
from hpml_plugins.model.record import STACK, Record
from hpml_plugins.report.charts import look
from hpml_plugins.report.reading import History, TrackedBenchmark, TrackedMetric
from hpml_plugins.report.shares import describe_shares
from hpml_plugins.report.site.newest_records import Addresses, write_records
from hpml_plugins.report.site.page import graph_link, run_command, write_data, write_page
from hpml_plugins.report.site.plugin_pages import origin_of
from hpml_plugins.report.tables import spell_samples
from hpml_plugins.store import describe_outside

if TYPE_CHECKING:
    from hpml_plugins.report.site.regressions import Change, MeasuredSeries

    #: `MeasuredSeries.place` → its changes of level.
    Changes = Mapping[tuple[str, str, str, str], list[Change]]

FOLDER = "history"
#: Why values are drawn pale; other reasons are those of `why_not_judged`.
BY_DATE = "not judged: the repository lacks the commit, and only its date places it"
BUSY = "judged with a wider interval: other processes used the CPUs meanwhile"
#: Characters that are shown of why a point failed or was skipped; its Record has the rest.
MOST_REASON = 200


def write_history(
    history: History,
    series: Iterable[MeasuredSeries],
    html_dir: Path,
    project: str,
    plugins: Container[str] = (),
    commit_url: str = "",
) -> None:
    """Write the page, `history/index.js` and `history/M/P.js` for the P-th point of the M-th
    metric.

    Only points with a number, a failure or a retraction have a file.  series: those whose changes
    of level are shown. plugins: those that have a page.  commit_url: see `page.commit_links`.
    """
    addresses = write_records(history, html_dir)
    changes = {each.place: each.changes for each in series}
    listed: list[dict[str, Any]] = []
    for metric in history.ordered:
        points = []
        for index, label in enumerate(metric.benchmark.points):
            if found := _point(history, metric, label, changes, addresses):
                write_data(html_dir, f"{FOLDER}/{len(listed)}/{index}.js", found)
                points.append([index, label])
        if points:
            unit, plugin = formatting.shown_unit(metric.unit), metric.benchmark.plugin
            listed.append(
                {
                    "name": metric.name,
                    "title": metric.title,
                    "plugin": plugin,
                    "metric": metric.metric,
                    "page": f"plugin-{plugin}.html" if plugin in plugins else "",
                    "version": metric.benchmark.version,
                    "unit": unit.label,
                    "si": unit.symbol,
                    "count": unit.count,
                    "lowest": unit.lowest,
                    "highest": unit.highest,
                    "direction": metric.direction,
                    "points": points,
                }
            )
    index_of_all = {
        "benchmarks": listed,
        "places": [[machine.hardware.label, machine.name] for machine in history.machines],
        "commits": [
            [commit, date] for commit, date in zip(history.commits, history.dates, strict=True)
        ],
        "looks": {
            each.hardware.label: look(each.hardware.name, each.hardware.count)._asdict()
            for each in history.machines
        },
        "commit_url": commit_url,
        "branches": history.branches,
    }
    write_data(html_dir, f"{FOLDER}/index.js", index_of_all)
    write_page(html_dir, "history.html", project=project)


def _point(
    history: History,
    metric: TrackedMetric,
    label: str,
    changes: Changes,
    addresses: Addresses,
) -> dict[str, Any] | None:
    """What the page shows of a point; None where there is no number, no failure and no retraction.

    elsewhere: how many numbers are of commits that are not published, or of none.  outside: what is
    on no line that is drawn, in words.
    """
    benchmark = metric.benchmark
    lines = [
        each
        for branch in ("", *benchmark.branches)
        for each in _lines(history, metric, label, branch, changes)
    ]
    retracted = list(_retracted(history, metric, label))
    outcomes = [
        each
        for machine in history.machines
        for each in benchmark.outcomes.get((label, machine.name), ())
    ]
    elsewhere = sum(each.revision < 0 and metric.metric in each.readings for each in outcomes)
    outside = _outside(history, metric, label)
    if not (lines or retracted or elsewhere or outside):
        return None
    current = [
        benchmark.current[place]
        for each in history.machines
        if (place := (label, each.name)) in benchmark.current
    ]
    newest = max((record for _, record in current), key=lambda record: record.started, default=None)
    revision = max(
        (each.revision for each in outcomes if metric.metric in each.readings), default=-1
    )
    chosen = {f"p-{name}": text for name, text in benchmark.points[label].items()}
    return {
        "lines": lines,
        "stacks": _stacks(history, metric, label),
        "retracted": retracted,
        "elsewhere": elsewhere,
        "outside": outside,
        "terms": benchmark.explain(label),
        "records": addresses.get((benchmark.name, label)),
        "graph": graph_link(metric.name, chosen) if lines else "",
        "commands": _commands(history, benchmark, label, revision, newest),
        "source": origin_of(newest) if newest else [],
    }


def _commands(
    history: History, benchmark: TrackedBenchmark, label: str, revision: int, newest: Record | None
) -> list[str]:
    """What measures a point again: by `hpml run` the benchmark as it is now, by asv as it was at
    the newest commit.

    A point that is not declared any more is left to asv.  revision: of that commit, -1 where it is
    not published.
    """
    name = benchmark.name
    commands = []
    if command := run_command(benchmark, label):
        commands.append(command)
    commit = (
        history.commits[history.columns[revision]]
        if revision in history.columns
        else newest and newest.commit
    )
    if commit:
        pattern = f"^{re.escape(f'{name}.' if benchmark.plugin else name)}"
        commands.append(shlex.join(["asv", "run", "--bench", pattern, f"{commit[:8]}^!"]))
    return commands


def _outside(history: History, metric: TrackedMetric, label: str) -> str:
    """Which numbers of a point are on no line that is drawn, in words; "" for none."""
    drawn = {
        outcome.commit
        for branch in metric.benchmark.branches
        for machine in history.machines
        for outcome, _ in metric.line(label, machine.name, branch)
    }
    found = Counter(
        outcome.commit
        for machine in history.machines
        for outcome in metric.benchmark.outside.get((label, machine.name), ())
        if metric.metric in outcome.readings and outcome.commit not in drawn
    )
    return describe_outside(found, " or ".join(history.branches))


def _lines(
    history: History, metric: TrackedMetric, label: str, branch: str, changes: Changes
) -> Iterator[dict[str, Any]]:
    """What the page draws of a point: of each machine its numbers and failures, by the commits'
    places.

    branch: "" for the first, see `TrackedMetric.line`.
    """
    for number, machine in enumerate(history.machines):
        line = metric.line(label, machine.name, branch)
        judged = metric.judged(label, machine.name, branch)
        by_date = {outcome.revision for outcome, _ in line} - {
            outcome.revision for outcome, _ in judged
        }
        measured = [(history.columns[outcome.revision], each) for outcome, each in line if each]
        warnings = [outcome.warnings for outcome, each in line if each]
        missed: dict[str, dict[str, list[int]]] = {"failed": {}, "skipped": {}}
        for outcome, _ in line:
            if outcome.status in missed:
                at = missed[outcome.status].setdefault(outcome.reason[:MOST_REASON], [])
                at.append(history.columns[outcome.revision])
        failed, skipped = (list(itertools.chain(*each.values())) for each in missed.values())
        if measured or failed:
            numbers = [each.estimate for _, each in measured]
            newest = next((each for _, each in reversed(judged) if each), None)
            quiet = next(
                (each for _, each in reversed(judged) if each and not each.is_busy), newest
            )
            pale = {history.columns[revision]: BY_DATE for revision in by_date}
            pale |= {at: why for at, each in measured if quiet and (why := _why_pale(each, quiet))}
            current = metric.benchmark.current.get((label, machine.name))
            yield {
                "place": number,
                "branch": branch,
                "at": [column for column, _ in measured],
                "values": [_rounded(each.value) for each in numbers],
                "low": [_rounded(each.low) for each in numbers],
                "high": [_rounded(each.high) for each in numbers],
                "apart": [(at, pale[at]) for at, _ in measured if at in pale],
                "newest": spell_samples(newest, metric.unit) if newest else "failed",
                "run": _details(newest, metric.unit) if newest else "",
                "shares": (
                    ""
                    if branch or not current
                    else describe_shares(current[1], history.roofs[machine.name], metric.metric)
                ),
                "warnings": warnings[-1] if warnings else [],
                "failed": failed,
                "skipped": skipped,
                "missed": [
                    [f"{status}: {why}", at]
                    for status, found in missed.items()
                    for why, at in found.items()
                ],
                "cards": list(_other_cards(history, metric, label, machine.name, branch)),
                "changes": [
                    [
                        history.columns[change.first],
                        change.before,
                        change.after,
                        change.verdict,
                        change.wording,
                    ]
                    for change in changes.get((metric.name, label, machine.name, branch), ())
                ],
            }


def _why_pale(reading: MeasuredValue, newest: MeasuredValue) -> str:
    """Why a reading counts less than the newest quiet one, or not at all; "" where it counts
    alike."""
    if reading.is_busy:
        return BUSY
    why = why_not_judged(reading, newest)
    return why and f"not judged: {why}"


def _stacks(history: History, metric: TrackedMetric, label: str) -> dict[str, Any]:
    """The current value of each software stack, of each machine; empty where there is only one
    stack.

    names: torch's version, and what else the name of the environment has.  lines: as `_lines` has
    them, with the places of the stacks in the place of those of commits.
    """
    found: dict[int, dict[str, MeasuredValue]] = {}
    for number, machine in enumerate(history.machines):
        # ascending by rank
        for outcome in metric.benchmark.outcomes.get((label, machine.name), ()):
            if outcome.environment and (reading := outcome.readings.get(metric.metric)):
                found.setdefault(number, {})[outcome.environment] = reading
    environments = sorted(
        {name for readings in found.values() for name in readings}, key=_stack_name
    )
    if len(environments) < 2:
        return {}
    lines = []
    for number, readings in found.items():
        at = [place for place, name in enumerate(environments) if name in readings]
        shown = [readings[environments[place]].estimate for place in at]
        lines.append(
            {
                "place": number,
                "at": at,
                "values": [_rounded(each.value) for each in shown],
                "low": [_rounded(each.low) for each in shown],
                "high": [_rounded(each.high) for each in shown],
                "apart": [],
                "failed": [],
                "skipped": [],
                "missed": [],
                "cards": [],
                "changes": [],
            }
        )
    return {"names": [_stack_name(name)[1:] for name in environments], "lines": lines}


def _stack_name(environment: str) -> tuple[Any, str, str]:
    """For sorting; torch's version, or all where the name has none; and the rest of an
    environment's name."""
    kind, _, rest = environment.partition("-")
    parts = rest.split("-")
    torch = next((part for part in parts if part.startswith("torch")), "")
    others = ", ".join(part for part in parts if part != torch)
    others = re.sub(r"\bcuda", "CUDA ", re.sub(r"\bpy", "Python ", others))
    installed = ", installed for it" if environment.startswith(STACK) else ""
    version = torch.removeprefix("torch")
    title = f"torch {version}" if torch else rest
    try:
        order = Version(version)
    except InvalidVersion:
        order = Version("0")
    return order, title, f"{others if torch else kind}{installed}"


def _other_cards(
    history: History, metric: TrackedMetric, label: str, machine: str, branch: str
) -> Iterator[tuple[int, float | None, str]]:
    """What other cards gave than the one that counts of a commit: the commit's place, the value,
    the card."""
    counting = {
        outcome.revision: each.card for outcome, each in metric.line(label, machine, branch) if each
    }
    for outcome in metric.benchmark.stored(label, machine):
        found = outcome.readings.get(metric.metric)
        if found and found.card != counting.get(outcome.revision, found.card):
            yield history.columns[outcome.revision], _rounded(found.value), spell_card(found.card)


def _details(reading: MeasuredValue, unit: str) -> str:
    """What the run itself says: its own interval and, where the card throttled, the rate before it
    did."""
    own = formatting.estimate(reading.own, unit).partition(" ± ")
    boost = f"boost {formatting.quantity(reading.boost, unit)}" if reading.boost else ""
    return ", ".join(filter(None, [f"± {own[2]}" if own[2] else "", boost]))


def _retracted(
    history: History, metric: TrackedMetric, label: str
) -> Iterator[tuple[int, int | None, str]]:
    """The retracted Records of a point: the machine's number, the commit's place (None: not
    published), the reason."""
    for number, machine in enumerate(history.machines):
        for outcome in metric.benchmark.stored(label, machine.name):
            if outcome.status == "retracted":
                yield number, history.columns.get(outcome.revision), outcome.reason


def _rounded(value: float | None) -> float | None:
    """At seven significant digits, of which four are shown; the Records have them all."""
    return value and float(f"{value:.7g}")
