"""Charts of the tables."""

from __future__ import annotations

from typing import Any

from hpml_plugins import Table
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
    for axes in panels[: len(groups)]:
        axes.set(ylabel="share")
    panels[0].legend(fontsize=7)


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
    panels[0].legend(fontsize=6)


def draw_front(sheet: Any, table: Table) -> None:
    """A panel a machine, device, network and data set: accuracy over latency; the line joins what nothing beats."""
    groups = table.groups("machine", "device", "model", "data")
    panels = _panels(sheet, len(groups), across=2)
    for axes, ((machine, device, model, data), rows) in zip(panels, groups.items(), strict=False):
        for number, row in enumerate(rows):
            axes.scatter(
                [float(row["latency"] or 0)],
                [float(row["accuracy"] or 0)],
                marker=MARKERS[number % len(MARKERS)],
                color=f"C{number % 10}",
                label=f"{row['method']}{', compiled' if row['runtime'] == 'compile' else ''}",
            )
        front = sorted((float(row["latency"] or 0), float(row["accuracy"] or 0)) for row in rows if row["front"])
        axes.plot(*zip(*front, strict=True), color="0.5", linewidth=1, marker="", drawstyle="steps-post")
        axes.set_xscale("log")
        axes.set(xlabel="latency at batch 1, s", ylabel="accuracy")
        axes.set_title(f"{machine} {device}: {model} on {data}", fontsize=8)
        axes.legend(fontsize=6)


def draw_products(sheet: Any, table: Table) -> None:
    """Rate over size, a line a precision; dotted: the published peak."""
    groups = table.groups("machine", "device")
    panels = _panels(sheet, len(groups), across=2)
    for axes, ((machine, device), rows) in zip(panels, groups.items(), strict=False):
        for number, ((dtype,), of_one) in enumerate(Table.of(rows).groups("dtype").items()):
            points = sorted((int(row["size"] or 0), float(row["rate"] or 0)) for row in of_one)
            axes.loglog(*zip(*points, strict=True), label=str(dtype), color=f"C{number}")
            for row in of_one[-1:]:
                if row["share"]:
                    peak = float(row["rate"] or 0) / float(row["share"])
                    axes.axhline(peak, color=f"C{number}", linestyle=":", marker="", linewidth=1)
        axes.set(xlabel="size n of n × n", ylabel="OP/s")
        axes.set_title(f"{machine} {device}", fontsize=9)
        axes.legend(fontsize=7)


def _panels(sheet: Any, count: int, across: int) -> list[Any]:
    columns = min(across, count)
    rows = -(-count // columns)
    sheet.set_size_inches(max(6.4, 4.2 * columns + 0.6), max(3.6, 2.9 * rows + 0.4))
    panels: list[Any] = sheet.subplots(rows, columns, squeeze=False).ravel().tolist()
    for spare in panels[count:]:
        spare.set_visible(False)
    return panels[:count]
