"""The Atom feed `regressions.xml`: open regressions, what is no longer measured, and how much is
not judged."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from hpml_plugins.model import formatting
from hpml_plugins.report.site.changes import Judged
from hpml_plugins.report.site.nodes import Gaps
from hpml_plugins.report.site.page import day, fill
from hpml_plugins.terminal import printable


def write_feed(
    path: Path,
    shown: Sequence[Mapping[str, Any]],
    project: str,
    gaps: Iterable[Gaps] = (),
    judged: Iterable[Judged] = (),
) -> None:
    """Write the Atom feed with asv's writer. Control characters, which XML mostly cannot represent,
    are escaped.

    judged: a machine with values that are not judged has an entry on its newest commit's day.
    shown: see `show_shift`.  gaps: a stale machine, and each benchmark with points no longer
    measured on a machine, has an entry on the day of the last measurement; a machine with failed
    points one on its newest commit's day.
    """
    from asv import feed

    entries = []
    for each in shown:
        title = f"{each['change']}: {each['title']} {each['point']}".strip()
        plain = {
            name: printable(value) if isinstance(value, str) else value
            for name, value in each.items()
        }
        text = fill("feed_change.html", **plain)
        identity = each["identity"]
        entries.append(
            (f"{title} on {each['where']}", each["link"], each["date"], identity, text)
        )
    for gap in gaps:
        entries += [(*entry, "") for entry in _gap_entries(gap)]
    for count in judged:
        if count.left_out:
            title = f"{count.machine}: {count.wording}"
            identity = ["not judged", count.machine]
            entries.append((title, "changes.html", count.last, identity, ""))
    written = []
    for title, link, date, identity, text in entries:
        title = printable(title)
        link = printable(link)
        when = datetime.datetime.fromtimestamp(date / 1000, datetime.UTC)
        text = printable(text) or f'<a href="{link}">{escape(title)}</a>'
        told = list(map(printable, identity))
        written.append(
            feed.FeedEntry(title, when.replace(tzinfo=None), link, text, told, when)
        )
    project = printable(project)
    title = f"{project} performance regressions"
    feed.write_atom(
        str(path), written, title=title, author=project, address=f"{project}.asv"
    )


def _gap_entries(gap: Gaps) -> Iterator[tuple[str, str, float, list[str]]]:
    """Title, address, date and identity of what is missing on a machine."""
    link = f"evidence.html#{gap.anchor}"
    if gap.stale:
        title = f"{gap.name}: not measured since {day(gap.last)}"
        yield title, link, gap.last, ["missing", gap.name, ""]
    for benchmark, points in gap.dropped.items():
        last = max(date for _, _, date, _ in points)
        what = f"{formatting.counted(len(points), 'point')} of {benchmark} no longer"
        title = f"{gap.name}: {what} measured since {day(last)}"
        yield title, link, last, ["missing", gap.name, benchmark]
    if gap.failed:
        title = f"{gap.name}: {formatting.counted(gap.failed, 'point')} failed"
        yield title, link, gap.last, ["failed", gap.name]
