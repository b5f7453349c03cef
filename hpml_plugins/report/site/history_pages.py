"""Writes `history.html` and its numbers: one small JSON file a point, fetched when a reader looks at it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from hpml_plugins.model import formatting as display
from hpml_plugins.report.charts import COLOURS
from hpml_plugins.report.site.cells import direction_of, graph_link, unit_of
from hpml_plugins.report.site.changes import Change
from hpml_plugins.report.site.history import FAILED, OK, Benchmarks, History, Lines, Place
from hpml_plugins.report.site.matrix import point_names
from hpml_plugins.report.site.page import fill, write_static
from hpml_plugins.report.site.regressions import wording

if TYPE_CHECKING:
    import numpy as np

FOLDER = "history"
#: Significant digits of what is drawn. The Records have them all.
DIGITS = 5

LineKey = tuple[str, str, Place]


def write_history(
    history: History,
    benchmarks: Benchmarks,
    changes: Iterable[tuple[LineKey, tuple[Change, ...]]],
    records: Mapping[tuple[str, str], tuple[str, int]],
    html_dir: Path,
    project: str,
) -> None:
    """Write the page, `history/index.json` and `history/B/P.json` for the P-th point of the B-th benchmark.

    changes: of each line.  records: (our benchmark, point in words) → address of its Records, and how many.
    """
    folder = html_dir / FOLDER
    folder.mkdir(exist_ok=True)
    changed = dict(changes)
    listed = []
    names = sorted(history.lines, key=lambda name: (str(benchmarks[name].get("benchmark") or name), name))
    for number, name in enumerate(names):
        benchmark, lines = benchmarks[name], history.lines[name]
        labels = point_names(benchmark)
        (folder / str(number)).mkdir(exist_ok=True)
        measured = []
        rounded = [_rounded(each) for each in (lines.values, lines.low, lines.high)]
        for index, label in enumerate(labels):
            if not lines.status[:, :, index].any():
                continue
            measured.append([index, label])
            found = {
                "lines": list(_lines(history, lines, rounded, name, index, label, changed)),
                "records": records.get((str(benchmark.get("benchmark")), label)),
                "graph": graph_link(name, _selection(benchmark, index)),
            }
            (folder / str(number) / f"{index}.json").write_bytes(msgspec.json.encode(found))
        listed.append(_entry(name, benchmark, measured))
    index_of_all = {
        "benchmarks": listed,
        "places": [[place.gpu_type.label, place.machine] for place in history.places],
        "commits": [[commit[:8], date] for commit, date in zip(history.commits, history.dates, strict=True)],
        "colours": COLOURS,
    }
    (folder / "index.json").write_bytes(msgspec.json.encode(index_of_all))
    write_static(html_dir, "history.js", "chart.js", "site.css")
    (html_dir / "history.html").write_text(fill("history.html", project=project), encoding="utf-8")


def _entry(name: str, benchmark: Mapping[str, Any], points: list[list[Any]]) -> dict[str, Any]:
    title = str(benchmark.get("benchmark") or benchmark.get("pretty_name") or name)
    shown = display.shown_unit(unit_of(benchmark))
    return {
        "name": name,
        "title": f"{title} · {benchmark['metric']}" if benchmark.get("metric") else title,
        "plugin": str(benchmark.get("plugin") or ""),
        "unit": shown.label,
        "lowest": shown.lowest,
        "highest": shown.highest,
        "direction": direction_of(benchmark),
        "points": points,
    }


def _selection(benchmark: Mapping[str, Any], index: int) -> dict[str, str]:
    import itertools

    values = next(itertools.islice(itertools.product(*(benchmark.get("params") or [])), index, None))
    return {f"p-{key}": str(value) for key, value in zip(benchmark.get("param_names") or [], values, strict=False)}


def _lines(
    history: History,
    lines: Lines,
    rounded: list[np.ndarray],
    name: str,
    index: int,
    label: str,
    changed: Mapping[LineKey, tuple[Change, ...]],
) -> Iterable[dict[str, Any]]:
    import numpy as np

    column_of = {revision: column for column, revision in enumerate(history.revisions)}
    for number, place in enumerate(history.places):
        status = lines.status[number, :, index]
        at = np.flatnonzero(status == OK)
        failed = np.flatnonzero(status == FAILED)
        if not len(at) and not len(failed):
            continue
        values, low, high = (each[number, at, index].tolist() for each in rounded)
        yield {
            "place": number,
            "at": at.tolist(),
            "values": values,
            "low": low,
            "high": high,
            "failed": failed.tolist(),
            "changes": [
                [column_of[change.first], change.before, change.after, change.verdict, wording(change)]
                for change in changed.get((name, label, place), ())
                if change.first in column_of
            ],
        }


def _rounded(values: np.ndarray) -> np.ndarray:
    """Rounded to DIGITS significant ones; what is not finite is left, and becomes null in JSON."""
    import numpy as np

    with np.errstate(divide="ignore", invalid="ignore"):
        power = np.floor(np.log10(np.abs(values)))
    power = np.where(np.isfinite(power), power, 0).clip(-290, 290)
    # Multiplied and divided by whole powers of ten, both exact to 1e22, so that 0.1 stays 0.1 and short in JSON.
    places = DIGITS - 1 - power
    up, down = 10.0 ** places.clip(0), 10.0 ** (-places).clip(0)
    return np.round(values * up / down) / up * down
