"""The charts, drawn from the tables alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from hpml_plugins import Table
from hpml_plugins.plugins.mlp.formulas import roofline
from hpml_plugins.plugins.mlp.phases import ORDER
from hpml_plugins.plugins.mlp.tables import PUBLISHED

Draw = Callable[[Any, Table], None]
#: Of a mark that is seen on bars of any colour, and beside them.
MARK = {"linestyle": "", "marker": "D", "color": "white", "markeredgecolor": "black"}


def draw_errors(sheet: Any, table: Table) -> None:
    """Error after the last steps against the learning rate: a line for each dtype and product."""
    last = max(_number(row["steps"]) for row in table.rows())
    kept = Table.of([row for row in table.rows() if row["steps"] == last])

    def line(axes: Any, label: str, rows: list[dict[str, Any]]) -> None:
        axes.loglog([row["rate"] for row in rows], [row["error"] for row in rows], label=label)

    panels = _panels(sheet, kept, ("device", "data", "dtype", "product"), line)
    for axes in panels:
        axes.set(xlabel="learning rate", ylabel=f"relative error of weights after {last:g} steps")


def draw_over(sweep: str, value: str, label: str, *, told: tuple[float | None, float | None] = (None, None)) -> Draw:
    """A value against a sweep's; NumPy's dashed.  told: published x and y, dotted."""

    def draw(sheet: Any, table: Table) -> None:
        kept = Table.of([row for row in table.rows() if row.get(value) is not None])

        def line(axes: Any, name: str, rows: list[dict[str, Any]]) -> None:
            style = {"linestyle": "--"} if name.startswith("NumPy") else {}
            axes.semilogx([row[sweep] for row in rows], [row[value] for row in rows], label=name, **style)

        for axes in _panels(sheet, kept, ("by", "device", "data"), line):
            axes.set(xlabel=label, ylabel=value)
            if value == "loss":
                axes.set_yscale("log")
            for at, rule in zip(told, (axes.axvline, axes.axhline), strict=True):
                if at is not None:
                    rule(at, color="0.5", linewidth=0.8, linestyle=":", marker="")

    return draw


#: Of the project's palette; what comes after them is hatched.
COLOURS = 8


def draw_phases(sheet: Any, table: Table) -> None:
    """Stacked bars, a bar a point; the mark is the whole batch."""
    rows = list(table.rows())
    names = [
        f"{row['machine']} {row['ranks']}× {row['way']} {row['hidden']}/{row['batch']} {row['dtype']} {row['product']}"
        for row in rows
    ]
    sheet.set_size_inches(10.0, max(3.2, 1.6 + 0.3 * len(rows)))
    axes = sheet.subplots()
    left = [0.0] * len(rows)
    for number, phase in enumerate(ORDER):
        widths = [1e3 * _number(row.get(phase)) for row in rows]
        axes.barh(
            names, widths, left=left, label=phase, color=f"C{number % COLOURS}", hatch="//" if number >= COLOURS else ""
        )
        left = [start + width for start, width in zip(left, widths, strict=True)]
    marks = [1e3 * _number(row["batch_time"]) for row in rows]
    axes.plot(marks, names, label="whole batch", **MARK)
    axes.invert_yaxis()
    axes.set(xlabel="ms")
    axes.tick_params(axis="y", labelsize=7)
    axes.legend(fontsize="x-small", loc="upper left", bbox_to_anchor=(1.01, 1.0))


def draw_roofline(sheet: Any, table: Table) -> None:
    """A panel a machine: its roofs, the points on them, and the published roof dashed."""
    machines = [name for (name,) in table.groups("machine") if name != PUBLISHED]
    elsewhere = [row for row in table.rows() if row["machine"] == PUBLISHED]
    sheet.set_size_inches(sheet.get_figwidth(), 1.2 * sheet.get_figheight() * len(machines))
    for axes, machine in zip(sheet.subplots(len(machines), 1, squeeze=False)[:, 0], machines, strict=True):
        own = [row for row in table.rows() if row["machine"] == machine]
        points = [row for row in own if row["what"] == "point"]
        intensities = [_number(row["intensity"]) for row in points] or [1.0, 1e4]
        low, high = min(intensities) / 3, max(intensities) * 3
        for number, roof in enumerate(row for row in (*own, *elsewhere) if row["what"] == "roof"):
            style = "--" if roof["machine"] == PUBLISHED else "-"
            name = PUBLISHED if roof["machine"] == PUBLISHED else _named(roof)
            x = [low * (high / low) ** (i / 60) for i in range(61)]
            rates = [_number(roof[each]) for each in ("flops", "pci", "mpi")]
            axes.loglog(x, [roofline(at, *rates) for at in x], style, color=f"C{number}", marker="", label=name)
            of_roof = [row for row in points if _named(row) == name]
            _draw_points(axes, of_roof, f"C{number}")
        axes.set(
            title=str(machine),
            xlabel="arithmetic intensity in FLOP by byte copied and added up",
            ylabel="FLOP/s (1 multiply-add = 2 FLOP)",
        )
        axes.legend(fontsize="x-small")


MARKERS = "osD^vP*X"


def _draw_points(axes: Any, points: Sequence[dict[str, Any]], colour: str) -> None:
    """A marker for each hidden size; the batch beside it."""
    for number, hidden in enumerate(sorted({int(_number(row["hidden"])) for row in points})):
        of_one = [row for row in points if row["hidden"] == hidden]
        x, y = [row["intensity"] for row in of_one], [row["rate"] for row in of_one]
        marker = MARKERS[number % len(MARKERS)]
        axes.plot(x, y, linestyle="", marker=marker, color=colour, label=f"H = {hidden}")
    for row in points:
        near = (row["intensity"], row["rate"])
        axes.annotate(f"B {row['batch']}", near, textcoords="offset points", xytext=(4, -8), fontsize=6)


def draw_ways(sheet: Any, table: Table) -> None:
    """A bar a variant, the prediction as a mark."""
    rows = list(table.rows())
    names = [f"{row['machine']} {row['ranks']}× {row['way']} {row['hidden']}/{row['batch']}: {row['variant']}"
             for row in rows]  # fmt: skip
    sheet.set_size_inches(9.0, 1.2 + 0.3 * len(rows))
    axes = sheet.subplots()
    axes.barh(names, [1e3 * _number(row["time"]) for row in rows], label="measured")
    axes.plot([1e3 * _number(row["predicted"]) for row in rows], names, label="predicted from phases",
              **MARK)  # fmt: skip
    axes.invert_yaxis()
    axes.tick_params(axis="y", labelsize=7)
    axes.set(xlabel="a batch in ms")
    axes.legend(fontsize="x-small")


def _panels(
    sheet: Any, table: Table, by: tuple[str, ...], line: Callable[[Any, str, list[dict[str, Any]]], None]
) -> list[Any]:
    """A panel a machine with a line for each group of rows; returns the axes."""
    machines = table.groups("machine")
    sheet.set_size_inches(sheet.get_figwidth(), sheet.get_figheight() * len(machines))
    panels = list(sheet.subplots(len(machines), 1, squeeze=False)[:, 0])
    for axes, ((machine,), rows) in zip(panels, machines.items(), strict=True):
        for key, of_one in Table.of(rows).groups(*by).items():
            line(axes, " ".join(map(str, key)), of_one)
        axes.set(title=str(machine))
        axes.legend(fontsize="x-small")
    return panels


def _named(row: dict[str, Any]) -> str:
    return f"{row['device']}, {row['ranks']} ranks, {row['way']}, {row['product']}"


def _number(cell: Any) -> float:
    value = float(cell) if cell is not None else 0.0
    return value if math.isfinite(value) else 0.0
