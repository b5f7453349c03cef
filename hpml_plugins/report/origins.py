"""Which Records a row of a figure's table rests on, found without the plugin's help.

A table is a function of Records, so it can be made of a few of them. A row that one Record alone
gives rests on that Record. Of a row that takes several (a speed-up, a share of a measured roof)
those count without which it is another.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hpml_plugins.model.figure import Row, Table
from hpml_plugins.model.formatting import format_point
from hpml_plugins.model.record import Record
from hpml_plugins.report.tables import spell_samples
from hpml_plugins.store.declarations import asv_name

#: A row's known cells, as (column, Python's repr).
Cells = frozenset[tuple[str, str]]


class RecordLink(NamedTuple):
    """What leads to a Record: a point and a metric of it, as the page of its history has them.

    metric: asv's name.  label: of the point.  commit: shortened.  told: machine, commit, and the
    metric's value.
    """

    metric: str
    label: str
    commit: str
    told: str

    @classmethod
    def of(cls, record: Record, row: Row, columns: Iterable[str]) -> RecordLink:
        """The point of a Record; of its metrics the first whose median one of these columns of the
        row has."""
        medians = {metric.median: name for name, metric in reversed(record.metrics.items())}
        values = (
            row[name]
            for name in columns
            if name not in record.params and isinstance(row[name], int | float)
        )
        name = next(
            (medians[value] for value in values if value in medians), next(iter(record.metrics))
        )
        commit, metric = record.commit[:8] or "unknown", record.metrics[name]
        told = (
            f"{record.machine} at {commit}: {record.benchmark} · {name}"
            f" {spell_samples(metric, metric.unit)}"
        )
        return cls(asv_name(record.benchmark, name), format_point(record.params), commit, told)


@dataclass
class Origins:
    """The Records of a figure's rows. table: the figure's function.  records: all that the figure
    is drawn from."""

    table: Callable[[Sequence[Record]], Table]
    records: Sequence[Record]

    def of(self, row: Row, columns: Iterable[str] | None = None) -> list[Record]:
        """The Records that a row, or these cells of it, rest on: one of each point, the one most
        like the row first.

        None for a row that rests on no Record, such as a published figure, and for one that several
        points give.
        """
        cells = _cells(row)
        found = self._found.get(cells, [])
        if len(found) > 1:
            wanted = cells if columns is None else _cells({name: row[name] for name in columns})
            found = [
                record for record in found if any(wanted <= each for each in self._rows([record]))
            ] or found
        texts = {text for _, text in cells}

        def likeness(record: Record) -> int:
            values = (
                *record.params.values(),
                *(metric.median for metric in record.metrics.values()),
            )
            return sum(repr(value) in texts for value in values)

        return sorted(
            {record.point: record for record in reversed(found)}.values(),
            key=likeness,
            reverse=True,
        )

    @functools.cached_property
    def _found(self) -> dict[Cells, list[Record]]:
        alone: dict[Cells, list[Record]] = {}
        by_point: dict[str, list[Record]] = {}
        by_machine: dict[str, list[Record]] = {}
        for record in self.records:
            by_point.setdefault(record.point, []).append(record)
            by_machine.setdefault(record.machine, []).append(record)
            for row in self._rows([record]):
                alone.setdefault(row, []).append(record)
        # What the only point gives may rest on no Record at all; then it does not name the machine
        # either.
        found = {
            row: records
            for row, records in alone.items()
            if len({each.point for each in records}) == 1
            and (len(by_point) > 1 or ("machine", repr(records[0].machine)) in row)
        }
        missing = self._rows(self.records) - alone.keys()
        for group in (*by_point.values(), *by_machine.values()):
            if together := missing and missing & self._rows(group):
                for record in group:
                    for row in together - self._rows(
                        [each for each in group if each is not record]
                    ):
                        found.setdefault(row, []).append(record)
                missing -= found.keys()
        return found

    def _rows(self, records: Sequence[Record]) -> set[Cells]:
        try:
            return set(map(_cells, self.table(records).rows()))
        except Exception:  # a plugin's table of too few Records
            return set()


def _cells(row: Row) -> Cells:
    return frozenset((name, repr(cell)) for name, cell in row.items() if cell is not None)
