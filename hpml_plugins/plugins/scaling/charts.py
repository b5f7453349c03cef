"""The charts, drawn from the tables."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from hpml_plugins import Table, legend_below, panels
from hpml_plugins.plugins.scaling.dp import PARTS

#: Of marks, by the number of GPUs.
FILLS = ("full", "none", "left")


def draw_breakdown(sheet: Any, table: Table) -> None:
    """Stacked bars: the parts of a step on the host, a bar a point; marks: a whole step that is not profiled."""
    import matplotlib

    axes = sheet.subplots()
    rows = sorted(
        table.rows(),
        key=lambda row: (row["machine"], row["scaling"] == "strong", row["dtype"], row["batch"], row["gpus"]),
    )
    sheet.set_size_inches(sheet.get_figwidth(), 2 + 0.45 * len(rows))  # labels have two lines
    names = [
        f"{row['machine']}, {row['dtype']}\n{row['batch']} images "
        + (f"for each of {row['gpus']} GPUs" if row["scaling"] == "weak" else f"for {row['gpus']} GPUs together")
        for row in rows
    ]
    left = [0.0] * len(rows)
    for part in PARTS:
        widths = [1e3 * _number(row[part]) for row in rows]
        axes.barh(names, widths, left=left, label=part, height=0.6)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    # In the page's own ink: one of the cycle's colours would vanish in the bar of that colour.
    ink = matplotlib.rcParams["text.color"]
    for column, marker, label in (("single", "D", "step of one GPU"), ("step", "s", "DataParallel's step")):
        of_one = [1e3 * _number(row[column]) for row in rows]
        axes.plot(of_one, names, linestyle="", marker=marker, color=ink, label=f"{label}, not profiled")
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="y", labelsize=9)
    axes.set(xlabel="time of the host in ms")
    legend_below(sheet, columns=4, restyle=False)


def draw_speedups(sheet: Any, table: Table) -> None:
    """Speed-up over the number of GPUs: a panel a machine, a line a way of training, as many times as GPUs dashed."""
    machines = table.groups("machine")
    for axes, ((machine,), rows) in zip(panels(sheet, len(machines)), machines.items(), strict=True):
        counts = [1, *sorted({int(_number(row["gpus"])) for row in rows})]
        axes.plot(counts, counts, color="0.5", linestyle="--", marker="", label="ideal")
        for way, of_one in Table.of(rows).groups("method", "scaling", "dtype").items():
            batch, over = _longest(of_one)
            line = [(1, 1.0), *sorted((_number(row["gpus"]), _number(row["speedup"])) for row in over)]
            axes.plot(*zip(*line, strict=True), label=f"{' '.join(map(str, way))}, batch {batch:g}")
        axes.set(title=str(machine), xlabel="GPUs", ylabel="times as fast as one GPU", xticks=counts)
        axes.set_xlim(0.9, counts[-1] * 1.1)
        axes.set_ylim(bottom=0)
    legend_below(sheet, columns=2)


def draw_efficiencies(sheet: Any, table: Table) -> None:
    """Efficiency of each point with its interval: a panel a machine, a row a way and batch, a mark a number of GPUs."""
    machines = table.groups("machine")
    rows_of = {
        machine: Table.of(rows).groups("method", "scaling", "dtype", "batch") for (machine,), rows in machines.items()
    }
    counts = sorted({int(_number(count)) for count in table.columns["gpus"]})
    heights = [len(rows) + 2 for rows in rows_of.values()]
    sheet.set_size_inches(sheet.get_figwidth(), 1 + 0.26 * sum(heights))
    grid = sheet.subplots(len(rows_of), squeeze=False, sharex=True, height_ratios=heights)[:, 0]
    for axes, (machine, rows) in zip(grid, rows_of.items(), strict=True):
        axes.axvline(1, color="0.5", linestyle="--", marker="", label="ideal")
        for number, count in enumerate(counts):
            found = [(at, row) for at, points in enumerate(rows.values()) for row in points if row["gpus"] == count]
            values = [_number(row["efficiency"]) for _, row in found]
            below = [value - _number(row["from"]) for value, (_, row) in zip(values, found, strict=True)]
            above = [_number(row["to"]) - value for value, (_, row) in zip(values, found, strict=True)]
            look = {"fmt": "os^Dv"[number % 5], "color": f"C{number}", "capsize": 3}
            axes.errorbar(values, [at for at, _ in found], xerr=(below, above), label=f"{count} GPUs", **look)
        names = [f"{method} {scaling} {dtype}, {batch}" for method, scaling, dtype, batch in rows]
        axes.set_yticks(range(len(names)), names, fontsize=9)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_xlim(left=0)
        axes.set_title(str(machine))
    grid[-1].set_xlabel("speed-up / GPUs")
    legend_below(sheet)


def draw_efficiency_over_batch(sheet: Any, table: Table) -> None:
    """Efficiency against the batch: a panel a machine, a line a way of training, marks filled by the number of GPUs."""
    import matplotlib

    # A way looks alike in every panel, whatever the number of GPUs is that it was measured on there.
    ways = list(table.groups("method", "scaling", "dtype"))
    looks = dict(zip(ways, itertools.cycle(matplotlib.rcParams["axes.prop_cycle"])))
    counts = sorted({int(_number(count)) for count in table.columns["gpus"]})
    fills = {count: FILLS[number % len(FILLS)] for number, count in enumerate(counts)}
    machines = table.groups("machine")
    for axes, ((machine,), rows) in zip(panels(sheet, len(machines), sharey=True), machines.items(), strict=True):
        axes.axhline(1, color="0.5", linewidth=0.8, linestyle="--", marker="")
        for (*way, count), of_one in Table.of(rows).groups("method", "scaling", "dtype", "gpus").items():
            over = sorted(of_one, key=lambda row: _number(row["batch"]))
            axes.semilogx(
                [row["batch"] for row in over],
                [row["efficiency"] for row in over],
                label=" ".join(map(str, way)),
                fillstyle=fills[int(_number(count))],
                base=2,
                **looks[tuple(way)],
            )
        batches = sorted({int(_number(row["batch"])) for row in rows})
        axes.set_xticks(batches, [str(batch) for batch in batches], rotation=30)
        axes.minorticks_off()
        axes.set(title=str(machine), xlabel="images (weak: of each GPU; strong: of all)", ylabel="speed-up / GPUs")
        axes.set_ylim(bottom=0)
    for count in counts:
        sheet.axes[0].plot([], [], color="0.5", marker="o", fillstyle=fills[count], label=f"{count} GPUs")
    legend_below(sheet, columns=2, restyle=False)


def _longest(rows: Sequence[Mapping[str, Any]]) -> tuple[float, list[Mapping[str, Any]]]:
    """The batch that was measured on the most numbers of GPUs, the largest of several, and its rows."""
    batches = {_number(row["batch"]) for row in rows}
    of_batch = {batch: [row for row in rows if _number(row["batch"]) == batch] for batch in batches}
    batch = max(of_batch, key=lambda batch: (len({row["gpus"] for row in of_batch[batch]}), batch))
    return batch, of_batch[batch]


def _number(cell: Any) -> float:
    return float(cell)
