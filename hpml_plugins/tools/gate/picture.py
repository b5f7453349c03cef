"""The gate's outcome as a picture: the interval of each listed value beside its budget, as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

from hpml_plugins.model import counted, times
from hpml_plugins.terminal import printable
from hpml_plugins.tools.gate.pull_request import GateResult, spell_change
from hpml_plugins.tools.gate.sides import BASE, HEAD
from hpml_plugins.tools.gate.verdicts import GatedValue
from hpml_plugins.tools.templates import fill_template

#: Values that are drawn; the Markdown report has all.
MOST = 30
#: Where the scale is, in px, and the height of a row.
LEFT, RIGHT, ROW, TOP = 330, 650, 22, 74
#: Of the picture at least, of a letter of the headline, and of a tick's label, in px.
WIDTH, BOLD, LABEL = 960, 9, 44
#: Letters of a row's name, and ratios beyond which an interval is cut off, with an arrow.
LETTERS, FARTHEST = 42, 4.0
#: Ratios that may have a line.
_TICKS = (0.25, 0.5, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.25, 1.5, 2.0, 3.0, 4.0)


class DrawnValue(NamedTuple):
    """A value as it is drawn. low, high, at: px, None where there is no ratio; cut: whether the
    interval goes on at the left and the right."""

    name: str
    full_name: str
    text: str
    verdict: str
    y: float
    low: float | None
    high: float | None
    at: float | None
    budget: float | None
    cut: tuple[bool, bool]


def as_svg(result: GateResult) -> str:
    """A picture of the report; no text of the measured code is more than text in it."""
    shown = result.shown[:MOST]
    reach = _reach(shown)
    rows = [_row(value, number, reach) for number, value in enumerate(shown)]
    missing = len(result.shown) - len(shown)
    ticks = [(times(each), _place(each, reach)) for each in _ticks(reach)] if rows else []
    bottom = TOP + ROW * len(rows)
    return fill_template(
        "gate",
        "picture.svg.jinja",
        headline=_text(f"Benchmarks {result.headline}"),
        commits=_text(
            f"{result.commits.name(HEAD)} against {result.commits.name(BASE)}, on"
            f" {result.machine}"
        ),
        colour="#b3261e"
        if result.refused
        else "#8a6100"
        if result.not_judged
        else "#1b6e35",
        rows=rows,
        ticks=ticks,
        more=f"and {counted(missing, 'value')} more, in the report" if missing else "",
        top=TOP,
        bottom=bottom,
        width=max(WIDTH, 36 + BOLD * len(result.headline) + 11 * BOLD),
        height=bottom + (44 if rows else 0),
        one=_place(1.0, reach),
    )


def _text(text: str) -> Markup:
    return escape(printable(text))


def _reach(values: Sequence[GatedValue]) -> float:
    """The ratio at the scale's ends: 1 / reach to reach."""
    bounds = [
        abs(math.log(each)) for value in values for each in value.interval or () if each
    ]
    budgets = [math.log1p(value.budget) for value in values]
    farthest = 1.1 * max([*bounds, *budgets, 0.05])
    return math.exp(min(farthest, math.log(FARTHEST)))


def _ticks(reach: float) -> list[float]:
    """Ratios whose labels leave room for each other; 1 is one."""
    found = [1.0]
    for each in sorted(_TICKS, key=lambda ratio: abs(math.log(ratio))):
        apart = min(abs(_place(each, reach) - _place(other, reach)) for other in found)
        if 1 / reach <= each <= reach and apart >= LABEL:
            found.append(each)
    return sorted(found)


def _place(ratio: float, reach: float) -> float:
    share = (math.log(max(ratio, 1e-300)) / math.log(reach) + 1) / 2
    return round(LEFT + (RIGHT - LEFT) * min(max(share, 0.0), 1.0), 1)


def _row(value: GatedValue, number: int, reach: float) -> DrawnValue:
    name = " ".join(filter(None, (value.benchmark, value.point, value.metric)))
    low, high = value.interval or (None, None)
    return DrawnValue(
        name=_text(name if len(name) <= LETTERS else f"{name[: LETTERS - 1]}…"),
        full_name=_text(name),
        text=_text(spell_change(value)),
        verdict="faster" if value.outcome == "within" else value.outcome,
        y=TOP + ROW * number + ROW / 2,
        low=None if low is None else _place(low, reach),
        high=None if high is None else _place(high, reach),
        at=None if value.slower is None else _place(value.slower, reach),
        budget=None if value.slower is None else _place(1 + value.budget, reach),
        cut=(low is not None and low < 1 / reach, high is not None and high > reach),
    )
