"""The files with the details of a benchmark's points, which the next publish takes over while
nothing that they show has changed.

For this repository's results they take 6 of the 17 s of CPU time of our pages.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hpml_plugins.report.reading import History, TrackedBenchmark, encode_for_digest
from hpml_plugins.report.site.matrix import TaskRow, TypeColumn
from hpml_plugins.report.site.page import SiteFolder, point_anchor
from hpml_plugins.report.site.point_details import PointDetails, SeriesByPlace, list_records
from hpml_plugins.report.site.unchanged import digest_part


@dataclass(frozen=True)
class WorkloadPoints:
    """The points of a benchmark, and their place in the site.  rows: all of its page."""

    history: History
    benchmark: TrackedBenchmark
    rows: Sequence[TaskRow]
    columns: Sequence[TypeColumn]
    series: SeriesByPlace
    folder: SiteFolder
    #: The parts of the page that exist.
    _filled: dict[str, str] = field(default_factory=dict, init=False, repr=False)
    #: See `_commits`.
    _told: dict[frozenset[str], bytes] = field(default_factory=dict, init=False, repr=False)

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
        anchor = row_anchor(row)
        if anchor not in self._filled:
            of_row = PointDetails(
                self.history, row, self.columns, self.series, self.folder.commit_url
            )
            self._filled[anchor] = of_row.fill()
        return self._filled[anchor]

    def _records(self, label: str) -> str:
        place = f" {label}"  # an anchor begins with a metric
        if place not in self._filled:
            url = self.folder.commit_url
            self._filled[place] = list_records(self.history, self.benchmark, label, url)
        return self._filled[place]

    def _digest(self, labels: Sequence[str]) -> str:
        """A digest of everything that `PointDetails` and `list_records` show of these points."""
        shown = hashlib.sha256(self._shared)
        for told in self._shown(labels):
            shown.update(encode_for_digest(told))
        return digest_part(shown.hexdigest())

    @functools.cached_property
    def _shared(self) -> bytes:
        """What the digests of all points have in common."""
        benchmark = self.benchmark
        metrics = [
            (each.name, each.metric, each.unit, each.direction)
            for each in self.history.metrics.values()
            if each.benchmark is benchmark
        ]
        columns = [(each.number, each.hardware, each.machines) for each in self.columns]
        names = benchmark.name, benchmark.plugin, benchmark.heading, benchmark.terms
        branches = self.folder.commit_url, self.history.branches
        return encode_for_digest((metrics, columns, names, branches))

    def _shown(self, labels: Sequence[str]) -> Iterator[object]:
        """The cells of a row are not among it: they follow from what was measured."""
        benchmark = self.benchmark
        for label in labels:
            rows = self._rows[label]
            yield label, benchmark.points[label], label in benchmark.declared
            yield [(row.metric.name, row.regime, sorted(row.cells)) for row in rows]
            for machine in self.history.machines:
                place = label, machine.name
                if place not in benchmark.index:
                    continue
                yield machine.name, machine.hardware, benchmark.digest(place)
                stored = benchmark.index.stored(place)
                yield self._commits(frozenset(each.commit for each in stored))
                if current := benchmark.current.get(place):
                    record = current[1]
                    roof = self.history.roofs[machine.name]
                    yield record, list(map(roof.limit, record.work.values()))
                for row in rows:
                    for branch in benchmark.index.branches:
                        of_branch = row.metric.name, label, machine.name, branch
                        if found := self.series.get(of_branch):
                            yield found.levels, found.changes

    def _commits(self, commits: frozenset[str]) -> bytes:
        """Where commits are, and when they were made, as far as it is known.  commits: mostly the
        same for all points of a benchmark."""
        if commits not in self._told:
            told = [self._commit(each) for each in sorted(commits)]
            self._told[commits] = encode_for_digest(told)
        return self._told[commits]

    def _commit(self, commit: str) -> tuple[object, ...]:
        order = self.benchmark.index.order
        column = self.history.columns.get(order.get(commit, -1))
        date = None if column is None else self.history.dates[column]
        standings = [order.standing(commit, each) for each in self.benchmark.index.branches]
        return commit, standings, date


def row_anchor(row: TaskRow) -> str:
    """The id of a row."""
    return point_anchor(row.metric.metric, row.point, row.regime)
