"""The first page, `index.html`: four answers, then GPU types by workload, each with its interval,
its share of the published peak, and the ratio to a base with its bound.

Its script reads `compare/verdicts-N.js` when a reader chooses another base, `compare/joules-N.js`
when one chooses values per joule, and `compare/row-N.js`, the cards and Records behind a row, when
one opens it. The rows of all points: see `all_points`.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence

from hpml_plugins.model import formatting
from hpml_plugins.report.reading import History
from hpml_plugins.report.site import answers
from hpml_plugins.report.site.all_points import in_order, write_points
from hpml_plugins.report.site.card_strips import draw
from hpml_plugins.report.site.changes import Judged, Shift
from hpml_plugins.report.site.joules import ratios_per_joule
from hpml_plugins.report.site.matrix import Matrix, TaskRow, TypeColumn
from hpml_plugins.report.site.nodes import Gaps
from hpml_plugins.report.site.page import SiteFolder, day, fill, point_link, run_command
from hpml_plugins.report.site.task_table import (
    choose_pair,
    reach_of,
    show_cells,
    verdict_fragments,
    within,
)
from hpml_plugins.report.site.tasks import describe, judge_rows

#: Columns of the table; the rows of all points list further types.
MOST_TYPES = 6
#: The folder of the data for the page's script.
FOLDER = "compare"


def write_compare_page(
    history: History,
    matrix: Matrix,
    rows: Sequence[TaskRow],
    points: Sequence[TaskRow],
    shifts: Mapping[str, Sequence[Shift]],
    judged: Sequence[Judged],
    gaps: Sequence[Gaps],
    problems: Sequence[str],
    folder: SiteFolder,
) -> None:
    """Write the page and the data of its script.  rows: see `find_rows`.  points: all of them.
    problems: why something is missing from the site."""
    columns = _columns(rows, matrix)
    numbers = [column.number for column in columns]
    rows = within(rows, numbers)
    names = [column.label for column in matrix.columns]
    labels = {column.label for column in columns}
    pair = choose_pair(rows, numbers)
    verdicts = {
        base: {other: judge_rows(rows, base, other) for other in numbers if other != base}
        for base in numbers
    }
    base = pair[0] if pair else next(iter(numbers), 0)
    of_pair = verdicts[pair[0]][pair[1]] if pair else {}
    shown = numbers[:2] if pair is None else list(pair)
    records = sum(
        outcome.status == "ok"
        for benchmark in history.benchmarks
        for place in benchmark.index
        for outcome in benchmark.index.stored(place)
    )
    found = [
        answers.which_gpu(rows, names, pair, of_pair),
        answers.how_close(rows, names, shown),
        answers.has_it_slowed(shifts, judged),
        answers.can_i_trust(
            rows,
            names,
            shown,
            records,
            {each.number: each.cards for each in columns},
            len(gaps),
        ),
    ]
    shutil.rmtree(folder.html_dir / FOLDER, ignore_errors=True)  # from an earlier publish
    reach = reach_of(verdicts)
    fragments = {
        each: verdict_fragments(rows, of_base, reach) for each, of_base in verdicts.items()
    }
    for each, of_base in fragments.items():
        folder.write_data(f"{FOLDER}/verdicts-{each}.js", of_base)
    shown_count = next((each.count for each in columns if each.number == base), 0)
    named = in_order(points, columns)
    write_points(named, columns, names, shown_count, folder, FOLDER)
    named |= {str(number): row for number, row in enumerate(rows)}
    for each in numbers:
        folder.write_data(
            f"{FOLDER}/joules-{each}.js", ratios_per_joule(named, each, numbers)
        )
    for number, row in enumerate(rows):
        if row.cells:
            folder.write_data(f"{FOLDER}/row-{number}.js", _drawer(row, columns))
    sections: dict[str, list[tuple[int, TaskRow]]] = {}
    for number, row in enumerate(rows):
        sections.setdefault(row.section, []).append((number, row))
    folder.write_page(
        "index.html",
        answers=found,
        columns=columns,
        base=base,
        shown_count=shown_count,
        sections=sections.items(),
        cells=list(map(show_cells, rows)),
        fragments=fragments.get(base, {}),
        describe=describe,
        reach=formatting.times(reach),
        points=len(points),
        types=len(matrix.columns),
        hidden=[name for name in names if name not in labels],
        commits=len(history.commits),
        newest=day(history.dates[-1]) if history.dates else "",
        machines=len(history.machines),
        currency=matrix.currency,
        outside=history.left_out_of_first,
        problems=problems,
    )


def _columns(rows: Sequence[TaskRow], matrix: Matrix) -> list[TypeColumn]:
    """The types that have a value in some row: GPUs if there are any, those with most rows
    first."""
    counts = Counter(number for row in rows for number in row.cells)
    found = [matrix.columns[number] for number in sorted(counts)]
    kind = min((column.hardware.kind for column in found), default=0)
    fitting = [column for column in found if column.hardware.kind == kind]
    fitting.sort(key=lambda column: -counts[column.number])
    return sorted(fitting[:MOST_TYPES], key=lambda column: column.number)


def _drawer(row: TaskRow, columns: Sequence[TypeColumn]) -> str:
    """The details below a row: its cards, the command that repeats it, and links."""
    measured = row.measured(columns)
    benchmark = row.metric.benchmark
    return fill(
        "drawer.html",
        picture=draw(row, measured),
        row=row,
        measured=measured,
        command=run_command(benchmark, row.point),
        about=benchmark.description,
        link=point_link(benchmark.name, row.metric.metric, row.point, row.regime),
    )
