"""A table of tasks by GPU type, as pages write it: which types are its columns, what stands in a
cell, and the verdict of each type against a base."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpml_plugins.analysis.verdicts import DIFFERENT_PROBLEMS, MARGIN, Difference
from hpml_plugins.model import formatting
from hpml_plugins.published import find_gpu
from hpml_plugins.report.charts import COLOURS, look
from hpml_plugins.report.reading import Hardware, History
from hpml_plugins.report.site.matrix import Matrix
from hpml_plugins.report.site.page import fill
from hpml_plugins.report.site.tasks import RowDifference, TaskCell, TaskRow, texts

#: Verdict → class in the style sheet, and words after the ratio.
VERDICTS = {
    "BETTER": ("better", "▲ faster"),
    "WORSE": ("worse", "▼ slower"),
    "SAME": ("same", f"= same within {100 * MARGIN:g} %"),
    "BOUND": ("open", "? not decided"),
    "AMBIGUOUS": ("open", "no verdict"),
}
#: The picture of ratios reaches from 1 over the largest to it, within these bounds.
LEAST_REACH, MOST_REACH = 1.1, 4.0
#: Published figures in the head of a column: field of GpuType, unit.
PEAKS = (("memory", "B"), ("bandwidth", "B/s"), ("power", "W"))
#: What a value's regime is called.
REGIMES = {"sustained": "settled clocks", "boost": "first moments"}


@dataclass(frozen=True)
class TypeColumn:
    """A column.  number: its place in the matrix.  colour: its class in the style sheet.

    facts: published figures.  count: GPUs of a machine.  cards: distinct cards that measured; 0
    where no Record tells.
    """

    number: int
    label: str
    colour: str
    facts: str
    count: int
    machines: int
    cards: int
    price: float | None


def colour_class(hardware: Hardware) -> str:
    """The class of a type's colour in the style sheet, the same on every page."""
    return f"look{COLOURS.index(look(hardware.name, hardware.count).colour)}"


def type_column(
    number: int, matrix: Matrix, cards: Mapping[str, Collection[str]]
) -> TypeColumn:
    """A column of the matrix.  cards: see `cards_of_machines`."""
    column = matrix.columns[number]
    known = find_gpu(column.hardware.gpu) if column.hardware.kind == 0 else None
    figures = [(getattr(known, name), unit) for name, unit in PEAKS] if known else []
    facts = [formatting.quantity(value, unit) for value, unit in figures if value]
    measured = set[str]().union(*(cards.get(machine, ()) for machine in column.machines))
    return TypeColumn(
        number,
        column.hardware.label,
        colour_class(column.hardware),
        " · ".join(facts),
        column.hardware.count,
        len(column.machines),
        len(measured),
        column.price,
    )


def cards_of_machines(history: History) -> dict[str, set[str]]:
    """Machine → the UUIDs of the GPUs that measured anything there."""
    found: dict[str, set[str]] = {}
    for benchmark in history.benchmarks:
        for point, machine in benchmark.index:
            cards = found.setdefault(machine, set())
            for outcome in benchmark.index.on_line((point, machine)):
                if outcome.readings:
                    cards.update(next(iter(outcome.readings.values())).card.split(","))
    return {
        machine: {card for card in cards if card.startswith(("GPU-", "MIG-"))}
        for machine, cards in found.items()
    }


def within(rows: Sequence[TaskRow], numbers: Collection[int]) -> list[TaskRow]:
    """The rows without the cells of other columns, and without those that only others have."""
    kept = []
    for row in rows:
        cells = {number: cell for number, cell in row.cells.items() if number in numbers}
        if cells or not row.cells:
            kept.append(dataclasses.replace(row, cells=cells))
    return kept


def choose_pair(rows: Sequence[TaskRow], numbers: Sequence[int]) -> tuple[int, int] | None:
    """The two types with most rows in common, the first of the columns before others; None where no
    two have any."""
    shared = {
        pair: sum(pair[0] in row.cells and pair[1] in row.cells for row in rows)
        for pair in itertools.combinations(numbers, 2)
    }
    best = max(shared, key=lambda pair: (shared[pair], -pair[0], -pair[1]), default=None)
    return best if best is not None and shared[best] else None


def reach_of(verdicts: Mapping[int, Mapping[int, Mapping[int, Difference]]]) -> float:
    """The ratio at the end of all pictures: the largest of all intervals, either way."""
    ends = [
        end
        for of_base in verdicts.values()
        for of_other in of_base.values()
        for found in of_other.values()
        if found.interval
        for end in found.interval
        if end > 0
    ]
    largest = max((max(end, 1 / end) for end in ends), default=LEAST_REACH)
    return min(max(largest, LEAST_REACH), MOST_REACH)


def verdict_fragments(
    rows: Sequence[TaskRow],
    verdicts: Mapping[int, Mapping[int, RowDifference]],
    reach: float,
) -> dict[int, dict[int, str]]:
    """Column → row → the verdict against the base as a piece of the page."""
    return {
        other: {
            number: fill("verdict.html", **show_verdict(rows[number], found, reach))
            for number, found in of_other.items()
        }
        for other, of_other in verdicts.items()
    }


def show_verdict(row: TaskRow, found: RowDifference, reach: float) -> dict[str, Any]:
    """A verdict as `verdict.html` writes it."""
    kind, words = VERDICTS[found.verdict]
    wording = found.full_wording(row.metric.unit)
    if wording.startswith(DIFFERENT_PROBLEMS):
        words, wording = "different problems", wording.removeprefix(DIFFERENT_PROBLEMS)

    def place(ratio: float) -> float:
        """On a logarithmic line of 100 units, of which the middle is 1."""
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


def show_cell(row: TaskRow, cell: TaskCell) -> dict[str, Any]:
    """A cell as the page writes it."""
    unit, value = row.metric.unit, cell.number.value
    text, interval = texts(cell, unit)
    is_rate = unit == "Hz" or unit.endswith("/s")
    joule = ""
    if cell.watts:
        joule = (
            formatting.quantity(value / cell.watts, unit).replace("/s", "/J")
            if is_rate
            else formatting.quantity(value * cell.watts, "J")
        )
    return {
        "text": text,
        "interval": interval,
        "regime": REGIMES.get(cell.number.regime, ""),
        "cards": cell.cards,
        "share": None if cell.share is None else round(100 * cell.share),
        "joule": joule,
        "watts": cell.watts,
        "value": f"{value:.7g}",
        "per": "rate" if is_rate else "time" if unit == "s" else "",
        "unit": formatting.shown_unit(unit).label,
    }
