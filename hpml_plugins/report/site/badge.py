"""`summary.json` and `badge.svg`: what the newest commit changed, for other programs and for a
README."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Sequence

import msgspec
from markupsafe import escape

from hpml_plugins.analysis.verdicts import ValuePair, compare_values
from hpml_plugins.report.reading import History
from hpml_plugins.report.site.changes import Judged
from hpml_plugins.report.site.data_files import INDEX
from hpml_plugins.report.site.page import SiteFolder, day
from hpml_plugins.terminal import escape_direction

#: The order in which they are listed.
_VERDICTS = ("WORSE", "BETTER", "BOUND", "AMBIGUOUS", "SAME")
#: Average width of a letter of 11 px Verdana, px.
LETTER = 6.6
#: Space around a text, px.
SPACE = 10
_BADGE = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{name}: {text}">
<title>{name}: {text}</title>
<rect width="{width}" height="20" rx="3" fill="#555"/>
<rect x="{left}" width="{right}" height="20" rx="3" fill="{colour}"/>
<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" text-anchor="middle">
<text x="{name_at}" y="14">{name}</text><text x="{text_at}" y="14">{text}</text>
</g>
</svg>
"""  # noqa: E501


def write_summary(
    history: History, folder: SiteFolder, judged: Sequence[Judged] = ()
) -> None:
    """Write both files.  judged: for each machine, how many values the search for level changes
    judges.

    They count the verdicts on the last measured commit of each machine against the previous one
    measured there, the values without another to compare with, and those whose point failed last.
    """
    pairs = []
    newest = 0
    once = 0
    failed = 0
    for metric in history.measured:
        benchmark = metric.benchmark
        for place in benchmark.index.lines():
            measured = (
                outcome.readings for outcome, value in metric.newest_first(*place) if value
            )
            values = list(itertools.islice(measured, 2))
            if len(values) > 1:
                at = benchmark.name, place
                pairs.append(ValuePair(at, values[1], values[0], metric.metric))
            once += len(values) == 1
            if last := next(metric.newest_first(*place), None):
                outcome, value = last
                newest += bool(value)
                failed += outcome.status == "failed"
    verdicts = dict.fromkeys(_VERDICTS, 0) | Counter(
        each.verdict for each in compare_values(pairs)
    )
    summary = {
        "project": folder.project,
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": history.commits[-1] if history.commits else "",
        "date": day(history.dates[-1]) if history.dates else "",
        "machines": [machine.name for machine in history.machines],
        "benchmarks": sum(any(each.index.lines().values()) for each in history.benchmarks),
        "values": newest,
        "verdicts": verdicts,
        "measured_once": once,
        "failed": failed,
        "branch": history.branches[0],
        "judged": {
            each.machine: {"values": each.judged, "not_judged": each.left_out}
            for each in judged
        },
        "left_out": {
            "records": history.outside.total(),
            "commits": sorted(history.outside),
        },
        "data": INDEX,
    }
    text = escape_direction(msgspec.json.format(msgspec.json.encode(summary)).decode())
    (folder.html_dir / "summary.json").write_text(f"{text}\n", encoding="utf-8")
    (folder.html_dir / "badge.svg").write_text(
        _draw(verdicts, failed, measured=bool(history.commits)), encoding="utf-8"
    )


def _draw(verdicts: dict[str, int], failed: int, *, measured: bool) -> str:
    name = "benchmarks"
    total = sum(verdicts.values())
    parts = [
        f"{verdicts[each]} {each.lower()}" for each in ("WORSE", "BETTER") if verdicts[each]
    ]
    if undecided := verdicts["BOUND"] + verdicts["AMBIGUOUS"]:
        parts.append(f"{undecided} of {total} undecided")
    if failed:
        parts.append(f"{failed} failed")
    nothing = "nothing compared" if measured else "nothing measured"
    text = ", ".join(parts) or ("no change" if total else nothing)
    judged = total and not undecided and not failed
    colour = "#c0392b" if verdicts["WORSE"] else "#2e7d32" if judged else "#777"
    left, right = (round(len(each) * LETTER + SPACE) for each in (name, text))
    return _BADGE.format(
        width=left + right,
        left=left,
        right=right,
        colour=colour,
        name=name,
        text=escape(text),
        name_at=left / 2,
        text_at=left + right / 2,
    )
