"""The page `changes.html`: what got worse or better, by what the Records show of the cause: nothing
but the commit can have changed it, known circumstances differ (card, host, driver, software stack),
or neither is certain."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from hpml_plugins.analysis.physics import depends_on_host
from hpml_plugins.model import formatting
from hpml_plugins.model.differences import differences, why_cause_is_open
from hpml_plugins.model.rounds import join_rounds
from hpml_plugins.report.reading import History, Outcome, stored_rounds
from hpml_plugins.report.site import svg
from hpml_plugins.report.site.changes import (
    Change,
    MeasuredSeries,
    Shift,
    count_judged,
)
from hpml_plugins.report.site.feed import write_feed
from hpml_plugins.report.site.matrix import colour_class
from hpml_plugins.report.site.nodes import Gaps
from hpml_plugins.report.site.page import SiteFolder, day, graph_link, point_link

#: Heading of a list → the text for an empty one.
LISTS = {
    "The code changed": "No change for which nothing but the commit can differ.",
    "Circumstances changed": "No change with another card, host, driver or software stack.",
    "Code or circumstances": "No change whose cause the Records leave open.",
}
#: Why the cause of a change of asv's own results is open.
NO_RECORDS = "asv's results do not tell the circumstances"
#: The most changes of each kind on the page, newest first.
LISTED = 100
#: The most steps of a change that are listed, largest first.
MOST_STEPS = 3
#: Size of a sparkline, px.
WIDTH = 140
HEIGHT = 26
#: Most values of a sparkline.
MOST_VALUES = 60


def write_changes(
    shifts: Mapping[str, Sequence[Shift]],
    left_out: Mapping[str, int],
    series: Sequence[MeasuredSeries],
    history: History,
    gaps: Sequence[Gaps],
    folder: SiteFolder,
) -> None:
    """Write the page, and the Atom feed of the open regressions and of what is missing.

    shifts: kind → changes.  left_out: see `find_suspected`.  series: those that were searched.
    """
    judged = count_judged(history, series)
    lists: dict[str, list[dict[str, Any]]] = {name: [] for name in LISTS}
    code, circumstances, either = lists.values()
    feed = []
    for kind, found in shifts.items():
        for shift in found[:LISTED]:
            shown = {**show_shift(shift, history), "kind": kind}
            if kind == "open regression":
                feed.append(shown)
            shown["spark"] = _spark(shift)
            known = circumstances if shown["differences"] else code
            (either if shown["open_cause"] else known).append(shown)
    write_feed(folder.html_dir / "regressions.xml", feed, folder.project, gaps, judged)
    folder.write_page(
        "changes.html",
        lists=lists,
        empty=LISTS,
        totals={kind: len(found) for kind, found in shifts.items()},
        listed=LISTED,
        looked=len(series),
        short=sum(each.short for each in judged),
        judged=judged,
        left_out=left_out,
        commit_url=folder.commit_url,
        outside=history.left_out,
    )


def show_shift(shift: Shift, history: History) -> dict[str, Any]:
    """A change in the form used by pages and the feed.

    commits: that of the change; or the last before and the first after it if others are between
    them.  against: the newest value, if it speaks against the change.  identity: independent of the
    numbers.
    """
    series = shift.series
    change = shift.change
    metric = series.metric
    machine = series.machine.name
    old = history.commit_of(change.last)
    new = history.commit_of(change.first)
    commits = [new] if change.first == change.last + 1 else [old, new]
    texts = metric.benchmark.points[series.label]
    selection = {"machine": machine, **({"branch": series.branch} if series.branch else {})}
    selection |= {f"p-{name}": text for name, text in texts.items()}
    date = history.date_of(change.first)
    sides = metric.at((change.last, change.first), series.label, machine, series.branch)
    newest = series.newest if change.is_undone_by(series.newest) else None
    differing, open_cause = explain([side for side in sides if side], metric.metric)
    return {
        "title": metric.title,
        "point": series.label,
        "where": series.where,
        "machine": machine,
        "date": date,
        "day": day(date),
        "commits": commits,
        "range": "..".join(commit[:8] for commit in commits),
        "before": formatting.quantity(change.before, metric.unit),
        "after": formatting.quantity(change.after, metric.unit),
        "against": "" if newest is None else formatting.quantity(newest, metric.unit),
        "also": ", ".join(shift.also),
        "change": change.wording,
        "bound": change.bound,
        "steps": describe_steps(change, history),
        "verdict": change.verdict,
        "differences": differing,
        "open_cause": open_cause,
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


def explain(sides: Sequence[Outcome], metric: str) -> tuple[str, str]:
    """What differs besides the commit, and, if nothing known does, why the cause is open all the
    same; both in words. sides: those before and after a change, each left out if unknown."""
    rounds = [stored_rounds(side) for side in sides if side.file]
    if len(rounds) < 2:
        return "", NO_RECORDS
    records = [join_rounds(each)[0] for each in rounds]
    found = differences(*records)
    told = "; ".join(map(str, found))
    if any(each.is_certain for each in found):
        return told, ""
    on_host = any(depends_on_host(each, metric) for each in records)
    return "", why_cause_is_open(*rounds, on_host=on_host) or told


def describe_steps(change: Change, history: History) -> str:
    """The steps of a change that has several: `in 2 steps: 1.10× (+10 %) at 1a2b3c4d, 1.05× (+5.0
    %) at 5e6f7a8b`."""
    if change.drifts:
        return "a steady drift"
    if not change.steps:
        return ""
    told = [
        f"{step.wording} {'up to' if step.drifts else 'at'}"
        f" {history.commit_of(step.first)[:8]}"
        for step in sorted(change.steps, key=operator.attrgetter("size"), reverse=True)[
            :MOST_STEPS
        ]
    ]
    more = ", …" if len(change.steps) > MOST_STEPS else ""
    return f"in {len(change.steps)} steps, the largest: {', '.join(told)}{more}"


def _line(shift: Shift) -> list[Outcome]:
    """The current outcome of each commit of the series that has a number."""
    series = shift.series
    line = series.metric.line(series.label, series.machine.name, series.branch)
    return [outcome for outcome, value in line if value]


def _spark(shift: Shift) -> Markup:
    """The newest values of the series, including the change."""
    line = _line(shift)[-MOST_VALUES:]
    metric = shift.series.metric
    values = [outcome.readings[metric.metric].value for outcome in line]
    if len(values) < 2:
        return Markup()
    dots = []
    for number, (outcome, value) in enumerate(zip(line, values, strict=True)):
        new = outcome.revision >= shift.change.first
        title = outcome.commit[:8]
        dots.append((number, value, shift.change.verdict if new else "", title))
    x = svg.PixelAxis(0, len(values) - 1, 6, WIDTH - 6)
    y = svg.PixelAxis.around(values, HEIGHT - 6, 6)
    drawn = [
        svg.marker("circle", x(at), y(value), 2.2, kind, title)
        for at, value, kind, title in dots
    ]
    kind = f"spark {colour_class(shift.series.machine.hardware)}"
    return svg.picture(kind, WIDTH, HEIGHT, formatting.counted(len(dots), "value"), drawn)
