"""The chart and its tables: each model, kernel and published point under the roofs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hpml_plugins import (
    Axis,
    Figure,
    GpuType,
    Record,
    Table,
    dot_chart,
    find_gpu,
    published_figures,
    roofline_chart,
)
from hpml_plugins.plugins.roofline import formulas
from hpml_plugins.plugins.roofline.counting import ESTIMATE

Row = dict[str, Any]

PRECISIONS = ("float32", "tf32", "bfloat16", "float16")
MEASURED, PUBLISHED = "measured", "published, not measured"
SEEN = "share outside tensor cores"
SHARE, MEASURED_SHARE = "share of roof", "share of measured roof"
THEORY, ACTUAL = "theoretical FLOP", "actual / theoretical"
#: The cards of the report ("001" in published.yaml) whose points are drawn, by their full names:
#: published peaks only.
EARLIER = ("Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-40GB")
#: Metrics of a point: column → metric, and the columns' units.
METRICS = {
    "FLOP": "flop",
    **{name: name for name in ("bytes", "time", "bandwidth", "rate", "intensity")},
}
UNITS = {
    "FLOP": "FLOP",
    "bytes": "B",
    "time": "s",
    "bandwidth": "B/s",
    "rate": "FLOP/s",
    "intensity": "FLOP/B",
}


def roofs(records: Sequence[Record]) -> Table:
    """Ridge: the lowest intensity at which the peak can be reached. Measured: the highest sample.
    Shares: of the published peak and bandwidth. The published float32 peak is that of plain float32
    (no tensor cores).
    """
    best: dict[tuple[str, str], float] = {}
    for record in records:
        if found := record.metrics.get("best"):
            key = record.machine, str(record.params.get("dtype", "copy"))
            best[key] = max(*found.samples, best.get(key, 0.0))
    rows: list[Row] = []
    for machine, (name, published) in {record.machine: card(record) for record in records}.items():
        copied = best.get((machine, "copy"))
        for dtype in PRECISIONS:
            where = {"machine": machine, "GPU": name, "precision": dtype}
            peak = published.peak(dtype) if published else None
            if published and peak:
                rows.append(
                    {**where, "roof": "published", "peak": peak, "bandwidth": published.bandwidth}
                )
            if measured := best.get((machine, dtype)):
                shares = {"share of peak": measured / peak if peak else None}
                shares |= {
                    "share of bandwidth": (
                        copied / published.bandwidth if published and copied else None
                    )
                }
                rows.append(
                    {**where, "roof": MEASURED, "peak": measured, "bandwidth": copied, **shares}
                )
    for row in rows:
        row["ridge"] = (
            formulas.ridge_point(row["peak"], row["bandwidth"]) if row["bandwidth"] else None
        )
    units = {"peak": "FLOP/s", "bandwidth": "B/s", "ridge": "FLOP/B"}
    return Table.of(rows, {**units, "share of peak": "1", "share of bandwidth": "1"})


def points(records: Sequence[Record]) -> Table:
    """attainable = min(peak, intensity × bandwidth), as published; share of roof = rate /
    attainable. Points published by others are relative to the published float32 roof of their own
    card. Theoretical FLOP: of a model's convolutions and linear layers, as torch's counter counts
    them, of an operation by its formula; of published points the report's.
    """
    known = {(row["machine"], row["precision"], row["roof"]): row for row in roofs(records).rows()}
    rows: list[Row] = []
    for record in records:
        if record.benchmark in ("roofline_model", "roofline_kernel"):
            what, dtype = _label(record)
            row: Row = {
                "machine": record.machine,
                "GPU": card(record)[0],
                "what": what,
                "precision": dtype or None,
            }
            row |= {column: record.value(metric) for column, metric in METRICS.items()}
            row |= _against_theory(row["FLOP"], _theory(record))
            measured = _against(row, known.get((record.machine, dtype, MEASURED)))
            row |= _against(row, known.get((record.machine, dtype, "published")))
            rows.append(
                {**row, MEASURED_SHARE: measured[SHARE], "source": f"{MEASURED}; {_source(record)}"}
            )
    if rows:  # otherwise there is nothing to compare the published ones with
        rows += [row for row, _ in published_points()]
    units = {"attainable": "FLOP/s", SHARE: "1", MEASURED_SHARE: "1", THEORY: "FLOP", ACTUAL: "1"}
    return Table.of(rows, {**UNITS, **units})


def cards(records: Sequence[Record]) -> Table:
    """Published peaks and bandwidth of the report's cards and of those measured here, with their
    best samples."""
    rows: list[Row] = []
    for row in roofs(records).rows():
        if row["GPU"] != "CPU":
            rows.append(
                {name: row[name] for name in ("GPU", "precision", "roof", "peak", "bandwidth")}
            )
    for gpu in map(find_gpu, EARLIER if rows else ()):
        peaks = {dtype: gpu.peak(dtype) if gpu else None for dtype in PRECISIONS}
        more = {"roof": "published", "bandwidth": gpu.bandwidth if gpu else None}
        rows += [
            {"GPU": gpu.name, "precision": dtype, "peak": peak, **more}
            for dtype, peak in peaks.items()
            if gpu and peak
        ]
    return Table.of(rows, {"peak": "FLOP/s", "bandwidth": "B/s"}).sorted(
        "precision", "roof", "peak"
    )


def flop(records: Sequence[Record]) -> Table:
    """Actual: counted by ncu, or published. Below 1: algorithms that need fewer multiplications
    (Winograd), or FLOP on tensor cores that the counters read did not see (A100). Above 1: tiles
    and channels that are padded; in the report a whole program instead of one forward pass.
    """
    columns = ("machine", "GPU", "what", "precision", THEORY, "FLOP", ACTUAL, "source")
    found = points(records).filtered(
        lambda row: row[THEORY] and row["precision"] and "estimate" not in row["source"]
    )
    return found.select(*columns)


def published_points() -> list[tuple[Row, Row]]:
    """The points published by others, as rows of `points`, each with its card's published float32
    roof."""
    columns = {"throughput": "bandwidth", "flop": "FLOP"}
    subjects: dict[tuple[str, str, str], Row] = {}
    for figure in published_figures("roofline"):
        key = (
            str(figure.subject.get("model", figure.what)),
            str(figure.subject.get("gpu", "")),
            figure.document,
        )
        values = subjects.setdefault(key, dict.fromkeys(METRICS))
        values[columns.get(figure.quantity, figure.quantity)] = figure.value
    found: list[tuple[Row, Row]] = []
    for (model, gpu, _), values in subjects.items():
        roof = {figure.quantity: figure.value for figure in published_figures("roof", gpu=gpu)}
        where = {"machine": "published", "GPU": gpu, "precision": "float32"}
        told = published_figures("flop_complexity", "theoretical", model=model, gpu=gpu)
        theory = _against_theory(values["FLOP"], told[0].value if told else None)
        row = {**where, "what": model, **values, **theory, **_against(values, roof)}
        found.append(
            (
                row | {MEASURED_SHARE: None, "source": PUBLISHED},
                {**where, "roof": "published", **roof},
            )
        )
    return found


def everything(records: Sequence[Record]) -> Table:
    """One panel per machine. Lines: min(peak, intensity × bandwidth), solid as measured on this
    node (copy and matrix products), dashed as published for the card. Left of its ridge a point is
    limited by memory bandwidth, right of it by arithmetic; its distance below the line is unused
    capacity. Filled points were counted by ncu, outlined ones estimated or published by others.
    Operations without FLOP (relu) are in the tables only.
    """

    def marked(row: Row) -> Row:
        """The kind of marker; the name of a single operation, without its precision, which the
        colour tells."""
        what = row["what"]
        if row["source"] == PUBLISHED:
            return {"kind": f"{what}, published", "name": None}
        if " " in what:
            return {"kind": what.split(",")[0], "name": None}
        return {"kind": "single operation", "name": what.replace(f"_{row['precision']}_", " ")}

    table = points(records).filtered(
        lambda row: row["precision"] in PRECISIONS and row["intensity"] and row["rate"]
    )
    known: list[Row] = list(roofs(records).filtered(lambda row: row["ridge"]).rows())
    if len(table):
        known += {roof["GPU"]: roof for _, roof in published_points() if "peak" in roof}.values()
    rows: list[Row] = list(table.extended(marked).rows())
    # The first kind of roof is drawn solid.
    for roof in sorted(known, key=lambda roof: roof["roof"] != MEASURED):
        row = {name: roof[name] for name in ("machine", "GPU", "precision", "bandwidth", "roof")}
        ridge = formulas.ridge_point(roof["peak"], roof["bandwidth"])
        rows.append(
            {
                **row,
                "what": "roof",
                "rate": roof["peak"],
                "intensity": ridge,
                "source": roof["roof"],
            }
        )
    return Table.of(rows, {**UNITS, **table.units})


def types(records: Sequence[Record]) -> Table:
    """The same on one pair of axes for all types of GPU, one panel per precision: the GPUs on which
    points were measured, without those that others published, and without CPUs.
    """
    table = everything(records)
    measured = {
        (row["machine"], row["GPU"], row["precision"])
        for row in table.rows()
        if row["what"] != "roof" and row["source"] != PUBLISHED and row["GPU"] != "CPU"
    }
    return table.filtered(lambda row: (row["machine"], row["GPU"], row["precision"]) in measured)


def kernels(records: Sequence[Record]) -> Table:
    """FLOP excess: counted minus formula. Bytes ratio: counted divided by formula; below 1 where
    results stayed in the L2 cache.
    """

    def counted(record: Record) -> Row:
        flop, excess = record.value("flop"), record.value("flop_excess")
        operations = record.series.get("operations")
        formula = flop - excess if flop is not None and excess is not None else None
        ffma = operations.numbers("ffma")[0] if operations else None
        return {"FLOP by formula": formula, "FFMA": ffma, "source": _source(record)}

    named = {"FLOP": "flop", "FLOP excess": "flop_excess", "bytes ratio": "bytes_ratio"}
    metrics = ("bytes", "time", "rate", "bandwidth")
    units = {"FLOP by formula": "FLOP", "FFMA": "1"}
    table = Table.of_records(records, *metrics, *named.values(), more=counted, units=units)
    return table.select("machine", "kernel", *units, *metrics, "source", **named)


def tensor_cores(records: Sequence[Record]) -> Table:
    """The share of each model's FLOP that the counters of ordinary instructions report: those of
    tensor cores are not included.
    """

    def seen(record: Record) -> Row:
        what, dtype = _label(record)
        return {
            "what": what,
            "precision": dtype,
            "kernels": len(record.series["kernels"].columns["flop"]),
        }

    table = Table.of_series(records, "flop_by_path", more=seen)
    columns = {"FLOP": "flop", "outside tensor cores": "flop_outside_tensor_cores"}
    named = table.select("machine", "what", "precision", "kernels", **columns)
    return named.extended(
        lambda row: {SEEN: row["outside tensor cores"] / row["FLOP"] if row["FLOP"] else None},
        {SEEN: "1"},
    )


def card(record: Record) -> tuple[str, GpuType | None]:
    """(name, published peaks) of the GPU that a Record was measured on: ("CPU", None) without
    one."""
    name = record.gpu_names[0] if record.gpus else ""
    return name or "CPU", find_gpu(name) if name else None


def _theory(record: Record) -> float | None:
    """The FLOP that a Record's step has by formula; None for a model that has none here."""
    if record.benchmark == "roofline_model":
        model, step, batch = (record.params[name] for name in ("model", "step", "batch"))
        return formulas.resnet_flop(str(model), str(step), int(batch))
    counted, excess = record.value("flop"), record.value("flop_excess")
    return counted - excess if counted is not None and excess is not None else None


def _against_theory(actual: float | None, theory: float | None) -> Row:
    return {THEORY: theory, ACTUAL: actual / theory if actual is not None and theory else None}


def _against(point: Row, roof: Mapping[str, Any] | None) -> Row:
    """The attainable rate at a point's intensity, and the point's share of it; None where
    unknown."""
    peak, bandwidth = (roof.get("peak"), roof.get("bandwidth")) if roof else (None, None)
    intensity, rate = point["intensity"], point["rate"]
    if not (peak and bandwidth and intensity and rate):
        return {"attainable": None, SHARE: None}
    share = formulas.share_of_roof(rate, intensity, peak, bandwidth)
    return {"attainable": formulas.attainable(intensity, peak, bandwidth), SHARE: share}


def _label(record: Record) -> tuple[str, str]:
    """(name, precision of its roof) of a Record; no precision for kernels that only check
    counters."""
    params = record.params
    if record.benchmark == "roofline_model":
        return f"{params['model']} {params['step']}, batch {params['batch']}", str(params["dtype"])
    name = str(params["kernel"])
    kind, dtype, _ = formulas.parse(name)
    return name, "" if kind == "fma" else dtype


def _source(record: Record) -> str:
    """ "ncu", "estimate", or both if they differ between FLOP and bytes."""
    found = (record.metrics.get(name) for name in ("flop", "bytes"))
    flop, nbytes = (
        str(metric.info.get("source", ESTIMATE)) if metric else ESTIMATE for metric in found
    )
    return flop if flop == nbytes else f"FLOP {flop}, bytes {nbytes}"


def _chart(colour: str, panel: Sequence[str]) -> dict[str, Any]:
    """Points below roofs."""
    return roofline_chart(
        Axis("intensity", "arithmetic intensity (bytes of DRAM)", "FLOP/B", log=True),
        Axis("rate", "rate (1 multiply-add = 2 FLOP)", "FLOP/s", log=True),
        colour,
        roof="min(datum.rate, datum.at * datum.bandwidth)",
        dash="{roof} roof",
        shape="kind",
        panel=panel,
        label="name",
        hollow="indexof(datum.source, 'ncu') < 0",
        across=2,
        also=[
            *(Axis(name, name, UNITS[name]) for name in ("FLOP", "bytes", "time")),
            Axis(SHARE, SHARE, "%"),
            "source",
        ],
    )


FLOP_DOTS = dot_chart(
    ("GPU", "{what}"),
    [
        Axis(THEORY, "theoretical", "FLOP", log=True),
        Axis("FLOP", "actual", "FLOP", log=True),
        Axis(ACTUAL, ACTUAL, log=True),
    ],
    "precision",
)
ALL = ("roofline_model", "roofline_kernel", "roof_copy", "roof_matmul")
TENSOR_CORES = dot_chart(
    ("what", "precision"), Axis(SEEN, "share of the FLOP outside tensor cores", log=True), "machine"
)
FIGURES = (
    Figure(
        "roofline",
        "Roofline: attainable and achieved FLOP/s by arithmetic intensity",
        ALL,
        everything,
        _chart("precision", ("machine", "GPU")),
    ),
    Figure(
        "types",
        "Roofline: GPU types on the same axes",
        ALL,
        types,
        _chart("GPU", ("precision",)),
    ),
    Figure("roofs", "The roofs, published and measured", ALL, roofs),
    Figure("points", "The points and their share of the roof", ALL, points),
    Figure(
        "flop", "FLOP: theory and count", ("roofline_model", "roofline_kernel"), flop, FLOP_DOTS
    ),
    Figure("cards", "Four cards: peaks and bandwidth", ("roof_copy", "roof_matmul"), cards),
    Figure("kernels", "Single operations: counters and formulas", ("roofline_kernel",), kernels),
    Figure(
        "tensor_cores",
        "FLOP not visible to FADD, FMUL and FFMA counters",
        ("roofline_model",),
        tensor_cores,
        TENSOR_CORES,
    ),
)
