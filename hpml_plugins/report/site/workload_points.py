"""The files with the details of a benchmark's points, which the next publish takes over while
nothing that they show has changed.

For this repository's results they take 6 of the 17 s of CPU time of our pages.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from hpml_plugins.report.reading import History, TrackedBenchmark
from hpml_plugins.report.site.matrix import TaskRow, TypeColumn
from hpml_plugins.report.site.page import SiteFolder, point_anchor
from hpml_plugins.report.site.point_details import PointDetails, SeriesByPlace, list_records
from hpml_plugins.report.site.unchanged import digest_part

_ENCODER = msgspec.msgpack.Encoder()


@dataclass(frozen=True)
class WorkloadPoints:
    """The points of a benchmark, and their place in the site.  rows: all of its page."""

    history: History
    benchmark: TrackedBenchmark
    rows: Sequence[TaskRow]
    columns: Sequence[TypeColumn]
    series: SeriesByPlace
    folder: SiteFolder

    def lead(self, row: TaskRow) -> str:
        """The details of a row with the Records of its point, as a part of the page."""
        return self._details(row) + self._records(row.point)

    def write(self, labels: Sequence[str], address: str) -> None:
        """Write the file with the details of these points, unless it is taken over."""
        if self.folder.takes_over(address, self._digest(labels)):
            return
        points = []
        for label in labels:
            details = {row_anchor(row): self._details(row) for row in self._rows[label]}
            points.append({"": self._records(label), **details})
        self.folder.write_data(address, points)

    @functools.cached_property
    def _rows(self) -> dict[str, list[TaskRow]]:
        """The rows of each point."""
        found: dict[str, list[TaskRow]] = {}
        for row in self.rows:
            found.setdefault(row.point, []).append(row)
        return found

    def _details(self, row: TaskRow) -> str:
        return PointDetails(
            self.history, row, self.columns, self.series, self.folder.commit_url
        ).fill()

    def _records(self, label: str) -> str:
        return list_records(self.history, self.benchmark, label, self.folder.commit_url)

    def _digest(self, labels: Sequence[str]) -> str:
        """A digest of everything that `PointDetails` and `list_records` show of these points; empty
        if a parameter has more than 64 bits."""
        shown = hashlib.sha256()
        try:
            for told in self._shown(labels):
                shown.update(_ENCODER.encode(told))
        except OverflowError:
            return ""
        return digest_part(shown.hexdigest())

    def _shown(self, labels: Sequence[str]) -> Iterator[object]:
        history = self.history
        benchmark = self.benchmark
        index = benchmark.index
        yield self.folder.commit_url, history.branches, benchmark.name, benchmark.plugin
        yield benchmark.heading, benchmark.terms
        # the cells of a row follow from the outcomes of its columns
        yield [(each.number, each.hardware, each.machines) for each in self.columns]
        yield [
            (each.name, each.metric, each.unit, each.direction)
            for each in history.metrics.values()
            if each.benchmark is benchmark
        ]
        for label in labels:
            yield label, benchmark.points[label], label in benchmark.declared
            rows = self._rows[label]
            yield [(row.metric.name, row.regime, sorted(row.cells)) for row in rows]
            for machine in history.machines:
                outcomes = index.stored((label, machine.name))
                if not outcomes:
                    continue
                yield machine.name, machine.hardware
                for each in outcomes:
                    standings = [index.standing(each, branch) for branch in index.branches]
                    column = history.columns.get(each.revision)
                    date = None if column is None else history.dates[column]
                    yield each, standings, date
                if current := benchmark.current.get((label, machine.name)):
                    record = current[1]
                    roof = history.roofs[machine.name]
                    yield record, list(map(roof.limit, record.work.values()))
                for row in rows:
                    for branch in index.branches:
                        place = (row.metric.name, label, machine.name, branch)
                        if found := self.series.get(place):
                            yield found.levels, found.changes


def row_anchor(row: TaskRow) -> str:
    """The id of a row."""
    anchor = point_anchor(row.metric.metric, row.point)
    return f"{anchor}&regime=boost" if row.regime == "boost" else anchor
