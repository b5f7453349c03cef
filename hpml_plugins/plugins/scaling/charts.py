"""The charts, drawn from the tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hpml_plugins import Table, legend_below, panels
from hpml_plugins.plugins.scaling.dp import PARTS


def draw_breakdown(sheet: Any, table: Table) -> None:
    """Stacked bars: the parts of a step on the host, a bar a point."""
    axes = sheet.subplots()
    rows = list(table.rows())
    names = [f"{row['machine']} {row['gpus']}×{row['batch']} {row['dtype']} {row['scaling']}" for row in rows]
    left = [0.0] * len(rows)
    for part in PARTS:
        widths = [1e3 * _number(row[part]) for row in rows]
        axes.barh(names, widths, left=left, label=part)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    axes.plot(
        [1e3 * _number(row["single"]) for row in rows], names, linestyle="", marker="|", label="a step on one GPU"
    )
    axes.invert_yaxis()
    axes.set(xlabel="time of the host in a profiled step in ms")
    axes.legend()


def draw_over_gpus(metric: str, ideal: Callable[[float], float], label: str) -> Callable[[Any, Table], None]:
    """A chart of a metric against the number of GPUs: a panel a machine, a line a way of training, the ideal dashed."""

    def draw(sheet: Any, table: Table) -> None:
        machines = table.groups("machine")
        for axes, ((machine,), rows) in zip(panels(sheet, len(machines)), machines.items(), strict=True):
            counts = [1, *sorted({int(_number(row["gpus"])) for row in rows})]
            axes.plot(counts, [ideal(count) for count in counts], color="0.5", linestyle="--", marker="", label="ideal")
            for way, of_one in Table.of(rows).groups("method", "scaling", "dtype").items():
                largest = max(_number(row["batch"]) for row in of_one)
                over = [(row["gpus"], row[metric]) for row in of_one if row["batch"] == largest]
                line = [(1, 1.0), *sorted(over, key=lambda point: _number(point[0]))]
                axes.plot(*zip(*line, strict=True), label=f"{' '.join(map(str, way))}, batch {largest:g}")
            axes.set(title=str(machine), xlabel="GPUs", ylabel=label, xticks=counts, xlim=(0.9, counts[-1] * 1.1))
            axes.set_ylim(bottom=0)
        legend_below(sheet, columns=2)

    return draw


def draw_efficiency_over_batch(sheet: Any, table: Table) -> None:
    """Efficiency against the batch: a panel a machine, a line a way of training, precision and number of GPUs."""
    machines = table.groups("machine")
    for axes, ((machine,), rows) in zip(panels(sheet, len(machines), sharey=True), machines.items(), strict=True):
        axes.axhline(1, color="0.5", linewidth=0.8, linestyle="--", marker="")
        for way, of_one in Table.of(rows).groups("method", "scaling", "dtype", "gpus").items():
            over = sorted(of_one, key=lambda row: _number(row["batch"]))
            axes.semilogx(
                [row["batch"] for row in over],
                [row["efficiency"] for row in over],
                label=f"{' '.join(map(str, way[:3]))}, {way[3]} GPUs",
                base=2,
            )
        batches = sorted({int(_number(row["batch"])) for row in rows})
        axes.set_xticks(batches, [str(batch) for batch in batches], rotation=30)
        axes.minorticks_off()
        axes.set(title=str(machine), xlabel="batch", ylabel="speed-up / GPUs")
        axes.set_ylim(bottom=0)
    legend_below(sheet, columns=2)


def _number(cell: Any) -> float:
    return float(cell)
