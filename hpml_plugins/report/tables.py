"""Tables for readers: cells formatted with their units, as Markdown, as CSV, and as text for a
terminal."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from hpml_plugins.model.figure import Cell, Table, told_apart
from hpml_plugins.model.formatting import estimate, format_point, quantity, unquoted
from hpml_plugins.model.record import MetricSamples, Record
from hpml_plugins.report.doubts import all_remarks, doubts
from hpml_plugins.report.shares import Roof, shares
from hpml_plugins.terminal import printable

if TYPE_CHECKING:
    from hpml_plugins.analysis.measured import MeasuredValue

#: Characters of a number without unit that is shown as it is.
AS_WRITTEN = 8


def formatted(table: Table) -> list[list[str]]:
    """The rows as printable text: numbers with a unit scaled for reading, "–" for what is not
    known."""
    table = told_apart(table)
    units = [table.units.get(name, "") for name in table.columns]
    return [
        [_format(cell, unit) for cell, unit in zip(row.values(), units, strict=True)]
        for row in table.rows()
    ]


def numeric(table: Table) -> list[bool]:
    """Which columns hold numbers, which stand to the right."""
    return [
        name in table.units
        or all(isinstance(cell, int | float) or cell is None for cell in values)
        for name, values in table.columns.items()
    ]


def as_markdown(table: Table) -> str:
    """A Markdown table."""
    rules = ["--:" if right else "---" for right in numeric(table)]
    lines = [list(map(printable, table.columns)), rules, *formatted(table)]
    return "".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n"
        for line in lines
    )


def as_csv(table: Table) -> str:
    """Comma-separated values: numbers in SI base units at full precision; the heading names the
    unit, `time [s]`.

    A text that a spreadsheet would take for a formula has an apostrophe in front; a line break in
    one is escaped.
    """
    table = told_apart(table)
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(
        _no_formula(
            f"{name} [{table.units[name]}]" if table.units.get(name, "1") != "1" else name
        )
        for name in table.columns
    )
    writer.writerows([_no_formula(cell) for cell in row.values()] for row in table.rows())
    return file.getvalue()


#: What a cell begins with that a spreadsheet computes. Source: OWASP, CSV Injection.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def _no_formula(cell: Cell) -> Cell:
    if cell is None:
        return ""
    if isinstance(cell, str):
        return printable(f"'{cell}" if cell.startswith(_FORMULA) else cell)
    return cell


def as_text(table: Table, width: int = 0) -> str:
    """Aligned columns. A table wider than `width` is transposed, in as many parts as that needs; 0:
    of any width."""
    lines = [list(map(printable, table.columns)), *formatted(table)]
    aligned = align(lines, numeric(table))
    if width and max(map(len, aligned), default=0) > width:
        aligned = _transpose(lines, width)
    return "".join(f"{line}\n" for line in aligned)


def _transpose(lines: Sequence[Sequence[str]], width: int) -> list[str]:
    """The rows as columns beside their names, as many at a time as fit; one at least."""
    names, *rows = lines
    found: list[str] = []
    while rows:
        for count in range(len(rows), 0, -1):
            part = align(list(zip(names, *rows[:count], strict=True)))
            if max(map(len, part)) <= width:
                break
        found += [""] * bool(found) + part
        rows = rows[count:]
    return found


def align(rows: Sequence[Sequence[str]], to_right: Sequence[bool] = ()) -> list[str]:
    """The rows as lines with aligned columns. to_right: which columns stand to the right; by
    default none."""
    columns = []
    sides = itertools.chain(to_right, itertools.repeat(False))
    for cells, right in zip(zip(*rows, strict=True), sides, strict=False):
        width = max(map(len, cells))
        columns.append(
            [cell.rjust(width) if right else cell.ljust(width) for cell in cells]
        )
    return ["  ".join(line).rstrip() for line in zip(*columns, strict=True)]


def point_tables(records: Sequence[Record], width: int, roof: Roof) -> Iterator[str]:
    """The points of one benchmark for a terminal: a row each, in as many tables as the width asks
    for.

    Parameters that all points share stand in a line before the tables. Behind the metrics stand the
    shares of peak and roof where the work is declared.
    """
    cells = [
        {
            name: spell_samples(samples, samples.unit)
            for name, samples in record.metrics.items()
        }
        | shares(record, roof)
        for record in records
    ]
    metrics = list(dict.fromkeys(name for each in cells for name in each))
    params = records[0].params if records else {}
    varying = [
        key for key in params if len({repr(record.params[key]) for record in records}) > 1
    ]
    if len(varying) < len(params):
        yield printable(
            format_point(
                {key: value for key, value in params.items() if key not in varying}
            )
        )
    shown = [dict.fromkeys(metrics, "–") | each for each in cells]
    rows = [
        {key: unquoted(repr(record.params[key])) for key in varying} for record in records
    ]
    whole = Table.of([row | each for row, each in zip(rows, shown, strict=True)])
    while metrics:
        for count in range(len(metrics), 0, -1):
            table = as_text(whole.select(*varying, *metrics[:count])).rstrip("\n")
            if max(map(len, table.splitlines())) <= width:
                break
        yield from table.splitlines()
        metrics = metrics[count:]


def describe_points(
    records: Sequence[Record], width: int, roof: Roof, *, verbose: bool = False
) -> Iterator[str]:
    """The points of one benchmark for a terminal: measured ones as tables, the others and what is
    doubtful by reason. verbose: with all warnings."""
    yield from point_tables(
        [record for record in records if record.status == "ok"], width, roof
    )
    # Below and not in a column: a reason is longer than all the numbers together.
    by_remark: dict[tuple[str, str], list[str]] = {}
    for record in records:
        ended = [] if record.status == "ok" else [(record.status, record.reason)]
        doubtful = all_remarks(record) if verbose else doubts(record)
        for remark in [*ended, *(("warning", text) for text in doubtful)]:
            by_remark.setdefault(remark, []).append(format_point(record.params))
    for (kind, text), points in by_remark.items():
        which = (
            points[0]
            if len(points) == 1 and points[0]
            else f"{len(points)} of {len(records)} points"
        )
        yield printable(f"{kind}: {which}: {text}")


def spell_samples(samples: MetricSamples | MeasuredValue, unit: str) -> str:
    """The median of a metric with its interval, as `formatting.estimate` writes it."""
    return f"{estimate(samples.estimate, unit)} {samples.regime}".rstrip()


def _format(cell: Cell, unit: str) -> str:
    if cell is None:
        return "–"
    if isinstance(cell, bool | str):
        return printable(str(cell))
    # What somebody chose (a learning rate of 0.001) stays as it was written; what was computed gets
    # four digits.
    if not unit and (isinstance(cell, int) or len(str(cell)) <= AS_WRITTEN):
        return str(cell)
    return quantity(cell, unit)
