"""The first page, `index.html`: which GPU for what, by how much and how sure, what changed, and
what is missing."""

from __future__ import annotations

import itertools
import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from hpml_plugins.analysis.verdicts import DIFFERENT_PROBLEMS, MARGIN
from hpml_plugins.model import formatting
from hpml_plugins.published import find_gpu
from hpml_plugins.report.reading import History, Machine, Outcome, TrackedMetric
from hpml_plugins.report.site.gpu_types import HEADLINE_UNITS, Cell, Matrix, Verdicts
from hpml_plugins.report.site.nodes import ENOUGH_PASSES, Gaps
from hpml_plugins.report.site.page import day, history_link, write_data, write_page
from hpml_plugins.report.site.regressions import Shift, show_shift

#: Rows of a comparison, and changes of each kind that are listed.
MOST_ROWS, MOST_CHANGES = 8, 3
#: Letter of a verdict, see `Verdicts`, → words. Every headline metric is a rate or a time.
WORDS = {
    "b": "faster",
    "w": "slower",
    "s": f"the same within {100 * MARGIN:g} %",
    "r": "undecided",
    "a": "no verdict",
    "d": "different problems",
}
#: The folder of what the page's script reads.
FOLDER = "overview"
#: Published figures of a card: label, field of GpuType, unit.
PEAKS = (
    ("memory", "memory", "B"),
    ("bandwidth", "bandwidth", "B/s"),
    ("bf16", "bfloat16", "FLOP/s"),
    ("fp8", "fp8", "FLOP/s"),
    ("fp32", "float32", "FLOP/s"),
    ("power", "power", "W"),
)


@dataclass(frozen=True)
class HeadlineRow:
    """One point of a headline metric.

    number: its place among all rows of the matrix.  cells: number of a type → its cell, where that
    has a value.  gpus: how many of all types are GPUs, which have the lowest numbers.
    """

    number: int
    metric: TrackedMetric
    point: str
    cells: dict[int, Cell]
    gpus: int

    @property
    def weight(self) -> tuple[int, float]:
        """For sorting: what most GPU types have comes first, then the largest: the highest rate,
        the longest time."""
        values = (cell.values[self.metric.metric].value for cell in self.cells.values())
        return -sum(number < self.gpus for number in self.cells), -max(values)


@dataclass(frozen=True)
class TypeCard:
    """A GPU type, with any number of GPUs per node, or a CPU.

    links: label → address on the page of GPU types.  peaks: label → text, published.  cards:
    distinct UUIDs of the GPUs that measured; 0 where no Record tells.
    """

    name: str
    kind: int
    links: dict[str, str]
    peaks: dict[str, str]
    source: str
    machines: int
    cards: int
    last: str
    commit: str


def write_overview(
    history: History,
    matrix: Matrix,
    rows: Sequence[HeadlineRow],
    verdicts: Verdicts,
    shifts: Mapping[str, Sequence[Shift]],
    gaps: Sequence[Gaps],
    html_dir: Path,
    project: str,
    commit_url: str,
) -> None:
    """Write `index.html` and the data of its script.

    matrix: of the page of GPU types, which shows the same two types first.  verdicts: that page's,
    with the differences of these rows.  commit_url: see `page.commit_links`.
    """
    count, chosen = len(matrix.columns), matrix.chosen
    pair = (
        chosen if any(row.cells.keys() >= set(chosen) for row in rows) and len(chosen) > 1 else None
    )
    shown: dict[str, Any] = {
        "types": [column.hardware.label for column in matrix.columns],
        "rows": [_show(row, matrix) for row in rows],
        "pair": pair,
        "words": WORDS,
        "most": MOST_ROWS,
    }
    write_data(html_dir, f"{FOLDER}/rows.js", shown)
    first: dict[int, list[str]] = {}
    for base in range(count):
        against = {
            other: describe_verdicts(rows, verdicts, base, other)
            for other in range(count)
            if other != base
        }
        write_data(html_dir, f"{FOLDER}/{base}.js", against)
        if pair and base == pair[0]:
            first = dict(itertools.islice(against[pair[1]].items(), MOST_ROWS))
    groups: dict[str, list[int]] = {}
    for number in first:
        groups.setdefault(shown["rows"][number]["title"], []).append(number)
    changes = [
        {"kind": kind, "count": len(found), "newest": _newest(found, history)}
        for kind, found in shifts.items()
    ]
    write_page(
        html_dir,
        "index.html",
        project=project,
        cards=find_cards(history),
        shown=shown,
        groups=groups,
        verdicts=first,
        changes=changes,
        gaps=gaps,
        commits=len(history.commits),
        machines=len(history.machines),
        enough_passes=ENOUGH_PASSES,
        commit_url=commit_url,
        outside=history.left_out_of_first,
    )


def headline_rows(matrix: Matrix) -> list[HeadlineRow]:
    """The points of headline metrics that are among the first MOST_ROWS which some two types share.

    Units take turns, then benchmarks, then points; see `HeadlineRow.weight` for the order within
    each. A benchmark that needs no GPU says nothing about the GPUs of a machine.
    """
    places: Counter[str] = Counter()
    ranked: list[tuple[tuple[int, int, int], HeadlineRow]] = []
    for rows in sorted(_rows_by_benchmark(matrix), key=lambda rows: rows[0].weight):
        unit = rows[0].metric.unit
        ranked += [
            ((turn, places[unit], HEADLINE_UNITS.index(unit)), row) for turn, row in enumerate(rows)
        ]
        places[unit] += 1
    left = Counter(dict.fromkeys(itertools.combinations(range(len(matrix.columns)), 2), MOST_ROWS))
    kept = []
    for _, row in sorted(ranked, key=operator.itemgetter(0)):
        asking = [pair for pair in itertools.combinations(sorted(row.cells), 2) if left[pair]]
        left.subtract(asking)
        if asking:
            kept.append(row)
    return kept


def _rows_by_benchmark(matrix: Matrix) -> Iterator[list[HeadlineRow]]:
    """Of each benchmark the points of its headline metric that have a value on two types, by
    weight."""
    gpus = sum(column.hardware.kind == 0 for column in matrix.columns)
    place, seen = 0, set()
    for group in matrix.groups:
        metric, number, place = group.metric, place, place + len(group.rows)
        if (
            metric.benchmark.name in seen
            or not metric.direction
            or metric.unit not in HEADLINE_UNITS
        ):
            continue
        seen.add(metric.benchmark.name)
        fitting = range(0 if metric.benchmark.needs_gpu else gpus, len(matrix.columns))
        found = [
            HeadlineRow(
                number + at,
                metric,
                row.point,
                {n: row.cells[n] for n in fitting if row.cells[n].value},
                gpus,
            )
            for at, row in enumerate(group.rows)
            if not row.regime
        ]
        if rows := sorted((row for row in found if len(row.cells) > 1), key=lambda row: row.weight):
            yield rows


def describe_verdicts(
    rows: Sequence[HeadlineRow], verdicts: Verdicts, base: int, other: int
) -> dict[int, list[str]]:
    """Number of a row → verdict on a type against the base: letter, ratio, and what can be said of
    it.

    Above 1 is better.
    """
    found = {}
    for number, row in enumerate(rows):
        if base in row.cells and other in row.cells:
            pair = (min(base, other), max(base, other))
            difference = verdicts.kept[*pair, row.number]
            if pair[0] != base:
                difference = difference.reversed
            ratio = "" if difference.times is None else f"{formatting.times(difference.times)}×"
            wording = difference.wording(row.metric.unit).removeprefix(DIFFERENT_PROBLEMS)
            found[number] = [verdicts.letters[base][other][row.number], ratio, wording]
    return found


def _show(row: HeadlineRow, matrix: Matrix) -> dict[str, Any]:
    """A row as the page and its script show it: number of a type → value, and how it was
    measured."""
    benchmark, cells = row.metric.benchmark, {}
    for number, cell in row.cells.items():
        stored = (
            benchmark.outcomes.get((row.point, name), ())
            for name in matrix.columns[number].machines
        )
        count = sum(
            row.metric.metric in outcome.readings for outcomes in stored for outcome in outcomes
        )
        records = formatting.counted(count, "Record")
        cards = len(cell.values[row.metric.metric].levels)
        of_cards = f"mean of {cards} cards, " if cards > 1 else ""
        cells[number] = [
            f"{cell.text} {cell.interval}".rstrip(),
            f"{of_cards}{records}, {day(cell.started * 1000)}",
        ]
    return {
        "title": row.metric.title,
        "point": row.point,
        "about": benchmark.description,
        "terms": benchmark.explain(row.point),
        "link": history_link(row.metric.name, row.point),
        "cells": cells,
    }


def find_cards(history: History) -> list[TypeCard]:
    """A card for each GPU type, then for what has no GPU."""
    grouped: dict[tuple[int, str, str], list[Machine]] = {}
    for machine in history.machines:
        grouped.setdefault(
            (machine.hardware.kind, machine.hardware.gpu, machine.hardware.cpu), []
        ).append(machine)
    measured: dict[str, list[Outcome]] = {machine.name: [] for machine in history.machines}
    for benchmark in history.benchmarks:
        for (_, name), outcomes in benchmark.outcomes.items():
            measured[name] += [outcome for outcome in outcomes if outcome.readings]
    return [
        _card(
            machines,
            history,
            [outcome for machine in machines for outcome in measured[machine.name]],
        )
        for machines in grouped.values()
    ]


def _card(machines: Sequence[Machine], history: History, measured: Sequence[Outcome]) -> TypeCard:
    """The card of machines of one type.  measured: every Record with numbers on any of them."""
    first = machines[0].hardware
    known = find_gpu(first.gpu) if first.kind == 0 else None
    figures = [(label, getattr(known, name), unit) for label, name, unit in PEAKS] if known else []
    last = max(measured, key=operator.attrgetter("standing", "revision", "started"), default=None)
    seen = {next(iter(outcome.readings.values())).card for outcome in measured}
    column = history.columns.get(last.revision) if last else None
    return TypeCard(
        first.gpu if first.kind == 0 else first.label,
        first.kind,
        {
            each.hardware.label: f"gpus.html#base={quote(each.hardware.label, safe='')}"
            for each in machines
        },
        {label: formatting.quantity(value, unit) for label, value, unit in figures if value},
        known.source if known else "",
        len(machines),
        # A Record without GPUs tells its boot or its run instead; see `card_of`.
        len(
            {
                card
                for cards in seen
                for card in cards.split(",")
                if card.startswith(("GPU-", "MIG-"))
            }
        ),
        day(last.started * 1000) if last else "",
        "" if column is None else history.commits[column],
    )


def _newest(shifts: Iterable[Shift], history: History) -> list[dict[str, Any]]:
    """The newest MOST_CHANGES, the largest of each benchmark; in the order of `Shift.rank`."""
    of_benchmark: dict[str, Shift] = {}
    for shift in shifts:
        of_benchmark.setdefault(shift.series.metric.benchmark.name, shift)
    return [
        show_shift(shift, history)
        for shift in itertools.islice(of_benchmark.values(), MOST_CHANGES)
    ]
