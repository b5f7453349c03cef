"""One page for each benchmark: the answer as a sentence, value and share of the peak per GPU type,
the sweep, cards and history of its leading point, all its points, and its plugin's figures.

The page's script reads `workload/NAME/N.js`, the details of some points, when a reader opens one of
them; those of the leading point are in the page.
"""

from __future__ import annotations

import itertools
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hpml_plugins.analysis.sides import BOOST
from hpml_plugins.report.reading import History, TrackedBenchmark, TrackedMetric
from hpml_plugins.report.site import sweep
from hpml_plugins.report.site.answers import answer_of_workload
from hpml_plugins.report.site.matrix import Matrix, TaskRow, TypeColumn
from hpml_plugins.report.site.page import (
    SiteFolder,
    point_anchor,
    point_link,
    workload_address,
)
from hpml_plugins.report.site.plugin_pages import PluginPage, ShownFigure
from hpml_plugins.report.site.point_details import SeriesByPlace
from hpml_plugins.report.site.task_table import (
    choose_pair,
    show_cells,
    show_verdict,
    within,
)
from hpml_plugins.report.site.tasks import (
    RowDifference,
    judge_rows,
    largest_row,
)
from hpml_plugins.report.site.workload_points import WorkloadPoints, row_anchor

#: The folder of the data for the pages' script.
FOLDER = "workload"
#: Most columns of a page.
MOST_TYPES = 12
#: The most reasons for missing numbers that are listed.
MOST_REASONS = 6
#: A page with at least this many rows has a filter.
MANY_ROWS = 12
#: Points whose details are one file: eight take 29 % less than eight files, and the largest file
#: of our results 86 kB.
POINTS_OF_FILE = 8


@dataclass(frozen=True)
class Workload:
    """A benchmark for its page.  rows: its points, those of one metric together, its headline
    first.  lead: the row that represents it; None if nothing is measured.  base: the column with
    which others are compared, or None.  verdicts: column → row → the verdict against the base.
    not_compared: the metrics without a row, because nothing is measured or compared."""

    benchmark: TrackedBenchmark
    rows: list[TaskRow]
    columns: list[TypeColumn]
    lead: int | None
    base: int | None
    verdicts: dict[int, dict[int, RowDifference]]
    not_compared: list[TrackedMetric]

    @property
    def address(self) -> str:
        """The address of its page."""
        return workload_address(self.benchmark.name)

    @property
    def sections(self) -> list[tuple[TrackedMetric, list[tuple[int, TaskRow]]]]:
        """Each metric with its numbered rows."""
        numbered = enumerate(self.rows)
        groups = itertools.groupby(numbered, key=lambda each: each[1].metric.name)
        found = [list(rows) for _, rows in groups]
        return [(rows[0][1].metric, rows) for rows in found]

    @property
    def answer(self) -> tuple[str, str]:
        """The leading row in words: the sentence, and how its types compare."""
        if self.lead is None:
            return "Nothing is measured yet.", ""
        row = self.rows[self.lead]
        if self.base in row.cells:
            found = self.verdicts.items()
            of_lead = {other: of[self.lead] for other, of in found if self.lead in of}
            return answer_of_workload(row, self.columns, self.base, of_lead)
        # the table's base has not measured this row, so it is compared within itself
        base = min(row.cells)
        others = {
            other: judge_rows([row], base, other) for other in row.cells if other != base
        }
        of_lead = {other: of[0] for other, of in others.items() if of}
        return answer_of_workload(row, self.columns, base, of_lead)


def find_workloads(
    history: History, matrix: Matrix, tasks: Sequence[TaskRow]
) -> list[Workload]:
    """All benchmarks, by name.  tasks: rows of the first page, which lead on the benchmarks'
    pages."""
    found = []
    for benchmark in history.benchmarks:
        rows = matrix.of_benchmark(benchmark.name)
        numbers = sorted({number for row in rows for number in row.cells})[:MOST_TYPES]
        rows = within(rows, numbers)
        pair = choose_pair([row for row in rows if row.metric.direction], numbers)
        verdicts = {
            other: judge_rows(rows, pair[0], other)
            for other in numbers
            if pair and other != pair[0]
        }
        columns = [matrix.columns[number] for number in numbers]
        lead = _lead(rows, tasks)
        base = pair[0] if pair else None
        shown = {row.metric.name for row in rows}
        not_compared = [
            metric
            for metric in history.ordered
            if metric.benchmark is benchmark and metric.name not in shown
        ]
        found.append(Workload(benchmark, rows, columns, lead, base, verdicts, not_compared))
    return found


def _lead(rows: Sequence[TaskRow], tasks: Sequence[TaskRow]) -> int | None:
    """The row of the first task with a value; else the headline at its largest point, at settled
    clocks."""
    places = {(row.metric.name, row.point, row.regime): n for n, row in enumerate(rows)}
    for task in tasks:
        place = places.get((task.metric.name, task.point, task.regime))
        if place is not None and rows[place].cells:
            return place
    measured = [row for row in rows if row.cells]
    if not measured:
        return None
    headline = [row for row in measured if row.metric is measured[0].metric]
    # a rate at boost clocks is larger, and lasts a tenth of a second
    settled = [row for row in headline if row.regime != BOOST]
    return rows.index(largest_row(settled or headline))


def write_workloads(
    workloads: Sequence[Workload],
    history: History,
    series: SeriesByPlace,
    plugins: Sequence[PluginPage],
    folder: SiteFolder,
) -> None:
    """Write the pages, the data of their script, and their list.

    series: those whose levels are drawn.  plugins: with their figures.
    """
    shutil.rmtree(folder.html_dir / FOLDER, ignore_errors=True)  # from an earlier publish
    shown: dict[str, list[tuple[PluginPage, ShownFigure]]] = {}
    elsewhere: dict[str, list[ShownFigure]] = {}
    of_plugin = {page.plugin.entry.name: page for page in plugins}
    for page in plugins:
        for figure in page.figures:
            shown.setdefault(figure.benchmark, []).append((page, figure))
            for name in set(figure.drawable.figure.benchmarks) - {figure.benchmark}:
                elsewhere.setdefault(name, []).append(figure)
    for workload in workloads:
        points = WorkloadPoints(
            history, workload.benchmark, workload.rows, workload.columns, series, folder
        )
        place, files = _write_points(workload, points)
        lead = workload.lead
        plugin = of_plugin.get(workload.benchmark.plugin)
        folder.write_page(
            "workload.html",
            workload.address,
            workload=workload,
            benchmark=workload.benchmark,
            cells=list(map(show_cells, workload.rows)),
            verdicts=_verdicts(workload),
            folder=place,
            files=files,
            lead="" if lead is None else points.lead(workload.rows[lead]),
            sweep=sweep.draw_sweep(workload.rows, lead, workload.columns),
            reasons=_reasons(history, workload.benchmark),
            figures=shown.get(workload.benchmark.name, ()),
            elsewhere=elsewhere.get(workload.benchmark.name, ()),
            problem=plugin.problem if plugin else "",
            origins=plugin.origins if plugin else (),
            anchor=row_anchor,
            point_anchor=point_anchor,
            many=len(workload.rows) >= MANY_ROWS,
        )
    sections: dict[str, list[Workload]] = {}
    for workload in workloads:
        sections.setdefault(workload.benchmark.plugin, []).append(workload)
    folder.write_page(
        "workloads.html",
        sections=dict(sorted(sections.items())),
        figures=shown,
    )
    folder.write_page("moved.html", "history.html", **_old_history(history))


def _write_points(workload: Workload, points: WorkloadPoints) -> tuple[str, list[int]]:
    """Write the details of each row, and the Records of its point, which the point's rows share, in
    files of several points; returns their folder, and for each row the number of its file."""
    place = f"{FOLDER}/{workload.address.removeprefix('workload-').removesuffix('.html')}"
    labels = list(dict.fromkeys(row.point for row in workload.rows))
    numbers: dict[str, int] = {}
    for start in range(0, len(labels), POINTS_OF_FILE):
        of_file = labels[start : start + POINTS_OF_FILE]
        number = start // POINTS_OF_FILE
        points.write(of_file, f"{place}/{number}.js")
        numbers |= dict.fromkeys(of_file, number)
    return place, [numbers[row.point] for row in workload.rows]


def _verdicts(workload: Workload) -> list[dict[int, dict[str, Any]]]:
    """For each row: column → the verdict against the base."""
    return [
        {
            column: show_verdict(row, found[number], 2.0)
            for column, found in workload.verdicts.items()
            if number in found
        }
        for number, row in enumerate(workload.rows)
    ]


def _reasons(history: History, benchmark: TrackedBenchmark) -> list[tuple[str, int]]:
    """Why points have no number: `skipped on h100-x1: …`, and for how many points, the most
    frequent first."""
    found: Counter[str] = Counter()
    for label in benchmark.points:
        for machine in history.machines:
            newest = benchmark.index.newest((label, machine.name))
            if newest is not None and newest.status in ("skipped", "failed"):
                found[f"{newest.status} on {machine.name}: {newest.reason}"] += 1
    return found.most_common(MOST_REASONS)


def _old_history(history: History) -> dict[str, Any]:
    """Redirections from the earlier history page: the address of a benchmark alone leads to its
    headline."""
    headlines_first = sorted(
        history.measured,
        key=lambda each: (each.benchmark.name, each.metric != each.benchmark.first_metric),
    )
    links = [
        (
            each.name,
            f"{each.benchmark.name}.{each.metric}",
            each.title,
            point_link(each.benchmark.name, each.metric),
        )
        for each in headlines_first
    ]
    return {"title": "History", "to": "workloads.html", "links": links}
