"""Tables for readers: cells formatted with their units, as Markdown, as CSV, and as text for a
terminal."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from hpml_plugins.model.figure import Cell, Table, told_apart
from hpml_plugins.model.formatting import quantity
from hpml_plugins.terminal import align, printable

#: The longest number without a unit that is shown unchanged.
AS_WRITTEN = 8


def formatted(table: Table) -> list[list[str]]:
    """The rows as printable text: numbers with a unit scaled, "–" for unknown values."""
    table = told_apart(table)
    units = [table.units.get(name, "") for name in table.columns]
    rows = []
    for row in table.rows():
        cells = zip(row.values(), units, strict=True)
        rows.append([_format(cell, unit) for cell, unit in cells])
    return rows


def numeric(table: Table) -> list[bool]:
    """Which columns hold numbers, to be aligned right."""
    found = []
    for name, values in table.columns.items():
        is_numeric = all(isinstance(cell, int | float) or cell is None for cell in values)
        found.append(name in table.units or is_numeric)
    return found


def as_markdown(table: Table) -> str:
    """A Markdown table."""
    rules = ["--:" if right else "---" for right in numeric(table)]
    lines = []
    for line in (list(map(printable, table.columns)), rules, *formatted(table)):
        cells = " | ".join(cell.replace("|", r"\|") for cell in line)
        lines.append(f"| {cells} |\n")
    return "".join(lines)


def as_csv(table: Table) -> str:
    """Comma-separated values: numbers in SI base units at full precision; headings contain the
    unit, `time [s]`.

    Texts that a spreadsheet would treat as formulas are preceded by an apostrophe; line breaks in
    texts are escaped.
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
    for row in table.rows():
        writer.writerow(map(_no_formula, row.values()))
    return file.getvalue()


#: First characters of cells that spreadsheets evaluate. Source: OWASP, CSV Injection.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def _no_formula(cell: Cell) -> Cell:
    if cell is None:
        return ""
    if isinstance(cell, str):
        return printable(f"'{cell}" if cell.startswith(_FORMULA) else cell)
    return cell


def as_text(table: Table, width: int = 0) -> str:
    """Aligned columns. A table wider than `width` is transposed, in as many parts as necessary; 0:
    no limit."""
    lines = [list(map(printable, table.columns)), *formatted(table)]
    aligned = align(lines, numeric(table))
    if width and max(map(len, aligned), default=0) > width:
        aligned = _transpose(lines, width)
    return "".join(f"{line}\n" for line in aligned)


def _transpose(lines: Sequence[Sequence[str]], width: int) -> list[str]:
    """The rows as columns beside their names, as many per part as fit; at least one."""
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


def _format(cell: Cell, unit: str) -> str:
    if cell is None:
        return "–"
    if isinstance(cell, bool | str):
        return printable(str(cell))
    # Chosen numbers (a learning rate of 0.001) are shown as they were written; computed ones get
    # four digits.
    if not unit and (isinstance(cell, int) or len(str(cell)) <= AS_WRITTEN):
        return str(cell)
    return quantity(cell, unit)
