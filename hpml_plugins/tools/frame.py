"""`hpml_plugins.load(path)`: Records and their values as a table for notebooks and programs."""

from __future__ import annotations

import html
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpml_plugins.analysis import MeasuredValue, Variability
from hpml_plugins.errors import HpmlError, UsageError, needs_extra
from hpml_plugins.model import Figure, Record, Table, counted, format_point
from hpml_plugins.report import Axis, Drawable, bar_chart, dot_chart, record_rows
from hpml_plugins.store import find_results, read_foreign, read_records, unpack_records
from hpml_plugins.temporary import temporary_folder
from hpml_plugins.terminal import warn

if TYPE_CHECKING:
    import pandas
    import polars

#: Rows that a notebook shows of a frame.
SHOWN_ROWS = 12
#: The columns that a notebook shows.
SHOWN_COLUMNS = (
    "benchmark",
    "point",
    "machine",
    "metric",
    "value",
    "low",
    "high",
    "unit",
    "class",
)


def load(path: str | Path = "results") -> Frame:
    """The Records of a results folder, of a project with one, or of a file of `hpml run --record`,
    as a Frame.

    Includes results of asv's own benchmarks in the folder. A damaged line is skipped, with a
    warning on stderr. Raises UsageError if there are no results.
    """
    place = Path(path)
    if place.is_file():
        return Frame(_read_file(place))
    results = find_results(place)
    return Frame([*read_records(results, warn), *read_foreign(results)])


def _read_file(file: Path) -> list[Record]:
    damage: list[str] = []
    with temporary_folder("hpml-records-") as folder:
        unpack_records(file, folder, damage.append)
        found = list(read_records(folder, damage.append))
    if not found:
        raise UsageError(
            "no Record in this file; hpml run --record writes such files", str(file)
        )
    for fault in damage:
        warn(fault)
    return found


class Frame:
    """Records, and a row for each of their metrics.

    records: those of the frame.  variability: the variation of values, estimated from all loaded
    Records, also for a selection of them.
    """

    def __init__(
        self, records: Sequence[Record], variability: Variability | None = None
    ) -> None:
        self.records = list(records)
        self._given = variability

    @cached_property
    def variability(self) -> Variability:
        """The variation of values between runs and between cards."""
        return self._given or Variability(self.records)

    def select(self, benchmark: str = "*", machine: str = "*", **params: object) -> Frame:
        """A frame with only these Records.

        benchmark, machine: a name, or a pattern such as `roof_*`.  params: parameters of the point
        that must have this value.
        """

        def is_chosen(record: Record) -> bool:
            named = fnmatchcase(record.benchmark, benchmark)
            there = fnmatchcase(record.machine, machine)
            return named and there and params.items() <= record.params.items()

        return Frame([*filter(is_chosen, self.records)], self.variability)

    def readings(self, record: Record) -> dict[str, MeasuredValue]:
        """Each compared metric of a Record with its class, its card and its spread."""
        return dict(self.variability.values(record)) if record.status == "ok" else {}

    def rows(self) -> Iterator[dict[str, Any]]:
        """A row for each metric of each Record, in SI base units; one for a Record without metrics.

        value, low, high: with the 95 % interval for the next run on another card of the type, or
        none if unknown.  class: what limits the value.  cards: the UUIDs of the cards, or their
        substitutes.  regime: `sustained`, or `boost` in a row of its own.
        """
        for record in self.records:
            readings = self.readings(record)
            point = format_point(record.params)
            for row in record_rows(record):
                plain = {"point": point, **row}
                reading = readings.get(row.get("metric", ""))
                if reading is None:
                    yield plain
                    continue
                for each in filter(None, (reading, reading.boosted)):
                    yield plain | _cells(each)

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a pandas frame, with a column `params.NAME` for each parameter."""
        with needs_extra("pandas"):
            import pandas
        return pandas.DataFrame(map(_with_parameters, self.rows()))

    def to_polars(self) -> polars.DataFrame:
        """The rows as a Polars frame. `params` is the JSON of the point's parameters."""
        with needs_extra("polars"):
            import polars
        return polars.DataFrame(list(self.rows()), infer_schema_length=None)

    @property
    def chart(self) -> dict[str, Any]:
        """A Vega-Lite chart: the values of one benchmark's first metric with their intervals; for
        several benchmarks, the number of measured points of each machine."""
        drawn = Drawable("", self._figure(), self._table()).chart
        assert drawn is not None
        return drawn

    def __len__(self) -> int:
        return len(self.records)

    def __repr__(self) -> str:
        benchmarks = {record.benchmark for record in self.records}
        machines = {record.machine for record in self.records}
        return (
            f"<Frame: {counted(len(self), 'Record')} of {counted(len(benchmarks), 'benchmark')}"
            f" on {counted(len(machines), 'machine')}>"
        )

    def _repr_html_(self) -> str:
        head = f"<p>{html.escape(repr(self)[1:-1])}</p>"
        return head + self._picture() + self._html_table()

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        """The chart for notebooks that draw Vega-Lite, and the text for others."""
        return {
            "text/plain": repr(self),
            "text/html": self._repr_html_(),
            "application/vnd.vegalite.v6+json": self.chart,
        }

    def _picture(self) -> str:
        """The chart as SVG; a sentence if the package that draws it is missing."""
        try:
            with needs_extra("publish"):
                import vl_convert
        except HpmlError as error:
            return f"<p>{html.escape(str(error))}</p>"
        return str(vl_convert.vegalite_to_svg(self.chart))

    def _html_table(self) -> str:
        rows = list(self.rows())
        cells = [[row.get(name) for name in SHOWN_COLUMNS] for row in rows[:SHOWN_ROWS]]
        lines = [_html_row("th", SHOWN_COLUMNS), *(_html_row("td", each) for each in cells)]
        hidden = len(rows) - len(cells)
        more = f"<p>{hidden:,} more rows: to_pandas()</p>" if hidden else ""
        return f"<table>{''.join(lines)}</table>{more}"

    def _is_one(self) -> bool:
        return len({record.benchmark for record in self.records if record.metrics}) == 1

    def _table(self) -> Table:
        if not self._is_one():
            counts = Counter(each.machine for each in self.records if each.metrics)
            return Table.of(
                {"machine": name, "points": count} for name, count in counts.items()
            )
        rows = [row for row in self.rows() if "metric" in row]
        first = rows[0]["metric"]
        names = ("point", "machine", "value", "low", "high")
        drawn = [row for row in rows if row["metric"] == first]
        found = Table.of({name: row.get(name) for name in names} for row in drawn)
        return Table(
            found.columns, dict.fromkeys(("value", "low", "high"), rows[0]["unit"])
        )

    def _figure(self) -> Figure:
        if not self._is_one():
            chart = bar_chart("machine", Axis("points", "measured Records"))
            return Figure("frame", "Records", ("any",), Table.of_records, chart)
        record = next(each for each in self.records if each.metrics)
        name, metric = next(iter(record.metrics.items()))
        axis = Axis("value", name, metric.unit)
        chart = dot_chart("point", axis, "machine", low="low", high="high")
        title = f"{record.benchmark}: {name}"
        return Figure("frame", title, (record.benchmark,), Table.of_records, chart)


def _cells(reading: MeasuredValue) -> dict[str, Any]:
    """The cells of a reading other than its samples."""
    shown = reading.estimate
    return {
        "value": shown.value,
        "low": shown.low,
        "high": shown.high,
        "class": str(reading.physics),
        "regime": reading.regime,
        "cards": reading.card,
    }


def _with_parameters(row: dict[str, Any]) -> dict[str, Any]:
    params = json.loads(row["params"])
    return row | {f"params.{name}": value for name, value in params.items()}


def _html_row(kind: str, cells: Sequence[object]) -> str:
    texts = (f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in cells)
    shown = (
        f"<{kind}>{html.escape('' if text == 'None' else text)}</{kind}>" for text in texts
    )
    return f"<tr>{''.join(shown)}</tr>"
