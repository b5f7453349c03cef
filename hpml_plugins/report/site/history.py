"""Writes `history.html` and its numbers: one small JSON file per point, fetched when a reader looks at it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from hpml_plugins.model import formatting
from hpml_plugins.report.charts import COLOURS
from hpml_plugins.report.reading import FAILED, OK, History, Lines, RecordIndex, TrackedMetric
from hpml_plugins.report.site.page import graph_link, write_page, write_static

if TYPE_CHECKING:
    from hpml_plugins.report.site.regressions import Change

FOLDER = "history"
#: The Records of each point, to download.
RECORDS = "records"
#: How many Records of a point can be downloaded, the newest; `hpml export` has all.
MOST_RECORDS = 100
#: Significant digits of what is drawn. The Records have them all.
DIGITS = 5

#: (asv's name, point, machine)
LineKey = tuple[str, str, str]
#: (benchmark, point) → the address of its Records, and how many there are.
Addresses = Mapping[tuple[str, str], tuple[str, int]]


def write_history(
    history: History, changes: Mapping[LineKey, tuple[Change, ...]], html_dir: Path, project: str
) -> None:
    """Write the page, `history/index.json` and `history/M/P.json` for the P-th point of the M-th metric.

    Only points with a number or a failure have a file.  changes: of each line.
    """
    folder = html_dir / FOLDER
    folder.mkdir(exist_ok=True)
    addresses = write_records(history.store, html_dir) if history.store else {}
    listed: list[dict[str, Any]] = []
    metrics = sorted((history.metrics[name] for name in history.lines), key=lambda metric: metric.order)
    for metric in metrics:
        lines = history.lines[metric.name]
        measured = np.flatnonzero((lines.status >= FAILED).any(axis=(0, 1))).tolist()
        if not measured:
            continue
        place = folder / str(len(listed))
        place.mkdir(exist_ok=True)
        rounded = [_rounded(each) for each in (lines.values, lines.low, lines.high)]
        for index in measured:
            label = metric.points.labels[index]
            selection = {f"p-{name}": text for name, text in metric.points.texts[index].items()}
            found = {
                "lines": list(_lines(history, metric, rounded, index, changes)),
                "records": addresses.get((metric.benchmark, label)),
                "graph": graph_link(metric.name, selection),
            }
            (place / f"{index}.json").write_bytes(msgspec.json.encode(found))
        listed.append(_entry(metric, [[index, metric.points.labels[index]] for index in measured]))
    index_of_all = {
        "benchmarks": listed,
        "places": [[machine.hardware.label, machine.name] for machine in history.machines],
        "commits": [[commit[:8], date] for commit, date in zip(history.commits, history.dates, strict=True)],
        "colours": COLOURS,
    }
    (folder / "index.json").write_bytes(msgspec.json.encode(index_of_all))
    write_static(html_dir, "history.js", "chart.js")
    write_page(html_dir, "history.html", project=project)


def write_records(index: RecordIndex, html_dir: Path) -> Addresses:
    """Write a file of JSON lines for each point, its newest Records, oldest first; returns where."""
    addresses = {}
    for number, (point, lines, count) in enumerate(index.by_point(MOST_RECORDS)):
        (html_dir / RECORDS).mkdir(exist_ok=True)
        address = f"{RECORDS}/{number}.jsonl"
        (html_dir / address).write_bytes(b"".join(line + b"\n" for line in lines))
        addresses[point] = address, count
    return addresses


def _entry(metric: TrackedMetric, points: list[list[Any]]) -> dict[str, Any]:
    shown = formatting.shown_unit(metric.unit)
    return {
        "name": metric.name,
        "title": metric.title,
        "plugin": metric.plugin,
        "unit": shown.label,
        "lowest": shown.lowest,
        "highest": shown.highest,
        "direction": metric.direction,
        "points": points,
    }


def _lines(
    history: History,
    metric: TrackedMetric,
    rounded: list[np.ndarray],
    index: int,
    changes: Mapping[LineKey, tuple[Change, ...]],
) -> Iterator[dict[str, Any]]:
    lines, label = history.lines[metric.name], metric.points.labels[index]
    column_of = {revision: column for column, revision in enumerate(history.revisions)}
    for number, machine in enumerate(history.machines):
        status = lines.status[number, :, index]
        at, failed = np.flatnonzero(status == OK), np.flatnonzero(status == FAILED)
        if not len(at) and not len(failed):
            continue
        values, low, high = (each[number, at, index].tolist() for each in rounded)
        yield {
            "place": number,
            "at": at.tolist(),
            "values": values,
            "low": low,
            "high": high,
            "newest": _newest(lines, metric.unit, number, at, index),
            "failed": failed.tolist(),
            "changes": [
                [column_of[change.first], change.before, change.after, change.verdict, change.wording]
                for change in changes.get((metric.name, label, machine.name), ())
                if change.first in column_of
            ],
        }


def _newest(lines: Lines, unit: str, machine: int, at: np.ndarray, point: int) -> str:
    """The last number, as `formatting.estimate` spells it."""
    if not len(at):
        return "failed"
    place = machine, at[-1], point
    return formatting.estimate(float(lines.values[place]), float(lines.low[place]), float(lines.high[place]), unit)


def _rounded(values: np.ndarray) -> np.ndarray:
    """Rounded to DIGITS significant ones; what is not finite is left, and becomes null in JSON."""
    with np.errstate(divide="ignore", invalid="ignore"):
        power = np.floor(np.log10(np.abs(values)))
    power = np.where(np.isfinite(power), power, 0).clip(-290, 290)
    # Multiplied and divided by whole powers of ten, both exact to 1e22, so that 0.1 stays 0.1 and short in JSON.
    places = DIGITS - 1 - power
    up, down = 10.0 ** places.clip(0), 10.0 ** (-places).clip(0)
    return np.round(values * up / down) / up * down
