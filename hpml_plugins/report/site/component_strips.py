"""The picture of how the cards of each type read, by class of values: a line for each type, a dot
for each card."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from markupsafe import Markup, escape

from hpml_plugins.analysis.physics import ON_GPU
from hpml_plugins.report.site import svg
from hpml_plugins.report.site.components import ENOUGH, CardReading

#: px.
WIDTH, LEFT, RIGHT, LINE, TOP, BOTTOM = 920, 330, 20, 26, 8, 26
#: A card is named if it is further from the median of its type than UNLIKE median absolute
#: deviations, and than LEAST. Source: 1.4826 median absolute deviations are a standard deviation of
#: normal values (Rousseeuw and Croux 1993); beyond three of these is an outlier.
UNLIKE, LEAST = 3 * 1.4826, 0.005


def draw_components(cards: Sequence[CardReading]) -> Markup:
    """The picture as SVG; empty where no type has enough cards.

    Only of what a GPU decides: where the host takes part cards differ by its rate, which would
    flatten all else.
    """
    lines: dict[tuple[str, str], list[CardReading]] = {}
    for each in cards:
        if each.component in ON_GPU:
            lines.setdefault((each.component, each.hardware), []).append(each)
    told = {key: found for key, found in sorted(lines.items()) if len(found) >= ENOUGH}
    if not told:
        return Markup()
    axis = svg.extent(
        [each.times for found in told.values() for each in found], logarithmic=False
    )
    x = svg.scale(axis, LEFT, WIDTH - RIGHT, logarithmic=False)
    floor = TOP + LINE * len(told)
    parts = []
    for value in svg.ticks(axis, logarithmic=False):
        parts.append(svg.line(x(value), TOP, x(value), floor, "grid"))
        parts.append(svg.text(x(value), floor + 16, f"{value:.3g}×", "tick", "middle"))
    for number, ((component, hardware), found) in enumerate(told.items()):
        y = TOP + LINE * number + LINE // 2
        label = f"{component}, {hardware.removeprefix('NVIDIA ')}"
        parts.append(svg.text(LEFT - 10, y + 4, label[:54], "card", "end"))
        for each in found:
            title = f"{each.card}: {each.times:.3f}× of {each.values} values"
            parts.append(
                f'<circle class="{each.colour}" cx="{x(each.times):g}" cy="{y}" r="4">'
                f"<title>{escape(title)}</title></circle>"
            )
        parts += [
            svg.text(x(each.times), y - 7, each.card, "name", "middle")
            for each in unlike_all(found)
        ]
    about = "How many times better each card reads than the others of its type"
    return Markup(svg.picture(parts, WIDTH, floor + BOTTOM, "strip", about))


def unlike_all(cards: Sequence[CardReading]) -> list[CardReading]:
    """The slowest and the fastest card of one type and class, where they read unlike the others."""
    levels = [math.log(each.times) for each in cards]
    middle = statistics.median(levels)
    usual = statistics.median(abs(level - middle) for level in levels)
    limit = max(UNLIKE * usual, LEAST)
    ends = {levels.index(min(levels)), levels.index(max(levels))}
    return [cards[end] for end in sorted(ends) if abs(levels[end] - middle) > limit]
