"""Figure and Table: what a plugin shows of its Records, and the numbers behind it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from hpml_plugins.errors import DefinitionError
from hpml_plugins.model.benchmark import check_name
from hpml_plugins.model.checking import check_fields, takes
from hpml_plugins.model.formatting import unquoted
from hpml_plugins.model.record import Record
from hpml_plugins.model.units import unit

Cell = str | int | float | bool | None
Row = Mapping[str, Cell]
#: A Vega-Lite specification without data: https://vega.github.io/vega-lite/docs/.
Chart = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """Named columns of equal length.

    columns: name → text, numbers in SI base units, or None for unknown values.  units: column →
    symbol of the closed set, for columns of numbers. Raises DefinitionError for unequal lengths and
    for an unknown unit.
    """

    columns: Mapping[str, Sequence[Cell]]
    units: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        lengths = {name: len(values) for name, values in self.columns.items()}
        if len(set(lengths.values())) > 1:
            raise DefinitionError(f"a table's columns have different lengths: {lengths}")
        for name, symbol in self.units.items():
            if name not in self.columns and self.columns:
                raise DefinitionError(
                    f"a table has a unit for column {name!r}, which it lacks"
                )
            unit(symbol)

    @classmethod
    def of(cls, rows: Iterable[Row], units: Mapping[str, str] | None = None) -> Table:
        """Create a table from rows. Columns are in the order of their first appearance; a row may
        lack some."""
        rows = list(rows)
        names = list(dict.fromkeys(itertools.chain.from_iterable(rows)))
        columns = {}
        for name in names:
            columns[name] = [row.get(name) for row in rows]
        known = units or {}
        return cls(columns, {name: known[name] for name in names if name in known})

    @classmethod
    def of_records(
        cls,
        records: Iterable[Record],
        *metrics: str,
        intervals: Sequence[str] = (),
        more: Callable[[Record], Row] | None = None,
        units: Mapping[str, str] | None = None,
    ) -> Table:
        """One row per Record: its machine, the point's parameters, and the median of each of these
        metrics.

        intervals: metrics for which to add `interval_columns`.  more: further columns, computed
        from a Record.  units: of these. A missing metric is None.
        """
        rows: list[dict[str, Cell]] = []
        known = dict(units or {})
        for record in records:
            row: dict[str, Cell] = {"machine": record.machine, **record.params}
            for name in (*metrics, *intervals):
                cells: dict[str, Cell] = {name: record.value(name)}
                if name in intervals:
                    cells = interval_columns(record, name)
                row |= cells
                if metric := record.metrics.get(name):
                    known |= dict.fromkeys(cells, metric.unit)
            rows.append({**row, **(more(record) if more else {})})
        return cls.of(rows, known)

    @classmethod
    def of_series(
        cls,
        records: Iterable[Record],
        series: str,
        *params: str,
        more: Callable[[Record], Row] | None = None,
        units: Mapping[str, str] | None = None,
    ) -> Table:
        """One row per row of this series: the Record's machine, these parameters of its point, and
        the columns of the series.

        more: further columns, computed from a Record, placed before those of the series.  units: of
        these. Records without the series are left out.
        """
        rows: list[dict[str, Cell]] = []
        known = dict(units or {})
        for record in records:
            if found := record.series.get(series):
                point: dict[str, Cell] = {"machine": record.machine}
                point |= {name: record.params[name] for name in params}
                point |= more(record) if more else {}
                rows += [{**point, **row} for row in cls(found.columns).rows()]
                known |= found.units
        return cls.of(rows, known)

    def select(self, *names: str, **renamed: str) -> Table:
        """The table with only these columns; renamed: new name = old name."""
        asked = {**dict(zip(names, names, strict=True)), **renamed}
        chosen = {new: old for new, old in asked.items() if old in self.columns}
        columns = {new: self.columns[old] for new, old in chosen.items()}
        units = {new: self.units[old] for new, old in chosen.items() if old in self.units}
        return Table(columns, units)

    def extended(
        self, more: Callable[[Any], Row], units: Mapping[str, str] | None = None
    ) -> Table:
        """The table with added or replaced columns. more: called with each row, a dictionary."""
        rows = [{**row, **more(row)} for row in self.rows()]
        return Table.of(rows, {**self.units, **(units or {})})

    def filtered(self, keep: Callable[[Any], object]) -> Table:
        """The table with only those rows for which `keep` is true."""
        return Table.of([row for row in self.rows() if keep(row)], self.units)

    def sorted(self, *names: str) -> Table:
        """The table sorted by these columns; unknown values come first."""

        def place(row: Row) -> list[tuple[bool, Any]]:
            return [(row.get(name) is not None, row.get(name)) for name in names]

        return Table.of(sorted(self.rows(), key=place), self.units)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def rows(self) -> Iterator[dict[str, Cell]]:
        """One dictionary per row."""
        for values in zip(*self.columns.values(), strict=True):
            yield dict(zip(self.columns, values, strict=True))

    def groups(self, *names: str) -> dict[tuple[Cell, ...], list[dict[str, Cell]]]:
        """The rows grouped by their values in these columns, in order of appearance: one entry for
        each line of a chart."""
        found: dict[tuple[Cell, ...], list[dict[str, Cell]]] = {}
        for row in self.rows():
            found.setdefault(tuple(row[name] for name in names), []).append(row)
        return found


def told_apart(table: Table) -> Table:
    """The table for display, where `1` and `"1"` would look alike: in a column with other values
    too, a text that can be read as one of them is quoted."""
    return Table(
        {name: _told_apart(each) for name, each in table.columns.items()}, table.units
    )


def _told_apart(cells: Sequence[Cell]) -> Sequence[Cell]:
    if {*map(type, cells)} <= {str, type(None)} or str not in map(type, cells):
        return cells
    return [unquoted(repr(cell)) if isinstance(cell, str) else cell for cell in cells]


def interval_columns(record: Record, metric: str) -> dict[str, Cell]:
    """The median of a metric and its 95 % interval as the columns `metric`, `metric_low` and
    `metric_high`."""
    found = record.metrics.get(metric)
    if found is None:
        return {metric: None, f"{metric}_low": None, f"{metric}_high": None}
    shown = found.estimate
    return {metric: shown.value, f"{metric}_low": shown.low, f"{metric}_high": shown.high}


@dataclass(frozen=True)
class Figure:
    """A table made from Records, and a chart of that table, so that readers see the same numbers in
    both.

    name: lower-case letters, digits and `_`; unique in its plugin.  benchmarks: those whose Records
    are passed: the newest measured one of every point on each machine.  table: called with these
    Records, and with subsets to find those on which a row depends; if the table has no rows, the
    figure is left out.  chart: a Vega-Lite specification over the table's columns, which the
    browser draws (`line_chart` and similar functions create one).  caption: how to read it, in
    plain words; by default the docstring of `table`.  draw: free drawing instead of a chart, called
    with an empty `matplotlib.figure.Figure` and the table.  every_card: whether the Records passed
    are the newest of every point on each card instead of on each machine. Raises DefinitionError
    for a figure that has a chart and draws freely, and for a value of another type.
    """

    name: str
    title: str
    benchmarks: tuple[str, ...]
    table: Callable[[Sequence[Record]], Table]
    chart: Chart | None = None
    caption: str = ""
    draw: Callable[[Any, Table], None] | None = None
    every_card: bool = False

    def __post_init__(self) -> None:
        check_name("figure", self.name)
        if self.chart is not None and not isinstance(self.chart, dict):
            raise DefinitionError(
                f"figure {self.name!r}: chart must be a Vega-Lite specification (a dict)"
            )
        check_fields(self, "figure", self.name)
        for fault in self._faults():
            raise DefinitionError(f"figure {self.name!r}{fault}")
        if not self.caption and self.table.__doc__:
            object.__setattr__(self, "caption", " ".join(self.table.__doc__.split()))

    def _faults(self) -> Iterator[str]:
        if not self.benchmarks:
            yield " names no benchmark whose Records it shows"
        if not takes(self.table, 1):
            yield ": table must take one argument, the Records"
        if self.draw is not None and not takes(self.draw, 2):
            yield ": draw must take two arguments, a matplotlib Figure and the table"
        if self.chart is not None and self.draw is not None:
            yield " has a chart and draws freely; give one of the two"
        try:
            msgspec.json.encode(self.chart)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            yield f": chart is not JSON: {error}"
