"""The tables: where each model, kernel and published point stands under the roofs. From Records alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hpml_plugins import GpuType, Record, Table, find_gpu, published_figures
from hpml_plugins.plugins.roofline import formulas, names
from hpml_plugins.plugins.roofline.work import ESTIMATE

Cell = str | int | float | bool | None
Row = dict[str, Cell]

PRECISIONS = ("float32", "tf32", "bfloat16", "float16")
MEASURED, PUBLISHED = "measured", "published, not measured"
SEEN = "share seen by FADD, FMUL, FFMA"
UNITS = {
    **dict.fromkeys(("FLOP", "FLOP by formula", "FLOP excess", "outside tensor cores"), "FLOP"),
    **dict.fromkeys(("rate", "attainable", "peak", "measured peak"), "FLOP/s"),
    **dict.fromkeys(("bandwidth", "measured bandwidth"), "B/s"),
    **dict.fromkeys(("intensity", "ridge", "measured ridge"), "FLOP/B"),
    **dict.fromkeys(("share of roof", "share of measured roof", "share of peak", "share of bandwidth"), "1"),
    **dict.fromkeys(("bytes ratio", "FFMA", "kernels", SEEN), "1"),
    "bytes": "B",
    "time": "s",
}
#: Columns and the metrics whose medians they show.
MEDIANS = {
    "FLOP": "flop",
    "bytes": "bytes",
    "time": "time",
    "bandwidth": "bandwidth",
    "rate": "rate",
    "intensity": "intensity",
}


def card(record: Record) -> tuple[str, GpuType | None]:
    """(name, published peaks) of the GPU that a Record was measured on: ("none", None) for a CPU."""
    name = str(record.gpus[0]["name"]) if record.gpus else ""
    return name or "none", find_gpu(name) if name else None


def roofs(records: Sequence[Record]) -> Table:
    """One row per machine and precision: peak, bandwidth and ridge point, published and measured."""
    rows: list[Row] = []
    for machine, own in _by_machine(records).items():
        name, published = card(own[0])
        wide, bandwidth = published.bandwidth if published else None, _best(own, "roof_copy")
        for dtype in PRECISIONS:
            peak = published.peak(dtype) if published else None
            measured = _best(own, "roof_matmul", dtype)
            if not (peak or measured):
                continue
            row: Row = {"machine": machine, "GPU": name, "precision": dtype, "peak": peak, "measured peak": measured}
            row |= {"share of peak": _ratio(measured, peak), "bandwidth": wide, "measured bandwidth": bandwidth}
            row |= {"share of bandwidth": _ratio(bandwidth, wide)}
            row |= {"ridge": formulas.ridge_point(peak, wide) if peak and wide else None}
            row |= {"measured ridge": formulas.ridge_point(measured, bandwidth) if measured and bandwidth else None}
            rows.append(row)
    return Table.of(rows, UNITS)


def points(records: Sequence[Record]) -> Table:
    """One row per model step or kernel of ours, then the published points: what the chart shows, and its position."""
    rows: list[Row] = []
    for machine, own in _by_machine(records).items():
        name, published = card(own[0])
        for record in own:
            if record.benchmark not in ("roofline_model", "roofline_kernel"):
                continue
            label, dtype = _label(record)
            values = {column: record.median(metric) for column, metric in MEDIANS.items()}
            peak = published.peak(dtype) if published and dtype else None
            measured = _against(values, _best(own, "roof_matmul", dtype), _best(own, "roof_copy"))
            row: Row = {"machine": machine, "GPU": name, "what": label, "precision": dtype or None, **values}
            row |= _against(values, peak, published.bandwidth if published else None)
            row |= {"share of measured roof": measured["share of roof"], "source": f"{MEASURED}; {_source(record)}"}
            rows.append(row)
    # Without a point of ours there is nothing to compare the published ones with.
    return Table.of([*rows, *published_points()] if rows else [], UNITS)


def published_points() -> list[Row]:
    """The points that others published, as rows of `points`, each against its card's published float32 roof."""
    quantities = {"throughput": "bandwidth", "flop": "FLOP"}
    subjects: dict[tuple[str, str, str], dict[str, float | None]] = {}
    for figure in published_figures("roofline"):
        key = (str(figure.subject.get("model", figure.what)), str(figure.subject.get("gpu", "")), figure.document)
        values = subjects.setdefault(key, dict.fromkeys(MEDIANS))
        values[quantities.get(figure.quantity, figure.quantity)] = figure.value
    rows: list[Row] = []
    for (model, gpu, document), values in subjects.items():
        row: Row = {"machine": f"document {document}", "GPU": gpu, "what": model, "precision": "float32", **values}
        row |= _against(values, *_published_roof(gpu))
        rows.append({**row, "share of measured roof": None, "source": PUBLISHED})
    return rows


def _published_roof(gpu: str) -> tuple[float | None, float | None]:
    found = {figure.quantity: figure.value for figure in published_figures("roof", gpu=gpu)}
    return found.get("peak"), found.get("bandwidth")


def everything(records: Sequence[Record]) -> Table:
    """What the chart is drawn from: the points that have a place on it, and one row per roof.

    Of a roof, rate is its peak and intensity its ridge; roof: where they come from.  kind: of the marker.  name: the text beside a single operation,
    whose precision the colour tells.
    """
    rows: list[Row] = []
    for row in points(records).rows():
        if row["precision"] not in PRECISIONS or not row["intensity"] or not row["rate"]:
            continue
        what = str(row["what"])
        if row["source"] == PUBLISHED:
            rows.append(row | {"kind": f"{what}, published", "name": None})
        elif " " in what:
            rows.append(row | {"kind": what.partition(",")[0], "name": None})
        else:
            rows.append(row | {"kind": "single operation", "name": what.replace(f"_{row['precision']}_", " ")})
    for roof in roofs(records).rows():
        for prefix, source in (("", "published"), ("measured ", MEASURED)):
            if roof[f"{prefix}ridge"]:
                row = {name: roof[name] for name in ("machine", "GPU", "precision")}
                row |= {"what": "roof", "rate": roof[f"{prefix}peak"], "bandwidth": roof[f"{prefix}bandwidth"]}
                rows.append({**row, "intensity": roof[f"{prefix}ridge"], "roof": source, "source": source})
    for machine, gpu in dict.fromkeys((row["machine"], row["GPU"]) for row in rows if row["source"] == PUBLISHED):
        peak, bandwidth = _published_roof(str(gpu))
        if peak and bandwidth:
            row = {"machine": machine, "GPU": gpu, "precision": "float32", "what": "roof", "rate": peak}
            ridge = formulas.ridge_point(peak, bandwidth)
            rows.append({**row, "bandwidth": bandwidth, "intensity": ridge, "roof": "published", "source": "published"})
    return Table.of([row | {"GPU": "CPU" if row["GPU"] == "none" else row["GPU"]} for row in rows], UNITS)


def kernels(records: Sequence[Record]) -> Table:
    """One row per single operation: ncu's counts and the formulas; the count of FFMA as well."""
    rows: list[Row] = []
    for record in records:
        flop, excess = record.median("flop"), record.median("flop_excess")
        operations = record.series.get("operations")
        row: Row = {"machine": record.machine, "kernel": record.params.get("kernel"), "FLOP": flop}
        row |= {"FLOP by formula": flop - excess if flop is not None and excess is not None else None}
        row |= {"FLOP excess": excess, "FFMA": operations.numbers("ffma")[0] if operations else None}
        row |= {"bytes": record.median("bytes"), "bytes ratio": record.median("bytes_ratio")}
        row |= {name: record.median(name) for name in ("time", "rate", "bandwidth")}
        rows.append({**row, "source": _source(record)})
    return Table.of(rows, UNITS)


def tensor_cores(records: Sequence[Record]) -> Table:
    """One row per counted step of a model: its FLOP, and the share that counters of FADD, FMUL and FFMA report."""
    rows: list[Row] = []
    for record in records:
        if series := record.series.get("flop_by_path"):
            flop, outside = (series.numbers(name)[0] for name in ("flop", "flop_outside_tensor_cores"))
            label, dtype = _label(record)
            row: Row = {"machine": record.machine, "what": label, "precision": dtype, "FLOP": flop}
            row |= {"outside tensor cores": outside, SEEN: _ratio(outside, flop)}
            rows.append({**row, "kernels": len(record.series["kernels"].columns["flop"])})
    return Table.of(rows, UNITS)


def _against(
    values: Mapping[str, float | None], peak: float | None, bandwidth: float | None
) -> dict[str, float | None]:
    intensity, rate = values["intensity"], values["rate"]
    if not (peak and bandwidth and intensity and rate):
        return {"attainable": None, "share of roof": None}
    share = formulas.share_of_roof(rate, intensity, peak, bandwidth)
    return {"attainable": formulas.attainable(intensity, peak, bandwidth), "share of roof": share}


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _label(record: Record) -> tuple[str, str]:
    """(what, precision whose roof is over it) of a Record; no precision for kernels that only check counters."""
    params = record.params
    if record.benchmark == "roofline_model":
        return f"{params['model']} {params['step']}, batch {params['batch']}", str(params["dtype"])
    name = str(params["kernel"])
    kind, dtype, _ = names.parse(name)
    return name, "" if kind == "fma" else dtype


def _source(record: Record) -> str:
    """ "ncu", "estimate", or which is which where FLOP and bytes differ."""
    flop, nbytes = (
        str(found.info.get("source", ESTIMATE)) if (found := record.metrics.get(metric)) else ESTIMATE
        for metric in ("flop", "bytes")
    )
    return flop if flop == nbytes else f"FLOP {flop}, bytes {nbytes}"


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
