"""The table of tasks by GPU type on pages: the contents of cells, and the verdict on each type
against a base."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from hpml_plugins.analysis.verdicts import DIFFERENT_PROBLEMS, MARGIN, Difference
from hpml_plugins.model import formatting
from hpml_plugins.report.site.joules import per_joule
from hpml_plugins.report.site.matrix import TaskRow
from hpml_plugins.report.site.page import fill
from hpml_plugins.report.site.tasks import RowDifference, texts

#: Verdict → class in the style sheet, and words after the ratio.
VERDICTS = {
    "BETTER": ("better", "▲ faster"),
    "WORSE": ("worse", "▼ slower"),
    "SAME": ("same", f"= same within {100 * MARGIN:g} %"),
    "BOUND": ("open", "? not decided"),
    "AMBIGUOUS": ("open", "no verdict"),
}
#: The picture of ratios ranges from 1 / r to r, where r is at least this and at least the
#: largest bound of a ratio.
LEAST_REACH = 1.1
MOST_REACH = 4.0
#: Regime → its name for readers.
REGIMES = {"sustained": "settled clocks", "boost": "boost clocks"}


def within(rows: Sequence[TaskRow], numbers: Collection[int]) -> list[TaskRow]:
    """The rows limited to these columns; rows without a cell in them are left out."""
    kept = []
    for row in rows:
        cells = {number: cell for number, cell in row.cells.items() if number in numbers}
        if cells or not row.cells:
            kept.append(dataclasses.replace(row, cells=cells))
    return kept


def choose_pair(rows: Sequence[TaskRow], numbers: Sequence[int]) -> tuple[int, int] | None:
    """The two types with most rows in common, preferring the first columns; None if no two have
    any."""
    shared = {
        pair: sum(pair[0] in row.cells and pair[1] in row.cells for row in rows)
        for pair in itertools.combinations(numbers, 2)
    }
    best = max(shared, key=lambda pair: (shared[pair], -pair[0], -pair[1]), default=None)
    return best if best is not None and shared[best] else None


def reach_of(verdicts: Mapping[int, Mapping[int, Mapping[int, Difference]]]) -> float:
    """The ratio at the end of all pictures: the largest bound of all intervals, in either
    direction."""
    largest = LEAST_REACH
    of_pairs = itertools.chain.from_iterable(each.values() for each in verdicts.values())
    for found in itertools.chain.from_iterable(each.values() for each in of_pairs):
        for end in found.interval or ():
            if end > 0:
                largest = max(largest, end, 1 / end)
    return min(largest, MOST_REACH)


def verdict_fragments(
    rows: Sequence[TaskRow],
    verdicts: Mapping[int, Mapping[int, RowDifference]],
    reach: float,
) -> dict[int, dict[int, str]]:
    """Column → row → the verdict against the base as an HTML fragment."""
    fragments: dict[int, dict[int, str]] = {}
    for other, of_other in verdicts.items():
        of_column = fragments[other] = {}
        for number, found in of_other.items():
            shown = show_verdict(rows[number], found, reach)
            of_column[number] = fill("verdict.html", **shown)
    return fragments


def show_verdict(row: TaskRow, found: RowDifference, reach: float) -> dict[str, Any]:
    """A verdict in the form used by `verdict.html`."""
    kind, words = VERDICTS[found.verdict]
    wording = found.full_wording(row.metric.unit)
    if wording.startswith(DIFFERENT_PROBLEMS):
        words = "different problems"
        wording = wording.removeprefix(DIFFERENT_PROBLEMS)

    def place(ratio: float) -> float:
        """The position on a logarithmic line of 100 units, whose middle is 1."""
        share = (1 + math.log(max(ratio, 1e-9)) / math.log(reach)) / 2
        return round(100 * min(max(share, 0.0), 1.0), 1)

    interval = found.interval
    return {
        "kind": kind,
        "words": words,
        "ratio": "" if found.times is None else formatting.change(found.times),
        "wording": wording,
        "compared": found.compared,
        "interval": interval,
        "ends": [place(end) for end in interval] if interval else [],
        "at": None if found.times is None else place(found.times),
    }


def show_cells(row: TaskRow) -> dict[int, dict[str, Any]]:
    """Column → its cell in the form used by the page."""
    return {number: show_cell(row, number) for number in row.cells}


def show_cell(row: TaskRow, column: int) -> dict[str, Any]:
    """A cell in the form used by the page."""
    cell = row.cells[column]
    unit = row.metric.unit
    text, interval = texts(cell, unit)
    joules = per_joule(row, column)
    return {
        "text": text,
        "interval": interval,
        "regime": REGIMES.get(cell.number.regime, ""),
        "cards": cell.cards,
        "left_out": row.left_out(column),
        "share": None if cell.share is None else round(100 * cell.share),
        "joule": joules.texts if joules else (),
        "joule_cards": len(joules.cards) if joules else 0,
        "value": f"{cell.number.value:.7g}",
        "unit": formatting.shown_unit(unit).label,
    }
