"""What got worse and did not recover: for asv's page in its own format, for our page and for the Atom feed."""

from __future__ import annotations

import bisect
import datetime
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from hpml_plugins.model import formatting as display
from hpml_plugins.report.site.cells import day, direction_of, graph_link, history_link, unit_of
from hpml_plugins.report.site.changes import Band, Change, Regressed, changes, regressed
from hpml_plugins.report.site.gpu_type import gpu_type
from hpml_plugins.report.site.history import OK, Benchmarks, History, Place
from hpml_plugins.report.site.matrix import point_names

#: How many our page lists, newest first; the JSON has all.
LISTED = 500


@dataclass(frozen=True)
class Series:
    """One line of asv's graphs that was looked at: one point of a benchmark on one machine.

    entry: asv's name of it.  index: of the point, None for a benchmark without parameters.  params: asv's of the graph.
    """

    name: str
    entry: str
    index: int | None
    point: str
    place: Place
    path: str
    params: Mapping[str, Any]
    found: Regressed | None
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class Shown:
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


def look(conf: Any, repo: Any, benchmarks: Benchmarks, graphs: Any, history: History, revisions: Any) -> list[Series]:
    """Every series of asv's graphs with its changes. Thresholds and first commits are asv.conf.json's, as asv's."""
    # asv's own reading of `regressions_first_commits` and `regressions_thresholds`
    from asv.plugins.regressions import _GraphDataFilter

    if not revisions:
        return []
    chosen = _GraphDataFilter(conf, repo, revisions)
    row_of = {place: number for number, place in enumerate(history.places)}
    spelled = {name: point_names(benchmark) for name, benchmark in benchmarks.items()}
    found = []
    for path, graph in graphs:
        benchmark = benchmarks.get(graph.benchmark_name)
        if "summary" in graph.params or not benchmark:
            continue
        place = Place(gpu_type(graph.params), str(graph.params.get("machine") or ""))
        bands = _bands(history, graph.benchmark_name, row_of.get(place))
        direction = direction_of(benchmark)
        for index, entry, steps, threshold in chosen.get_graph_data(graph, benchmark):
            if not steps:
                continue
            at = index or 0
            band = bands[at] if at < len(bands) else None
            worse = regressed(steps, direction, band, threshold)
            every = tuple(changes(steps, direction, band, threshold))
            point = spelled[graph.benchmark_name][at]
            found.append(Series(graph.benchmark_name, entry, index, point, place, path, graph.params, worse, every))
    return found


def asv_s(series: Sequence[Series], params: Mapping[str, Any], order: Mapping[int, int]) -> dict[str, Any]:
    """The content of asv's regressions.json.  params: all values of asv's parameters.  order: see `branch_places`."""
    rows = []
    for each in series:
        if each.found is None:
            continue
        own = {name: value for name, value in each.params.items() if len(params[name]) > 1}
        jumps = [[*_range(change, order), change.before, change.after] for change in each.found.changes]
        row = [each.entry, each.path + ".json", own, each.index, each.found.latest, each.found.best, jumps]
        rows.append(row)
    return {"regressions": rows}


def branch_places(repo: Any, conf: Any, revisions: Mapping[str, int]) -> dict[int, int]:
    """Revision → its place in its branch's first-parent history. asv asks git anew for each pair of commits."""
    places: dict[int, int] = {}
    for branch in conf.branches:
        for place, commit in enumerate(reversed(repo.get_branch_commits(branch))):
            if commit in revisions:
                places.setdefault(revisions[commit], place)
    return places


def listed(
    series: Sequence[Series],
    benchmarks: Benchmarks,
    history: History,
    order: Mapping[int, int],
    most: int | None = None,
) -> list[Shown]:
    """What our page and the feed list, the newest commit first, of one commit the largest change first.

    most: how many, if not all.
    """
    found = [(each, change) for each in series for change in (each.found.changes if each.found else ())]
    found.sort(key=lambda item: _rank(item[0], item[1], benchmarks[item[0].name]))
    return [_show(each, change, benchmarks[each.name], history, order) for each, change in found[:most]]


def count(series: Sequence[Series]) -> int:
    """How many regressions there are."""
    return sum(len(each.found.changes) for each in series if each.found)


def write_feed(path: Path, shown: Sequence[Shown], project: str) -> None:
    """The Atom feed, by asv's writer. An entry's identity is its point, machine and commits, whatever the numbers."""
    from asv import feed

    entries = []
    for each in shown:
        when = datetime.datetime.fromtimestamp(each.date / 1000, datetime.UTC)
        title = f"{each.change}: {each.title} {each.point}".strip() + f" on {each.where}"
        text = (
            f'<a href="{escape(each.link)}">{escape(each.title)} {escape(each.point)}</a> on {escape(each.where)}: '
            f"{escape(each.before)} before, {escape(each.after)} after ({escape(each.change)}), "
            f"in {escape(each.range)} of {each.day}."
        )
        identity = [each.name, each.point, each.machine, *each.commits]
        entries.append(feed.FeedEntry(title, when.replace(tzinfo=None), each.link, text, identity, when))
    feed.write_atom(
        str(path), entries, title=f"{project} performance regressions", author=project, address=f"{project}.asv"
    )


def _bands(history: History, name: str, row: int | None) -> list[Band]:
    lines = history.lines.get(name)
    if lines is None or row is None:
        return []
    import numpy as np

    found = []
    revisions = np.asarray(history.revisions)
    for point in range(lines.values.shape[2]):
        low, high = lines.low[row, :, point], lines.high[row, :, point]
        read = lines.status[row, :, point] == OK
        kept = np.isfinite(low) & np.isfinite(high) & read
        found.append(Band(revisions[kept].tolist(), low[kept].tolist(), high[kept].tolist(), revisions[read].tolist()))
    return found


def _range(change: Change, order: Mapping[int, int]) -> tuple[int | None, int]:
    """asv's revisions of a change: the first is None where the change is surely one commit's."""
    last, first = order.get(change.last), order.get(change.first)
    single = last is not None and first is not None and first - last == 1
    return (None if single else change.last), change.first


def _size(change: Change) -> float:
    if change.before > 0 and change.after > 0:
        return abs(math.log(change.after / change.before))
    return abs(change.after - change.before)


def _rank(series: Series, change: Change, benchmark: Mapping[str, Any]) -> tuple[int, float, str, str, str]:
    return -change.first, -_size(change), _title(series.name, benchmark), series.point, _where(series)


def _title(name: str, benchmark: Mapping[str, Any]) -> str:
    title = str(benchmark.get("benchmark") or benchmark.get("pretty_name") or name)
    metric = str(benchmark.get("metric") or "")
    return f"{title} · {metric}" if metric else title


def _where(series: Series) -> str:
    return f"{series.place.gpu_type.label} ({series.place.machine})"


def _show(
    series: Series, change: Change, benchmark: Mapping[str, Any], history: History, order: Mapping[int, int]
) -> Shown:
    column = bisect.bisect_left(history.revisions, change.first)
    old = history.commits[bisect.bisect_left(history.revisions, change.last)]
    new = history.commits[column]
    single = _range(change, order)[0] is None
    unit = unit_of(benchmark)
    selection = {"machine": series.place.machine}
    if series.index is not None:
        values = next(itertools.islice(itertools.product(*benchmark["params"]), series.index, None))
        pairs = zip(benchmark["param_names"], values, strict=False)
        selection |= {f"p-{name}": str(value) for name, value in pairs}
    selection["commits"] = new if single else f"{old}-{new}"
    return Shown(
        title=_title(series.name, benchmark),
        point=series.point,
        where=_where(series),
        day=day(history.dates[column]),
        range=new[:8] if single else f"{old[:8]}..{new[:8]}",
        before=display.quantity(change.before, unit),
        after=display.quantity(change.after, unit),
        change=wording(change),
        link=history_link(series.name, series.point),
        graph=graph_link(series.name, selection),
        date=history.dates[column],
        machine=series.place.machine,
        commits=(old, new),
        name=series.name,
    )


def wording(change: Change) -> str:
    """`12 % higher`, `20 % lower`, `higher` where there is no share."""
    word = "higher" if change.after > change.before else "lower"
    if not change.before > 0:
        return word
    return f"{abs(change.times - 1) * 100:.3g} % {word}"


def by_line(series: Sequence[Series]) -> Iterator[tuple[tuple[str, str, Place], tuple[Change, ...]]]:
    """(benchmark, point, place) → changes, for the page of the history."""
    for each in series:
        yield (each.name, each.point, each.place), each.changes
