"""Charts of the tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hpml_plugins import Table, legend_below
from hpml_plugins.plugins.quantization.tables import SHOWN

LABELS = {"float": "float32", "bits8": "8 bits", "bits4": "4 bits", "bits2": "2 bits"}
MARKERS = "os^Dvp*Xh"


def draw_histograms(sheet: Any, table: Table) -> None:
    """A panel a layer: float32 filled, the widths as steps over it; shares on a logarithmic axis."""
    groups = table.groups("machine", "data", "layer")
    panels = _panels(sheet, len(groups), across=2)
    for axes, ((machine, data, layer), rows) in zip(panels, groups.items(), strict=False):
        edges = [float(row["from"] or 0) for row in rows] + [float(rows[-1]["to"] or 0)]
        for number, name in enumerate(SHOWN):
            heights = [float(row[name] or 0) for row in rows]
            fill = number == 0
            axes.stairs(heights, edges, label=LABELS[name], fill=fill, alpha=0.4 if fill else 1.0, color=f"C{number}")
        axes.set_yscale("log")
        axes.set_ylim(bottom=1e-4)
        axes.set_title(f"{machine} {data}: {layer}", fontsize=8)
        axes.set(xlabel="value", ylabel="share")
    legend_below(sheet, columns=4, restyle=False)


def draw_accuracy(sheet: Any, table: Table) -> None:
    """A panel a machine and data set: accuracy over bits, a line a step at a scale a channel, integers in all ways."""
    groups = table.groups("machine", "data")
    panels = _panels(sheet, len(groups), across=2)
    for axes, ((machine, data), rows) in zip(panels, groups.items(), strict=False):
        lines: dict[str, list[tuple[int, float]]] = {}
        for row in rows:
            if row["step"] == "float":
                axes.axhline(float(row["accuracy"] or 0), color="0.5", linestyle="--", marker="", label="float32")
            elif row["step"] == "integer" or (row["granularity"], row["range"]) == ("channel", "minmax"):
                name = f"{row['step']}, {row['granularity']}, {row['range']}"
                lines.setdefault(name, []).append((int(row["bits"] or 0), float(row["accuracy"] or 0)))
        for name, points in lines.items():
            style = "-" if name.startswith("integer") else ":"
            axes.plot(*zip(*sorted(points), strict=True), label=name, linestyle=style)
        axes.set(title=f"{machine} {data}", xlabel="bits", ylabel="accuracy", xticks=(1, 2, 4, 6, 8))
        axes.set_ylim(0, 1.02)
    legend_below(sheet, columns=3, restyle=False)


def draw_front(sheet: Any, table: Table) -> None:
    """A panel a machine, device, network and data set: accuracy over latency; the line joins what nothing beats.

    Ways in which one image alone does not run have no latency, and no mark.
    """
    methods = list(dict.fromkeys(table.columns["method"]))
    groups = Table.of([row for row in table.rows() if row["latency"] is not None]).groups(
        "machine", "device", "model", "data"
    )
    if not groups:
        return
    panels = _panels(sheet, len(groups), across=2)
    for axes, ((machine, device, model, data), rows) in zip(panels, groups.items(), strict=False):
        for row in rows:
            number = methods.index(row["method"])
            compiled = row["runtime"] == "compile"
            axes.scatter(
                [1e3 * float(row["latency"] or 0)],
                [float(row["accuracy"] or 0)],
                marker=MARKERS[number % len(MARKERS)],
                facecolors="none" if compiled else f"C{number}",
                edgecolors=f"C{number}",
                label=f"{row['method']}{', compiled' if compiled else ''}",
            )
        front = sorted((1e3 * float(row["latency"] or 0), float(row["accuracy"] or 0)) for row in rows if row["front"])
        axes.plot(*zip(*front, strict=True), color="0.5", linewidth=1, marker="", drawstyle="steps-post")
        _latencies(axes, [1e3 * float(row["latency"] or 0) for row in rows])
        axes.set_ylim(*_around([float(row["accuracy"] or 0) for row in rows]))
        axes.set(xlabel="latency of one image in ms", ylabel="accuracy")
        axes.set_title(f"{machine} {device}: {model} on {data}", fontsize=8)
    legend_below(sheet, columns=4, restyle=False)


def _latencies(axes: Any, latencies: Sequence[float]) -> None:
    """A logarithmic axis over whole decades, with numbers written out."""
    axes.set_xscale("log")
    axes.set_xlim(10 ** math.floor(math.log10(min(latencies))), 10 ** math.ceil(math.log10(max(latencies))))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")


def _around(accuracies: Sequence[float]) -> tuple[float, float]:
    """What the axis shows: at least ten per cent, for an image more or less is chance; nothing beyond 1."""
    high = min(1.0, max(accuracies) + 0.02)
    return min(min(accuracies) - 0.02, high - 0.1), high + 0.002


def draw_products(sheet: Any, table: Table) -> None:
    """Rate over size, a line a precision; dotted: the published peak, one line for those that share it."""
    groups = table.groups("machine", "device")
    dtypes = list(dict.fromkeys(table.columns["dtype"]))
    panels = _panels(sheet, len(groups), across=2)
    for axes, ((machine, device), rows) in zip(panels, groups.items(), strict=False):
        peaks: dict[float, list[str]] = {}
        for (dtype,), of_one in Table.of(rows).groups("dtype").items():
            points = sorted((int(row["size"] or 0), float(row["rate"] or 0) / 1e12) for row in of_one)
            number = dtypes.index(dtype)
            look = {"color": f"C{number}", "marker": MARKERS[number % len(MARKERS)]}
            axes.semilogx(*zip(*points, strict=True), label=str(dtype), base=2, **look)
            if share := of_one[-1]["share"]:
                peak = float(f"{points[-1][1] / float(share):.3g}")
                peaks.setdefault(peak, []).append(str(dtype))
        for peak, shared in peaks.items():
            axes.axhline(peak, color="0.5", linestyle=":", marker="")
            where = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
            told = f"{', '.join(shared)}: {peak:g}"
            axes.annotate(told, (1, peak), (-2, 3), ha="right", fontsize=8, **where)
        sizes = sorted({int(row["size"] or 0) for row in rows})
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.set(xlabel="size n of n × n", ylabel="TOP/s")
        axes.set_title(f"{machine} {device}", fontsize=9)
    legend_below(sheet, columns=4, restyle=False)


def _panels(sheet: Any, count: int, across: int) -> list[Any]:
    columns = min(across, count)
    rows = -(-count // columns)
    sheet.set_size_inches(max(6.4, 4.2 * columns + 0.6), max(3.6, 2.9 * rows + 0.4))
    panels: list[Any] = sheet.subplots(rows, columns, squeeze=False).ravel().tolist()
    for spare in panels[count:]:
        spare.set_visible(False)
    return panels[:count]
