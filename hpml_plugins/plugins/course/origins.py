"""Finds the Records behind a row of a figure's table, without the plugin's help.

A table is a function of Records, so it can be computed from some of them. A row that a single
Record gives depends on that Record. A row computed from several (a speed-up, a share of a measured
roof) depends on those whose absence changes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from hpml_plugins import HpmlError, Record, Table
from hpml_plugins.analysis import card_of
from hpml_plugins.model import Cell, Row, format_point
from hpml_plugins.report import Drawable, format_samples, plain_cell, point_link

#: A text of at least this length that is a part of a UUID names its card.
DIGITS = 8
#: A row's known cells, as (column, Python's repr).
Cells = frozenset[tuple[str, str]]


class RecordLink(NamedTuple):
    """The target of a link to a Record: a point and a metric of it, as on the page of its
    benchmark.

    metric: as in Records.  label: of the point.  machine, commit: of the Record, or of the newest
    of those that a mean rests on; the commit shortened.  told: what the number rests on, in words.
    """

    benchmark: str
    metric: str
    label: str
    machine: str
    commit: str
    told: str

    @property
    def address(self) -> str:
        """The anchor of the point on the page of its benchmark."""
        return point_link(self.benchmark, self.metric, self.label)

    @classmethod
    def of(cls, record: Record, row: Row, columns: Iterable[str]) -> RecordLink:
        """The point of a Record, with the first metric whose median is in one of these columns of
        the row."""
        medians = {metric.value: name for name, metric in reversed(record.metrics.items())}
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
            f"one Record, {record.machine} at {commit}: {record.benchmark} · {name}"
            f" {format_samples(metric, metric.unit)}"
        )
        label = format_point(record.params)
        return cls(record.benchmark, name, label, record.machine, commit, told)


@dataclass(frozen=True)
class Origins:
    """The Records of a figure's rows. found: a row's cells → the Records behind it.

    alone: `id` of a Record → the rows that it gives by itself.
    """

    found: Mapping[Cells, Sequence[Record]]
    alone: Mapping[int, Sequence[Row]]

    @classmethod
    def of_rows(
        cls, rows: Iterable[tuple[Row, Sequence[Record]]], alone: Mapping[int, Sequence[Row]]
    ) -> Origins:
        """The origins of rows, from the Records behind each."""
        return cls({_cells(row): records for row, records in rows}, alone)

    @classmethod
    def trace(
        cls, table: Callable[[Sequence[Record]], Table], records: Sequence[Record]
    ) -> Origins:
        """Find the origins by computing the table from fewer Records. table: the figure's function.
        records: all of the figure."""
        alone = {id(record): _rows_of(table, [record]) for record in records}
        return cls(_find(table, records, alone), alone)

    def resting_on(self, row: Row) -> Sequence[Record]:
        """The Records behind a row, in the order of the table's Records."""
        return self.found.get(_cells(row), [])

    def of(self, row: Row, columns: Iterable[str] | None = None) -> list[Record]:
        """The Records behind a row, or behind these cells of it: one of each point, the one most
        similar to the row first.

        None for a row without a Record, such as a published figure, and for one that several points
        give.
        """
        cells = _cells(row)
        found = self.resting_on(row)
        if len(found) > 1:
            wanted = cells if columns is None else _cells({name: row[name] for name in columns})
            found = [
                record
                for record in found
                if any(wanted <= _cells(each) for each in self.alone.get(id(record), ()))
            ] or found
            found = sorted(found, key=lambda each: _likeness(row, each), reverse=True)
        of_points: dict[str, Record] = {}
        for record in found:
            of_points.setdefault(record.point, record)
        return list(of_points.values())


def _likeness(row: Row, record: Record) -> int:
    """How many parameters and medians of a Record, its machine and its card a row names. A card may
    be named by a part of its UUID."""
    values = (
        *record.params.values(),
        *(metric.value for metric in record.metrics.values()),
        record.machine,
    )
    texts = {repr(cell) for cell in row.values() if cell is not None}
    card = card_of(record)
    names_card = any(
        isinstance(cell, str) and len(cell) >= DIGITS and cell in card for cell in row.values()
    )
    return sum(repr(value) in texts for value in values) + names_card


def _find(
    table: Callable[[Sequence[Record]], Table],
    records: Sequence[Record],
    alone: Mapping[int, Sequence[Row]],
) -> dict[Cells, list[Record]]:
    """A row's cells → the Records behind it, for all rows for which they can be determined."""

    def rows(of: Sequence[Record]) -> set[Cells]:
        return set(map(_cells, _rows_of(table, of)))

    by_row: dict[Cells, list[Record]] = {}
    by_point: dict[str, list[Record]] = {}
    by_machine: dict[str, list[Record]] = {}
    for record in records:
        by_point.setdefault(record.point, []).append(record)
        by_machine.setdefault(record.machine, []).append(record)
        for row in set(map(_cells, alone[id(record)])):
            by_row.setdefault(row, []).append(record)
    # A row given by the only point may depend on no Record at all; then it does not name the
    # machine either.
    found = {
        row: giving
        for row, giving in by_row.items()
        if len({each.point for each in giving}) == 1
        and (len(by_point) > 1 or ("machine", repr(giving[0].machine)) in row)
    }
    missing = rows(records) - by_row.keys()
    for group in (*by_point.values(), *by_machine.values()):
        if together := missing and missing & rows(group):
            for record in group:
                for row in together - rows([each for each in group if each is not record]):
                    found.setdefault(row, []).append(record)
            missing -= found.keys()
    return found


def _rows_of(
    table: Callable[[Sequence[Record]], Table], records: Sequence[Record]
) -> list[dict[str, Cell]]:
    try:
        return list(table(records).rows())
    except Exception:  # a plugin's table may fail with too few Records
        return []


class _Traced(msgspec.Struct, frozen=True):
    """The origins of a figure's rows as plain data, passed from the process with the figure's
    plugin to another one.

    rests: for each row the indices of its Records among the figure's.  alone: index of a Record →
    the rows that it gives by itself, for Records that share a row.
    """

    rests: list[list[int]]
    alone: dict[int, list[dict[str, Cell]]]


def trace(drawable: Drawable) -> _Traced:
    """Find the origins of a figure's rows, in the process with its plugin."""
    places = {id(record): place for place, record in enumerate(drawable.records)}
    origins = origins_of(drawable)
    rests: list[list[int]] = []
    alone: dict[int, list[dict[str, Cell]]] = {}
    for row in drawable.table.rows():
        resting = origins.resting_on(row)
        rests.append([places[id(record)] for record in resting])
        for record in resting if len(resting) > 1 else ():
            alone[places[id(record)]] = [_plain(each) for each in origins.alone[id(record)]]
    return _Traced(rests, alone)


def origins_of(drawable: Drawable) -> Origins:
    """The origins of a figure's rows, from the trace or else computed now.

    Raises HpmlError if the trace is for other Records than the figure's.
    """
    records = drawable.records
    if drawable.traced is None:
        measured = [record for record in records if record.metrics]
        return Origins.trace(drawable.figure.table, measured)
    try:
        traced = msgspec.convert(drawable.traced, _Traced)
        if any(place < 0 for places in (*traced.rests, traced.alone) for place in places):
            raise IndexError
        resting = [[records[place] for place in row] for row in traced.rests]
        alone = {id(records[place]): rows for place, rows in traced.alone.items()}
    except (msgspec.ValidationError, IndexError):
        what = f"figure {drawable.plugin}.{drawable.figure.name} rests on Records that are not its"
        raise HpmlError(what) from None
    return Origins.of_rows(zip(drawable.table.rows(), resting, strict=False), alone)


class Provenance:
    """The origins of the figures of a site, found once for each figure."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Origins] = {}

    def of(self, drawable: Drawable) -> Origins:
        """The origins of this figure."""
        figure = drawable.plugin, drawable.figure.name
        if figure not in self._found:
            self._found[figure] = origins_of(drawable)
        return self._found[figure]


def _plain(row: Row) -> dict[str, Cell]:
    return {str(name): plain_cell(cell) for name, cell in row.items()}


def _cells(row: Row) -> Cells:
    return frozenset((name, repr(cell)) for name, cell in row.items() if cell is not None)
