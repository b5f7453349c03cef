"""All points for the table of the first page: `compare/points.js`, their rows, and
`compare/points-N.js`, their verdicts against one base. The page's script reads them when a reader
filters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from hpml_plugins.model import formatting
from hpml_plugins.report.site.matrix import TaskRow, TypeColumn
from hpml_plugins.report.site.page import SiteFolder, fill
from hpml_plugins.report.site.task_table import (
    reach_of,
    show_cell,
    verdict_fragments,
)
from hpml_plugins.report.site.tasks import judge_rows, texts

#: The most further types that a row lists.
MOST_FURTHER = 6


def in_order(rows: Sequence[TaskRow], columns: Sequence[TypeColumn]) -> dict[str, TaskRow]:
    """The rows by their names on the page; benchmarks measured on most of these columns come
    first."""
    numbers = {column.number for column in columns}
    ordered = sorted(rows, key=_reach(rows, numbers))
    return {f"p{place}": row for place, row in enumerate(ordered)}


def write_points(
    named: Mapping[str, TaskRow],
    columns: Sequence[TypeColumn],
    names: Sequence[str],
    shown_count: int,
    folder: SiteFolder,
    place: str,
) -> None:
    """Write the files.  named: see `in_order`.  columns: those of the page.  names: of all types,
    in the order of the matrix.  shown_count: GPUs of the columns shown initially."""
    numbers = [column.number for column in columns]
    rows = list(named.values())
    folder.write_data(
        f"{place}/points.js",
        [
            (_words(row, names), _row(name, row, columns, names, shown_count))
            for name, row in named.items()
        ],
    )
    for base in numbers:
        verdicts = {
            other: judge_rows(rows, base, other) for other in numbers if other != base
        }
        fragments = verdict_fragments(rows, verdicts, reach_of({base: verdicts}))
        of_rows = {}
        for column, found in fragments.items():
            of_rows[column] = {f"p{place}": text for place, text in found.items()}
        folder.write_data(f"{place}/points-{base}.js", of_rows)


def _reach(rows: Sequence[TaskRow], numbers: set[int]) -> Callable[[TaskRow], int]:
    """Sort key: on how many of these columns a row's benchmark was measured, most first."""
    found: dict[str, int] = {}
    for row in rows:
        name = row.metric.benchmark.name
        found[name] = max(found.get(name, 0), len(numbers & row.cells.keys()))
    return lambda row: -found[row.metric.benchmark.name]


def _words(row: TaskRow, names: Sequence[str]) -> str:
    """The text that a filter searches."""
    benchmark = row.metric.benchmark
    types = [names[number] for number in row.cells]
    words = [row.task, row.point, row.regime, benchmark.name, benchmark.plugin, *types]
    return " ".join(words).lower()


def _row(
    name: str,
    row: TaskRow,
    columns: Sequence[TypeColumn],
    names: Sequence[str],
    shown_count: int,
) -> str:
    shown = {column.number for column in columns}
    return fill(
        "all_row.html",
        place=name,
        row=row,
        columns=columns,
        shown_count=shown_count,
        cells={number: show_cell(row, number) for number in row.cells if number in shown},
        about=row.point,
        also=list(_further(row, shown, names)),
    )


def _further(row: TaskRow, shown: set[int], names: Sequence[str]) -> Iterator[str]:
    """The values of types that are not columns of the page."""
    found = [(number, cell) for number, cell in row.cells.items() if number not in shown]
    for number, cell in found[:MOST_FURTHER]:
        yield f"{names[number]}: {' '.join(texts(cell, row.metric.unit)).strip()}"
    if len(found) > MOST_FURTHER:
        yield f"and {formatting.counted(len(found) - MOST_FURTHER, 'further type')}"
