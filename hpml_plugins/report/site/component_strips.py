"""A picture of the cards of each type by class of values: a line for each type, a dot for each
card."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from markupsafe import Markup

from hpml_plugins.analysis.physics import ON_GPU
from hpml_plugins.report.site.components import ENOUGH, CardReading
from hpml_plugins.report.site.strips import Strip, draw_strips

#: A card is named as an outlier if it is further from the median of its type than this many median
#: absolute deviations, and further than LEAST. Source: 1.4826 median absolute deviations equal one
#: standard deviation of normal values (Rousseeuw and Croux 1993); beyond three is an outlier.
UNLIKE = 3 * 1.4826
#: Relative difference below which no card is an outlier.
LEAST = 0.005


def draw_components(cards: Sequence[CardReading]) -> Markup:
    """The picture as SVG; empty if no type has enough cards.

    Only for classes that a GPU determines: if the host takes part, cards differ by its rate, which
    would flatten everything else.
    """
    lines: dict[tuple[str, str], list[CardReading]] = {}
    for each in cards:
        if each.component in ON_GPU:
            lines.setdefault((each.component, each.hardware), []).append(each)
    told = {key: found for key, found in sorted(lines.items()) if len(found) >= ENOUGH}
    if not told:
        return Markup()
    drawn = list(map(_strip, told.values()))
    axis = [each.times for found in told.values() for each in found]
    about = "Each card relative to the others of its type; above 1 is better"
    return draw_strips(drawn, axis, "1", about, left=330, height=26)


def _strip(cards: Sequence[CardReading]) -> Strip:
    """The line of the cards of one type in one class."""
    first = cards[0]
    label = f"{first.component}, {first.hardware.removeprefix('NVIDIA ')}"
    dots = [(each.times, _told(each)) for each in cards]
    names = [(each.times, each.card) for each in unlike_all(cards)]
    return Strip(label[:54], first.colour, dots, names)


def _told(each: CardReading) -> str:
    return f"{each.card}: {each.times:.3f}× of {each.values} values"


def unlike_all(cards: Sequence[CardReading]) -> list[CardReading]:
    """The slowest and the fastest card of one type and class, if they are outliers; of two cards
    that were compared with one another alone, neither is."""
    levels = [math.log(each.times) for each in cards]
    middle = statistics.median(levels)
    usual = statistics.median(abs(level - middle) for level in levels)
    limit = max(UNLIKE * usual, LEAST)
    ends = {levels.index(min(levels)), levels.index(max(levels))}
    return [
        cards[end]
        for end in sorted(ends)
        if abs(levels[end] - middle) > limit and cards[end].others >= ENOUGH - 1
    ]
