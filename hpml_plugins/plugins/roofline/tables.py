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
    rows: list[Row] = []
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


#: Column → the metric whose median stands there.
_COLUMNS = {
    "FLOP": "flop",
    "bytes": "bytes",
    "time": "time",
    "bandwidth": "bandwidth",
    "rate": "rate",
    "intensity": "intensity",
}


def points(records: Sequence[Record]) -> Table:
    """A row a model's step or kernel of ours, then the published points: what the chart shows, where each stands."""
    rows: list[Row] = []
    for machine, own in _by_machine(records).items():
        name, published = card(own[0])
        for record in own:
            if record.benchmark not in ("roofline_model", "roofline_kernel"):
                continue
            label, dtype = _label(record)
            values = {column: record.median(metric) for column, metric in _COLUMNS.items()}
            peak = published.peak(dtype) if published and dtype else None
            roof = _against(values, peak, published.bandwidth if published else None)
            measured = _against(values, _best(own, "roof_matmul", dtype), _best(own, "roof_copy"))
            rows.append(
                {
                    "machine": machine,
                    "GPU": name,
                    "what": label,
                    "precision": dtype or None,
                    **values,
                    **roof,
                    "share of measured roof": measured["share of roof"],
                    "source": f"{MEASURED}; {_source(record)}",
                }
            )
    # Without a point of ours there is nothing to compare the published ones with.
    return Table.of([*rows, *published_points()] if rows else [], UNITS)


def published_points() -> list[Row]:
    """The points that others published, as rows of `points`, each against its card's published float32 roof."""
    quantities = {"throughput": "bandwidth", "flop": "FLOP"}
    subjects: dict[tuple[str, str, str], dict[str, float | None]] = {}
    for figure in published_figures("roofline"):
        key = (str(figure.subject.get("model", figure.what)), str(figure.subject.get("gpu", "")), figure.document)
        values = subjects.setdefault(key, dict.fromkeys(_COLUMNS))
        values[quantities.get(figure.quantity, figure.quantity)] = figure.value
    rows: list[Row] = []
    for (model, gpu, document), values in subjects.items():
        known = {figure.quantity: figure.value for figure in published_figures("roof", gpu=gpu)}
        roof = _against(values, known.get("peak"), known.get("bandwidth"))
        rows.append(
            {
                "machine": f"document {document}",
                "GPU": gpu,
                "what": model,
                "precision": "float32",
                **values,
                **roof,
                "share of measured roof": None,
                "source": PUBLISHED,
            }
        )
    return rows


def everything(records: Sequence[Record]) -> Table:
    """What the chart is drawn from: the points, and a row a roof (rate: its peak; intensity: its ridge)."""
    rows: list[Row] = list(points(records).rows())
    for roof in roofs(records).rows():
        common = {"machine": roof["machine"], "GPU": roof["GPU"], "precision": roof["precision"]}
        for prefix, source in (("", "published"), ("measured ", MEASURED)):
            if roof[f"{prefix}ridge"]:
                lines = {
                    "rate": roof[f"{prefix}peak"],
                    "bandwidth": roof[f"{prefix}bandwidth"],
                    "intensity": roof[f"{prefix}ridge"],
                }
                rows.append({**common, "what": "roof", **lines, "source": source})
    return Table.of(rows, UNITS)


def kernels(records: Sequence[Record]) -> Table:
    """A row a single operation: ncu's counts against the formulas; the count of FFMA alone as well."""
    rows: list[Row] = []
    for record in records:
        flop, excess = record.median("flop"), record.median("flop_excess")
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
                "bytes": record.median("bytes"),
                "bytes ratio": record.median("bytes_ratio"),
                "time": record.median("time"),
                "rate": record.median("rate"),
                "bandwidth": record.median("bandwidth"),
                "source": _source(record),
            }
        )
    return Table.of(rows, {**UNITS, "FFMA": "1"})


def tensor_cores(records: Sequence[Record]) -> Table:
    """A row a model's step that was counted: its FLOP, and how many of them the counters of FADD, FMUL and FFMA see."""
    rows: list[Row] = []
    for record in records:
        series = record.series.get("flop_by_path")
        if not series:
            continue
        flop, outside = (series.numbers(name)[0] for name in ("flop", "flop_outside_tensor_cores"))
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


def _against(
    values: Mapping[str, float | None], peak: float | None, bandwidth: float | None
) -> dict[str, float | None]:
    intensity, rate = values["intensity"], values["rate"]
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
    kind, dtype, _ = names.parse(name)
    return name, "" if kind == "fma" else dtype


def _source(record: Record) -> str:
    """ "ncu", "estimate", or which is which where FLOP and bytes differ."""
    flop, nbytes = (_info(record, metric) for metric in ("flop", "bytes"))
    return flop if flop == nbytes else f"FLOP {flop}, bytes {nbytes}"


def _info(record: Record, metric: str) -> str:
    found = record.metrics.get(metric)
    return str(found.info.get("source", ESTIMATE)) if found else ESTIMATE


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
