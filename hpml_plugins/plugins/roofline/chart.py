"""The roofline chart, drawn from the table `tables.everything`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hpml_plugins import Table
from hpml_plugins.plugins.roofline import formulas
from hpml_plugins.plugins.roofline.tables import MEASURED, PRECISIONS, PUBLISHED
from hpml_plugins.plugins.roofline.work import ESTIMATE


def draw(sheet: Any, table: Table) -> None:
    """A panel a machine: its roofs, its points, and the published points in each."""
    panels = [name for (name,), rows in table.groups("machine").items() if not _is_published(rows[0])]
    sheet.set_size_inches(7.6, 6.4 * len(panels))
    published = [row for row in table.rows() if _is_published(row)]
    for axes, machine in zip(sheet.subplots(len(panels), squeeze=False)[:, 0], panels, strict=True):
        own = [row for row in table.rows() if row["machine"] == machine]
        draw_panel(axes, own, published)
        gpu = own[0]["GPU"]
        axes.set(
            xlabel="arithmetic intensity in FLOP/B (bytes of DRAM)",
            ylabel="FLOP/s (1 multiply-add = 2 FLOP)",
            title=f"{machine}: {gpu}" if gpu != "none" else f"{machine}: CPU",
            xscale="log",
            yscale="log",
        )
        if axes.get_legend_handles_labels()[0]:
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncol=2, fontsize=7.5)


def draw_panel(axes: Any, own: Sequence[dict[str, Any]], published: Sequence[dict[str, Any]]) -> None:
    """Roofs as lines (published solid, measured dashed, a colour a precision), points by what they are."""
    plotted = [row for row in (*own, *published) if row["what"] != "roof" and _plottable(row)]
    ridges = [row["intensity"] for row in own if row["what"] == "roof"]
    spread = [row["intensity"] for row in plotted] + ridges
    if not spread:
        return
    low, high = min(spread) / 3, max(spread) * 3
    for row in (row for row in own if row["what"] == "roof"):
        colour = f"C{PRECISIONS.index(str(row['precision']))}"
        ridge = row["intensity"]
        x = sorted({low, min(max(ridge, low), high), high})
        y = [formulas.attainable(value, row["rate"], row["bandwidth"]) for value in x]
        dashed = row["source"] == MEASURED
        style = {"linestyle": "--" if dashed else "-", "linewidth": 1.4, "marker": ""}
        axes.plot(x, y, color=colour, label=f"roof, {row['precision']}, {row['source']}", **style)
    seen: set[str] = set()
    for row in plotted:
        label, style = _published_style(row) if _is_published(row) else _own_style(row)
        axes.plot([row["intensity"]], [row["rate"]], linestyle="", label="" if label in seen else label, **style)
        seen.add(label)
        if not _is_model(row):
            near = (row["intensity"], row["rate"])
            side = {"xytext": (-5, -9), "ha": "right"} if row["intensity"] > 100 else {"xytext": (4, -8)}
            axes.annotate(row["what"], near, textcoords="offset points", fontsize=6.5, **side)


def _published_style(row: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    shape = "s" if row["what"] == "resnet18" else "D"
    grey = {"V100": "C7", "A100": "C5"}.get(str(row["GPU"])[:4], "C7")
    return f"{row['what']}, {row['GPU']}: {PUBLISHED}", {"marker": shape, "color": grey, "markerfacecolor": "none"}


def _own_style(row: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    colour = f"C{PRECISIONS.index(str(row['precision']))}"
    estimated = ESTIMATE in str(row["source"])
    style = {"color": colour, "markerfacecolor": "none" if estimated else colour}
    suffix = " (estimate)" if estimated else ""
    if _is_model(row):
        return f"{row['what']}{suffix}", {**style, "marker": _marker(row), "markersize": 7}
    return f"single operation{suffix}", {**style, "marker": ".", "markersize": 8}


def _is_model(row: dict[str, Any]) -> bool:
    return _is_published(row) or " " in str(row["what"])


def _marker(row: dict[str, Any]) -> str:
    model, step = str(row["what"]).partition(",")[0].split()
    return {
        ("resnet18", "forward"): "o",
        ("resnet18", "train"): "^",
        ("resnet50", "forward"): "P",
        ("resnet50", "train"): "X",
    }.get((model, step), "*")


def _plottable(row: dict[str, Any]) -> bool:
    known = [row.get("intensity"), row.get("rate")]
    return row["precision"] in PRECISIONS and all(value and math.isfinite(value) for value in known)


def _is_published(row: dict[str, Any]) -> bool:
    return bool(row["source"] == PUBLISHED)
