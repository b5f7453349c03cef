"""The gate's outcome as a picture: the interval of each listed value beside its budget, as SVG."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from hpml_plugins.model import counted, times
from hpml_plugins.tools.gate.pull_request import GateResult, format_change
from hpml_plugins.tools.gate.sides import BASE, HEAD
from hpml_plugins.tools.gate.verdicts import GatedValue
from hpml_plugins.tools.templates import fill_template

#: The most values that are drawn; the Markdown report has all.
MOST = 30
#: Left and right end of the scale, px.
LEFT = 330
RIGHT = 650
#: Height of a row, px.
ROW = 22
#: Top of the first row, px.
TOP = 74
#: Least width of the picture, px.
WIDTH = 960
#: Width of a letter of the headline, px.
BOLD = 9
#: Width of a tick's label, px.
LABEL = 44
#: The most letters of a row's name.
LETTERS = 42
#: An interval that reaches beyond this ratio is cut off, with an arrow.
FARTHEST = 4.0
#: Ratios that may have a line.
_TICKS = (0.25, 0.5, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.25, 1.5, 2.0, 3.0, 4.0)


def as_svg(result: GateResult) -> str:
    """A picture of the report; all text of the measured code is escaped."""
    shown = result.shown[:MOST]
    reach = _reach(shown)
    names = (result.commits.name(side) for side in (HEAD, BASE))
    return fill_template(
        "gate",
        "picture.svg.jinja",
        result=result,
        headline=f"Benchmarks {result.headline}",
        commits=f"{' against '.join(names)}, on {result.machine}",
        shown=shown,
        missing=len(result.shown) - len(shown),
        reach=reach,
        place=functools.partial(_place, reach=reach),
        ticks=_ticks(reach) if shown else [],
        counted=counted,
        format_change=format_change,
        times=times,
        top=TOP,
        row=ROW,
        bottom=TOP + ROW * len(shown),
        width=max(WIDTH, 36 + BOLD * len(result.headline) + 11 * BOLD),
        letters=LETTERS,
    )


def _reach(values: Sequence[GatedValue]) -> float:
    """The ratio at the scale's ends: 1 / reach to reach."""
    bounds = [abs(math.log(each)) for value in values for each in value.interval or ()]
    budgets = [math.log1p(value.budget) for value in values]
    farthest = 1.1 * max([*bounds, *budgets, 0.05])
    return math.exp(min(farthest, math.log(FARTHEST)))


def _ticks(reach: float) -> list[float]:
    """Ratios whose labels do not overlap, including 1."""
    found = [1.0]
    for each in sorted(_TICKS, key=lambda ratio: abs(math.log(ratio))):
        apart = min(abs(_place(each, reach) - _place(other, reach)) for other in found)
        if 1 / reach <= each <= reach and apart >= LABEL:
            found.append(each)
    return sorted(found)


def _place(ratio: float, reach: float) -> float:
    share = (math.log(ratio) / math.log(reach) + 1) / 2
    return round(LEFT + (RIGHT - LEFT) * min(max(share, 0.0), 1.0), 1)
