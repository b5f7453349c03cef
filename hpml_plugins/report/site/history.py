"""Writes `history.html` and its numbers: one small JSON file per point, fetched when a reader looks at it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpml_plugins.model import formatting
from hpml_plugins.model.variability import MeasuredValue
from hpml_plugins.report.charts import COLOURS
from hpml_plugins.report.reading import History, TrackedMetric, stored_lines
from hpml_plugins.report.shares import describe_shares
from hpml_plugins.report.site.page import graph_link, write_data, write_page
from hpml_plugins.report.tables import spell_samples

if TYPE_CHECKING:
    from hpml_plugins.report.site.regressions import Change, MeasuredSeries

FOLDER = "history"
#: The Records of each point, to download.
RECORDS = "records"
#: How many Records of a point can be downloaded, the newest; `hpml export` has all.
MOST_RECORDS = 100

#: (benchmark, point) → the address of its Records, and how many there are.
Addresses = Mapping[tuple[str, str], tuple[str, int]]


def write_history(history: History, series: Iterable[MeasuredSeries], html_dir: Path, project: str) -> None:
    """Write the page, `history/index.js` and `history/M/P.js` for the P-th point of the M-th metric.

    Only points with a number, a failure or a retraction have a file.  series: those whose changes of level are shown.
    """
    addresses = write_records(history, html_dir)
    changes = {(each.metric.name, each.label, each.machine.name): each.changes for each in series}
    listed: list[dict[str, Any]] = []
    for metric in history.measured:
        points = []
        for index, (label, texts) in enumerate(metric.benchmark.points.items()):
            lines = list(_lines(history, metric, label, changes))
            retracted = list(_retracted(history, metric, label))
            if lines or retracted:
                found = {
                    "lines": lines,
                    "retracted": retracted,
                    "records": addresses.get((metric.benchmark.name, label)),
                    "graph": graph_link(metric.name, {f"p-{name}": text for name, text in texts.items()}),
                }
                write_data(html_dir, f"{FOLDER}/{len(listed)}/{index}.js", found)
                points.append([index, label])
        if points:
            unit = formatting.shown_unit(metric.unit)
            listed.append({
                "name": metric.name, "title": metric.title, "plugin": metric.benchmark.plugin, "unit": unit.label,
                "lowest": unit.lowest, "highest": unit.highest, "direction": metric.direction, "points": points,
            })  # fmt: skip
    index_of_all = {
        "benchmarks": listed,
        "places": [[machine.hardware.label, machine.name] for machine in history.machines],
        "commits": [[commit[:8], date] for commit, date in zip(history.commits, history.dates, strict=True)],
        "colours": COLOURS,
    }
    write_data(html_dir, f"{FOLDER}/index.js", index_of_all)
    write_page(html_dir, "history.html", project=project)


def write_records(history: History, html_dir: Path) -> Addresses:
    """Write a file of JSON lines for each point, its newest Records, oldest first; returns where."""
    addresses: dict[tuple[str, str], tuple[str, int]] = {}
    for benchmark in history.benchmarks:
        for label in benchmark.points:
            places = [(label, machine.name) for machine in history.machines]
            stored = [each for place in places for each in benchmark.outcomes.get(place, ()) if each.file]
            if stored:
                stored.sort(key=lambda outcome: outcome.started)
                (html_dir / RECORDS).mkdir(exist_ok=True)
                address = f"{RECORDS}/{len(addresses)}.jsonl"
                lines = stored_lines(stored[-MOST_RECORDS:])
                (html_dir / address).write_bytes(b"".join(line + b"\n" for line in lines))
                addresses[benchmark.name, label] = address, len(stored)
    return addresses


def _lines(
    history: History, metric: TrackedMetric, label: str, changes: Mapping[tuple[str, str, str], list[Change]]
) -> Iterator[dict[str, Any]]:
    """What the page draws of a point: of each machine its numbers and failures, by the commits' places."""
    for number, machine in enumerate(history.machines):
        line = metric.line(label, machine.name)
        measured = [(history.columns[outcome.revision], each) for outcome, each in line if each]
        warnings = [outcome.warnings for outcome, each in line if each]
        failed = [history.columns[outcome.revision] for outcome, _ in line if outcome.status == "failed"]
        if measured or failed:
            numbers = [each.estimate for _, each in measured]
            newest = measured[-1][1] if measured else None
            current = metric.benchmark.current.get((label, machine.name))
            yield {
                "place": number,
                "at": [column for column, _ in measured],
                "values": [_rounded(each.value) for each in numbers],
                "low": [_rounded(each.low) for each in numbers],
                "high": [_rounded(each.high) for each in numbers],
                "newest": spell_samples(newest, metric.unit) if newest else "failed",
                "run": _details(newest, metric.unit) if newest else "",
                "shares": describe_shares(current[1], history.roofs[machine.name], metric.metric) if current else "",
                "warnings": warnings[-1] if warnings else [],
                "failed": failed,
                "changes": [
                    [history.columns[change.first], change.before, change.after, change.verdict, change.wording]
                    for change in changes.get((metric.name, label, machine.name), ())
                ],
            }


def _details(reading: MeasuredValue, unit: str) -> str:
    """What the run itself says: its own interval and, where the card throttled, the rate before it did."""
    own = formatting.estimate(reading.own, unit).partition(" ± ")
    boost = f"boost {formatting.quantity(reading.boost, unit)}" if reading.boost else ""
    return ", ".join(filter(None, [f"± {own[2]}" if own[2] else "", boost]))


def _retracted(history: History, metric: TrackedMetric, label: str) -> Iterator[tuple[int, int | None, str]]:
    """The retracted Records of a point: the machine's number, the commit's place (None: not published), the reason."""
    for number, machine in enumerate(history.machines):
        for outcome in metric.benchmark.outcomes.get((label, machine.name), ()):
            if outcome.status == "retracted":
                yield number, history.columns.get(outcome.revision), outcome.reason


def _rounded(value: float | None) -> float | None:
    """At the five significant digits that are drawn; the Records have them all."""
    return value and float(f"{value:.5g}")
