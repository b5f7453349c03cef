"""The page `changes.html`: what got worse or better, in two lists. Where nothing but the commit
differs the code changed; else the circumstances did: card, host, driver, software stack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from hpml_plugins.model.formatting import counted
from hpml_plugins.report.reading import History, Outcome
from hpml_plugins.report.site import svg
from hpml_plugins.report.site.matrix import colour_class
from hpml_plugins.report.site.nodes import Gaps
from hpml_plugins.report.site.page import write_page
from hpml_plugins.report.site.regressions import (
    LISTED,
    MeasuredSeries,
    Shift,
    count_judged,
    show_shift,
    write_feed,
)

#: Heading of a list → what an empty one means.
LISTS = {
    "The code changed": "No change for which nothing but the commit differs.",
    "Circumstances changed": "No change beside another card, host, driver or software stack.",
}
#: Of a sparkline: px, and values.
WIDTH, HEIGHT, MOST_VALUES = 140, 26, 60


def write_changes(
    shifts: Mapping[str, Sequence[Shift]],
    left_out: Mapping[str, int],
    series: Sequence[MeasuredSeries],
    history: History,
    gaps: Sequence[Gaps],
    html_dir: Path,
    project: str,
    commit_url: str,
) -> None:
    """Write the page, and the Atom feed of the open regressions and of what is missing.

    shifts: kind → changes.  left_out: see `find_suspected`.  series: those that were looked at.
    commit_url: see `page.commit_links`.
    """
    judged = count_judged(history, series)
    lists: dict[str, list[dict[str, Any]]] = {name: [] for name in LISTS}
    code, circumstances = lists.values()
    feed = []
    for kind, found in shifts.items():
        for shift in found[:LISTED]:
            shown = {**show_shift(shift, history), "kind": kind}
            feed += [shown] if kind == "open regression" else []
            shown["spark"] = _spark(shift, history)
            (circumstances if shown["differences"] else code).append(shown)
    write_feed(html_dir / "regressions.xml", feed, project, gaps, judged)
    write_page(
        html_dir,
        "changes.html",
        project=project,
        lists=lists,
        empty=LISTS,
        totals={kind: len(found) for kind, found in shifts.items()},
        listed=LISTED,
        looked=len(series),
        judged=judged,
        left_out=left_out,
        commit_url=commit_url,
        outside=history.left_out,
    )


def _line(shift: Shift) -> list[Outcome]:
    """What counts of each commit of the series, where it has a number."""
    series = shift.series
    line = series.metric.line(series.label, series.machine.name, series.branch)
    return [outcome for outcome, value in line if value]


def _spark(shift: Shift, history: History) -> Markup:
    """The newest values of the series, the change among them."""
    line = _line(shift)[-MOST_VALUES:]
    metric = shift.series.metric
    values = [outcome.readings[metric.metric].value for outcome in line]
    if len(values) < 2:
        return Markup()
    dots = []
    for number, (outcome, value) in enumerate(zip(line, values, strict=True)):
        new = outcome.revision >= shift.change.first
        title = history.commits[history.columns[outcome.revision]][:8]
        dots.append((number, value, shift.change.verdict if new else "", title))
    x = svg.PixelAxis(0, len(values) - 1, 6, WIDTH - 6)
    y = svg.PixelAxis.around(values, HEIGHT - 6, 6)
    drawn = [
        svg.marker("circle", x(at), y(value), 2.2, f"value {kind}", title)
        for at, value, kind, title in dots
    ]
    kind = f"spark {colour_class(shift.series.machine.hardware)}"
    return svg.picture(kind, WIDTH, HEIGHT, counted(len(dots), "value"), drawn)
