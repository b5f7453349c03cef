"""The roofline chart and its tables, drawn from the Records of all four benchmarks. Imports matplotlib nowhere."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from hpml_plugins import Figure, GpuType, Record, Table, find_gpu, gpu_types, published_figures
from hpml_plugins.plugins.roofline import formulas

BENCHMARKS = ("roofline_model", "roofline_kernel", "roof_copy", "roof_matmul")
PRECISIONS = ("float32", "tf32", "bfloat16", "float16")
MEASURED, PUBLISHED = "measured", "published, not measured"
COUNTED, ESTIMATED = "ncu", "estimate"
UNITS = {
    "FLOP": "FLOP",
    "bytes": "B",
    "time": "s",
    "rate": "FLOP/s",
    "bandwidth": "B/s",
    "intensity": "FLOP/B",
    "attainable": "FLOP/s",
    "share of roof": "1",
    "share of measured roof": "1",
    "peak": "FLOP/s",
    "measured peak": "FLOP/s",
    "measured bandwidth": "B/s",
    "ridge": "FLOP/B",
    "measured ridge": "FLOP/B",
    "share of peak": "1",
    "share of bandwidth": "1",
    "FLOP by formula": "FLOP",
    "FLOP excess": "FLOP",
    "bytes ratio": "1",
    "outside tensor cores": "FLOP",
}


def card(record: Record) -> tuple[str, GpuType | None]:
    """(name, published peaks) of the GPU that a Record was measured on: ("none", None) for a CPU."""
    gpus = record.node.get("gpus") or []
    name = str(gpus[0]["name"]) if gpus else ""
    return name or "none", find_gpu(name) if name else None


def roofs(records: Sequence[Record]) -> Table:
    """A row a machine and precision: peak, bandwidth and ridge point, published and measured."""
    rows: list[dict[str, Any]] = []
    for machine, own in _by_machine(records).items():
        name, published = card(own[0])
        bandwidth = _best(own, "roof_copy")
        for dtype in PRECISIONS:
            peak = published.peak(dtype) if published else None
            measured = _best(own, "roof_matmul", dtype)
            if not (peak or measured):
                continue
            wide = published.bandwidth if published else None
            rows.append(
                {
                    "machine": machine,
                    "GPU": name,
                    "precision": dtype,
                    "peak": peak,
                    "measured peak": measured,
                    "share of peak": measured / peak if measured and peak else None,
                    "bandwidth": wide,
                    "measured bandwidth": bandwidth,
                    "share of bandwidth": bandwidth / wide if bandwidth and wide else None,
                    "ridge": formulas.ridge_point(peak, wide) if peak and wide else None,
                    "measured ridge": formulas.ridge_point(measured, bandwidth) if measured and bandwidth else None,
                }
            )
    return Table.of(rows, UNITS)


def points(records: Sequence[Record]) -> Table:
    """A row a model's step or kernel of ours, then the published points: what the chart shows, and where each stands."""
    rows = []
    for machine, own in _by_machine(records).items():
        name, published = card(own[0])
        for record in own:
            if record.benchmark not in ("roofline_model", "roofline_kernel"):
                continue
            label, dtype = _label(record)
            row = {"machine": machine, "GPU": name, "what": label, "precision": dtype or None}
            row |= {
                column: _median(record, metric)
                for column, metric in (
                    ("FLOP", "flop"),
                    ("bytes", "bytes"),
                    ("time", "time"),
                    ("bandwidth", "bandwidth"),
                    ("rate", "rate"),
                    ("intensity", "intensity"),
                )
            }
            peak = published.peak(dtype) if published and dtype else None
            row |= _against(row, peak, published.bandwidth if published else None)
            measured = _against(row, _best(own, "roof_matmul", dtype), _best(own, "roof_copy"))
            row["share of measured roof"] = measured["share of roof"]
            row["source"] = f"{MEASURED}; {_source(record)}"
            rows.append(row)
    # Without a point of ours there is nothing to compare the published ones with.
    return Table.of([*rows, *published_points()] if rows else [], UNITS)


def published_points() -> list[dict[str, Any]]:
    """The points that others published, as rows of `points`, each against the published roof of its own card."""
    subjects: dict[tuple[str, str], dict[str, Any]] = {}
    for figure in published_figures("roofline"):
        key = (str(figure.subject.get("model", figure.what)), str(figure.subject.get("gpu", "")))
        subjects.setdefault(key, {"document": figure.document})[figure.quantity] = figure.value
    cards = {gpu.name: gpu for gpu in gpu_types()}
    rows = []
    for (model, gpu), values in subjects.items():
        row: dict[str, Any] = {
            "machine": f"document {values['document']}",
            "GPU": gpu,
            "what": model,
            "precision": "float32",
            "FLOP": values.get("flop"),
            "bytes": values.get("bytes"),
            "time": values.get("time"),
            "bandwidth": values.get("throughput"),
            "rate": values.get("rate"),
            "intensity": values.get("intensity"),
        }
        known = cards.get(gpu)
        row |= _against(row, known.float32 if known else None, known.bandwidth if known else None)
        row |= {"share of measured roof": None, "source": PUBLISHED}
        rows.append(row)
    return rows


def everything(records: Sequence[Record]) -> Table:
    """What the chart is drawn from: the points, and a row a roof."""
    rows: list[dict[str, Any]] = list(points(records).rows())
    for roof in roofs(records).rows():
        common = {"machine": roof["machine"], "GPU": roof["GPU"], "precision": roof["precision"]}
        if roof["peak"] and roof["bandwidth"]:
            lines = {"rate": roof["peak"], "bandwidth": roof["bandwidth"], "intensity": roof["ridge"]}
            rows.append({**common, "what": "roof", **lines, "source": "published"})
        if roof["measured peak"] and roof["measured bandwidth"]:
            lines = {"rate": roof["measured peak"], "bandwidth": roof["measured bandwidth"]}
            rows.append({**common, "what": "roof", **lines, "intensity": roof["measured ridge"], "source": MEASURED})
    return Table.of(rows, UNITS)


def kernels(records: Sequence[Record]) -> Table:
    """A row a single operation: ncu's counts against the formulas; the count of FFMA alone as well."""
    rows = []
    for record in records:
        flop, excess = _median(record, "flop"), _median(record, "flop_excess")
        operations = record.series.get("operations")
        ffma = operations.columns.get("ffma") if operations else None
        rows.append(
            {
                "machine": record.machine,
                "kernel": record.params.get("kernel"),
                "FLOP": flop,
                "FLOP by formula": flop - excess if flop is not None and excess is not None else None,
                "FLOP excess": excess,
                "FFMA": ffma[0] if ffma else None,
                "bytes": _median(record, "bytes"),
                "bytes ratio": _median(record, "bytes_ratio"),
                "time": _median(record, "time"),
                "rate": _median(record, "rate"),
                "bandwidth": _median(record, "bandwidth"),
                "source": _source(record),
            }
        )
    return Table.of(rows, {**UNITS, "FFMA": "1"})


def tensor_cores(records: Sequence[Record]) -> Table:
    """A row a model's step that was counted: its FLOP, and how many of them the counters of FADD, FMUL and FFMA see."""
    rows = []
    for record in records:
        series = record.series.get("flop_by_path")
        if not series:
            continue
        flop, outside = series.columns["flop"][0], series.columns["flop_outside_tensor_cores"][0]
        label, dtype = _label(record)
        rows.append(
            {
                "machine": record.machine,
                "what": label,
                "precision": dtype,
                "FLOP": flop,
                "outside tensor cores": outside,
                "share seen by FADD, FMUL, FFMA": outside / flop if flop else None,
                "kernels": len(record.series["kernels"].columns["flop"]),
            }
        )
    return Table.of(rows, {**UNITS, "share seen by FADD, FMUL, FFMA": "1", "kernels": "1"})


def draw(sheet: Any, table: Table) -> None:
    """A panel a machine: its roofs, its points, and the published points in each."""
    panels = [name for (name,), rows in table.groups("machine").items() if not _is_published(rows[0])]
    sheet.set_size_inches(7.6, 5.2 * len(panels))
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
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=7.5)


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
    for row in plotted:
        if _is_published(row):
            kind = {"marker": "s" if "V100" in str(row["GPU"]) else "D", "color": "C7", "markerfacecolor": "none"}
            label = f"{row['what']}, {row['GPU']}: {PUBLISHED}"
        else:
            dtype = str(row["precision"])
            model = " " in str(row["what"])
            kind = {"marker": _marker(row), "color": f"C{PRECISIONS.index(dtype)}", "markersize": 7 if model else 5}
            estimated = ESTIMATED in str(row["source"])
            kind["markerfacecolor"] = "none" if estimated else f"C{PRECISIONS.index(dtype)}"
            label = f"{row['what']}, {dtype}" + (" (estimate)" if estimated else "")
        axes.plot([row["intensity"]], [row["rate"]], linestyle="", label=label, **kind)


def _marker(row: dict[str, Any]) -> str:
    what = str(row["what"])
    if " " not in what:
        return "."
    return {
        ("resnet18", "forward"): "o",
        ("resnet18", "train"): "^",
        ("resnet50", "forward"): "P",
        ("resnet50", "train"): "X",
    }.get((what.split()[0], what.split()[1].rstrip(",")), "*")


def _plottable(row: dict[str, Any]) -> bool:
    known = [row.get("intensity"), row.get("rate")]
    return row["precision"] in PRECISIONS and all(value and math.isfinite(value) for value in known)


def _is_published(row: dict[str, Any]) -> bool:
    return row["source"] == PUBLISHED


def _against(row: dict[str, Any], peak: float | None, bandwidth: float | None) -> dict[str, float | None]:
    intensity, rate = row["intensity"], row["rate"]
    if not (peak and bandwidth and intensity and rate):
        return {"attainable": None, "share of roof": None}
    return {
        "attainable": formulas.attainable(intensity, peak, bandwidth),
        "share of roof": formulas.share_of_roof(rate, intensity, peak, bandwidth),
    }


def _label(record: Record) -> tuple[str, str]:
    """(what, precision whose roof is over it) of a Record; no precision for kernels that only check counters."""
    params = record.params
    if record.benchmark == "roofline_model":
        return f"{params['model']} {params['step']}, batch {params['batch']}", str(params["dtype"])
    name = str(params["kernel"])
    kind, _, rest = name.partition("_")
    return name, "" if kind == "fma" else rest.rpartition("_")[0] if kind == "matmul" else "float32"


def _source(record: Record) -> str:
    """ "ncu", "estimate", or which is which where FLOP and bytes differ."""
    flop, nbytes = (_info(record, metric) for metric in ("flop", "bytes"))
    return flop if flop == nbytes else f"FLOP {flop}, bytes {nbytes}"


def _info(record: Record, metric: str) -> str:
    found = record.metrics.get(metric)
    return str(found.info.get("source", ESTIMATED)) if found else ESTIMATED


def _median(record: Record, metric: str) -> float | None:
    found = record.metrics.get(metric)
    return statistics.median(found.samples) if found else None


def _best(records: Iterable[Record], benchmark: str, dtype: str | None = None) -> float | None:
    values = [
        record.metrics["best"].samples[0]
        for record in records
        if record.benchmark == benchmark and "best" in record.metrics and dtype in (None, record.params.get("dtype"))
    ]
    return max(values, default=None)


def _by_machine(records: Iterable[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(record.machine, []).append(record)
    return found


FIGURES = (
    Figure(
        "roofline",
        "Roofline: attainable and achieved FLOP/s over arithmetic intensity",
        BENCHMARKS,
        everything,
        draw,
        "A panel a machine. Lines: min(peak, intensity × bandwidth), solid as published for the card, dashed as measured on this node "
        "(copy and matrix products). A point left of its ridge is bound by memory, right of it by arithmetic; how far below its "
        "line it lies is what it leaves unused. Filled points were counted by ncu, hollow coloured ones estimated; hollow grey ones are "
        "published by others and not measured here. Operations without any FLOP (relu) are in the tables only.",
    ),
    Figure(
        "roofs",
        "The roofs: published and measured",
        BENCHMARKS,
        roofs,
        None,
        "Ridge: the least intensity at which the peak can be reached. Measured: the highest sample. The published float32 peak is "
        "that of plain float32 (no tensor cores).",
    ),
    Figure(
        "points",
        "The points, and their share of the roof",
        BENCHMARKS,
        points,
        None,
        "attainable = min(peak, intensity × bandwidth), as published; share of roof = rate / attainable. Points that others published "
        "stand against the published float32 roof of their own card.",
    ),
    Figure(
        "kernels",
        "Single operations: counters against formulas",
        ("roofline_kernel",),
        kernels,
        None,
        "FLOP excess: counted less the formula's. Bytes ratio: counted over the formula's; below 1 where results stayed in the L2.",
    ),
    Figure(
        "tensor_cores",
        "What FADD, FMUL and FFMA do not see",
        ("roofline_model",),
        tensor_cores,
        None,
        "Of each model's counted FLOP, how many the counters of ordinary instructions tell: tensor cores' are not among them.",
    ),
)
