"""The roofline chart, drawn from the table `tables.everything`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hpml_plugins import Table
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
    roofs = [row for row in own if row["what"] == "roof"]
    spread = [row["intensity"] for row in (*plotted, *roofs)]
    if not spread:
        return
    low, high = min(spread) / 3, max(spread) * 6  # right of the last point there is room for its name
    _draw_roofs(axes, roofs, low, high)
    axes.set(xscale="log", xlim=(low, high))
    seen: set[str] = set()
    for row in plotted:
        label, style = _published_style(row) if _is_published(row) else _own_style(row)
        axes.plot([row["intensity"]], [row["rate"]], linestyle="", label="" if label in seen else label, **style)
        seen.add(label)
    named = [row for row in plotted if not _is_model(row)]
    for row in named:
        near = (row["intensity"], row["rate"])
        name = str(row["what"]).replace(f"_{row['precision']}_", " ")  # the colour tells it
        axes.annotate(name, near, textcoords="offset points", fontsize=6.5, **_side(row, named))


def _draw_roofs(axes: Any, roofs: Sequence[dict[str, Any]], low: float, high: float) -> None:
    """The slanted part once for all precisions, the flat ones in their colours; one that lies on another is thinner."""
    slanted: set[object] = set()
    drawn: set[object] = set()
    for row in sorted(roofs, key=lambda row: -float(row["intensity"])):
        look = {"linestyle": "--" if row["source"] == MEASURED else "-", "marker": ""}
        ridge, peak, bandwidth = row["intensity"], row["rate"], row["bandwidth"]
        if bandwidth not in slanted:
            slanted.add(bandwidth)
            ends = [low, ridge]
            label = f"bandwidth, {row['source']}"
            axes.plot(ends, [x * bandwidth for x in ends], color="0.5", linewidth=1.4, label=label, **look)
        wide = 1.1 if (peak, bandwidth) in drawn else 2.2
        drawn.add((peak, bandwidth))
        colour = f"C{PRECISIONS.index(str(row['precision']))}"
        label = f"roof, {row['precision']}, {row['source']}"
        axes.plot([ridge, high], [peak, peak], color=colour, linewidth=wide, label=label, **look)


def _side(row: dict[str, Any], named: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Where the name of a point stands: right of it, or left where the name would run into the next point's."""
    for other in named:
        right, up = (math.log10(other[name] / row[name]) for name in ("intensity", "rate"))
        if 0 < right < 1 and abs(up) < 0.3:
            # left of a ridge the roof falls to the left, right of it the point is close below a line
            return {"xytext": (-4, 2) if row["intensity"] < 100 else (-5, -9), "ha": "right"}
    return {"xytext": (4, -8)}


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
