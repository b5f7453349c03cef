"""The first page, `index.html`: four answers, then GPU types by workload, each with its interval,
its share of the published peak, and the ratio to a base with its bound.

Its script reads `compare/verdicts-N.js` when a reader chooses another base, and `compare/row-N.js`,
the cards and Records behind a row, when he opens one.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpml_plugins.analysis.verdicts import DIFFERENT_PROBLEMS, MARGIN, Difference
from hpml_plugins.model import formatting
from hpml_plugins.published import find_gpu
from hpml_plugins.registry import Task
from hpml_plugins.report.reading import History
from hpml_plugins.report.site import answers
from hpml_plugins.report.site.card_strips import TypeStrip, draw
from hpml_plugins.report.site.gpu_types import Matrix
from hpml_plugins.report.site.nodes import Gaps
from hpml_plugins.report.site.page import (
    day,
    fill,
    history_link,
    run_command,
    write_data,
    write_page,
)
from hpml_plugins.report.site.regressions import Judged, Shift
from hpml_plugins.report.site.tasks import TaskCell, TaskRow, describe, find_rows, judge_rows, texts

#: Columns of the table; further types are on the page of all points.
MOST_TYPES = 6
#: The folder of what the page's script reads.
FOLDER = "compare"
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


@dataclass(frozen=True)
class TypeColumn:
    """A column.  number: its place in the matrix.  colour: its class in the style sheet.

    facts: published figures.  cards: distinct cards that measured; 0 where no Record tells.
    """

    number: int
    label: str
    colour: str
    facts: str
    count: int
    machines: int
    cards: int
    price: float | None


def write_compare_page(
    history: History,
    matrix: Matrix,
    tasks: dict[str, list[Task]],
    shifts: Mapping[str, Sequence[Shift]],
    judged: Sequence[Judged],
    gaps: Sequence[Gaps],
    html_dir: Path,
    project: str,
) -> list[str]:
    """Write the page and the data of its script; returns what is wrong with tasks of the registry,
    one line each."""
    rows, problems = find_rows(tasks, history, matrix)
    columns = _columns(rows, matrix, history)
    numbers = [column.number for column in columns]
    rows = _within(rows, numbers)
    names = [column.hardware.label for column in matrix.columns]
    pair = _pair(rows, numbers)
    verdicts = {
        base: {other: judge_rows(rows, base, other) for other in numbers if other != base}
        for base in numbers
    }
    base = pair[0] if pair else next(iter(numbers), 0)
    of_pair = verdicts[pair[0]][pair[1]] if pair else {}
    shown = numbers[:2] if pair is None else list(pair)
    records = sum(
        len(outcomes)
        for benchmark in history.benchmarks
        for outcomes in (*benchmark.outcomes.values(), *benchmark.outside.values())
    )
    found = [
        answers.which_gpu(rows, names, pair, of_pair),
        answers.how_close(rows, names, shown),
        answers.has_it_slowed(shifts, judged),
        answers.can_i_trust(
            rows, names, shown, records, {each.number: each.cards for each in columns}, len(gaps)
        ),
    ]
    shutil.rmtree(html_dir / FOLDER, ignore_errors=True)  # of an earlier publish
    reach = _reach(verdicts)
    fragments = {each: _fragments(rows, of_base, reach) for each, of_base in verdicts.items()}
    for each, of_base in fragments.items():
        write_data(html_dir, f"{FOLDER}/verdicts-{each}.js", of_base)
    for number, row in enumerate(rows):
        if row.cells:
            write_data(html_dir, f"{FOLDER}/row-{number}.js", _drawer(row, columns))
    sections = [
        (section, [(number, row) for number, row in enumerate(rows) if row.section == section])
        for section in dict.fromkeys(row.section for row in rows)
    ]
    write_page(
        html_dir,
        "index.html",
        project=project,
        answers=found,
        columns=columns,
        base=base,
        sections=sections,
        cells=[{number: _show(row, cell) for number, cell in row.cells.items()} for row in rows],
        fragments=fragments.get(base, {}),
        describe=describe,
        reach=formatting.times(reach),
        points=sum(len(group.rows) for group in matrix.groups),
        types=len(matrix.columns),
        hidden=[each for each in names if each not in {column.label for column in columns}],
        commits=len(history.commits),
        newest=day(history.dates[-1]) if history.dates else "",
        machines=len(history.machines),
        currency=matrix.currency,
        outside=history.left_out_of_first,
    )
    return problems


def _columns(rows: Sequence[TaskRow], matrix: Matrix, history: History) -> list[TypeColumn]:
    """The types that have a value in some row: GPUs where there are any, those with most rows
    first, the base of the matrix before others with as many."""
    counts = {
        number: sum(number in row.cells for row in rows) for number in range(len(matrix.columns))
    }
    kinds = [matrix.columns[number].hardware.kind for number, count in counts.items() if count]
    kind = min(kinds, default=0)
    fitting = [
        number
        for number, count in counts.items()
        if count and matrix.columns[number].hardware.kind == kind
    ]
    fitting.sort(key=lambda number: (-counts[number], number not in matrix.chosen, number))
    chosen = sorted(fitting[:MOST_TYPES])
    return [_column(number, place, matrix, history) for place, number in enumerate(chosen)]


def _within(rows: Sequence[TaskRow], numbers: Sequence[int]) -> list[TaskRow]:
    """The rows without the cells of other columns; those that only others have are left to the page
    of all points."""
    kept = []
    for row in rows:
        cells = {number: cell for number, cell in row.cells.items() if number in numbers}
        if cells or not row.cells:
            kept.append(dataclasses.replace(row, cells=cells))
    return kept


def _column(number: int, place: int, matrix: Matrix, history: History) -> TypeColumn:
    column = matrix.columns[number]
    known = find_gpu(column.hardware.gpu) if column.hardware.kind == 0 else None
    figures = [(getattr(known, name), unit) for name, unit in PEAKS] if known else []
    facts = [formatting.quantity(value, unit) for value, unit in figures if value]
    return TypeColumn(
        number,
        column.hardware.label,
        f"type{place}",
        " · ".join(facts),
        column.hardware.count,
        len(column.machines),
        len(_cards(column.machines, history)),
        column.price,
    )


def _cards(machines: Sequence[str], history: History) -> set[str]:
    """The UUIDs of the GPUs that measured anything on these machines."""
    seen = {
        next(iter(outcome.readings.values())).card
        for benchmark in history.benchmarks
        for (_, machine), outcomes in benchmark.outcomes.items()
        if machine in machines
        for outcome in outcomes
        if outcome.readings
    }
    return {
        card for cards in seen for card in cards.split(",") if card.startswith(("GPU-", "MIG-"))
    }


def _pair(rows: Sequence[TaskRow], numbers: Sequence[int]) -> tuple[int, int] | None:
    """The two types with most rows in common, the first of the columns before others; None where no
    two have any."""
    shared = {
        pair: sum(pair[0] in row.cells and pair[1] in row.cells for row in rows)
        for pair in itertools.combinations(numbers, 2)
    }
    best = max(shared, key=lambda pair: (shared[pair], -pair[0], -pair[1]), default=None)
    return best if best is not None and shared[best] else None


def _fragments(
    rows: Sequence[TaskRow], verdicts: Mapping[int, Mapping[int, Difference]], reach: float
) -> dict[int, dict[int, str]]:
    """Column → row → the verdict against the base as a piece of the page."""
    return {
        other: {
            number: fill("verdict.html", **_verdict(rows[number], found, reach))
            for number, found in of_other.items()
        }
        for other, of_other in verdicts.items()
    }


def _reach(verdicts: Mapping[int, Mapping[int, Mapping[int, Difference]]]) -> float:
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


def _verdict(row: TaskRow, found: Difference, reach: float) -> dict[str, Any]:
    kind, words = VERDICTS[found.verdict]
    wording = found.wording(row.metric.unit)
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
        "ratio": "" if found.times is None else f"{formatting.times(found.times)}×",
        "wording": wording,
        "interval": interval,
        "ends": [place(end) for end in interval] if interval else [],
        "at": None if found.times is None else place(found.times),
    }


def _show(row: TaskRow, cell: TaskCell) -> dict[str, Any]:
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
    regime = {"sustained": "settled clocks", "boost": "first moments"}.get(cell.number.regime, "")
    return {
        "text": text,
        "interval": interval,
        "regime": regime,
        "cards": cell.cards,
        "share": None if cell.share is None else round(100 * cell.share),
        "joule": joule,
        "watts": cell.watts,
        "value": f"{value:.7g}",
        "per": "rate" if is_rate else "time" if unit == "s" else "",
        "unit": formatting.shown_unit(unit).label,
    }


def _drawer(row: TaskRow, columns: Sequence[TypeColumn]) -> str:
    """What opens below a row: its cards, what repeats it, and where more is said."""
    strips, sentences = [], []
    unit = row.metric.unit
    for column in columns:
        if column.number not in row.cells:
            continue
        cell = row.cells[column.number]
        readings = row.readings(column.number)
        estimate = cell.number.estimate
        peak = cell.number.value / cell.share if cell.share and unit != "s" else None
        strips.append(
            TypeStrip(
                column.label.removeprefix("NVIDIA "),
                column.colour,
                readings or [cell.number],
                estimate.low,
                estimate.high,
                peak,
            )
        )
        sentences.append((column.label, len(readings), cell.cards, _spread(cell)))
    link = history_link(row.metric.name, row.point)
    return fill(
        "drawer.html",
        picture=draw(strips, unit),
        sentences=sentences,
        command=run_command(row.metric.benchmark, row.point),
        about=row.metric.benchmark.description,
        link=link,
    )


def _spread(cell: TaskCell) -> str:
    """How far the cards differ, `2.1 %`; "" for one card."""
    levels = [level.level for level in cell.number.levels]
    if len(levels) < 2:
        return ""
    return f"{100 * (math.exp(max(levels) - min(levels)) - 1):.2g} %"
