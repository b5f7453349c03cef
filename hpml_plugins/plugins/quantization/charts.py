"""Accuracy after each step, histograms, deployed networks, and the products underneath."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from hpml_plugins import Axis, Figure, Record, Rule, Table, line_chart

STEPS = ("float", "weights", "activations", "biases", "integer")
#: Widths of a histogram.
SHOWN = ("float", "bits8", "bits4", "bits2")
BY_HAND = ("quantization_steps",)
DEPLOYED = ("quantization_deploy_cuda", "quantization_deploy_cpu")
PRODUCTS = ("quantization_matmul_cuda", "quantization_matmul_cpu")

Row = dict[str, Any]


def steps(records: Sequence[Record]) -> Table:
    """One scale per channel, min–max ranges. ‘integer’: all tensors are integers; ‘loss’: float32 accuracy minus
    integer accuracy.
    """
    return Table.of_records(records, *(f"{step}_accuracy" for step in STEPS), "loss")


def accuracy(records: Sequence[Record]) -> Table:
    """Weights and activations of that many bits, biases of 32 bits. integer: integers only; the others are simulated
    after each step, with one scale per channel. Dashed: float32. Differences of two or three test images are noise.
    """
    table = Table.of_series(records, "accuracy", "data")
    exact = {(row["machine"], row["data"]): row["accuracy"] for row in table.rows() if row["step"] == "float"}

    def drawn(row: Row) -> Row:
        shown = row["step"] == "integer" or (row["granularity"], row["range"]) == ("channel", "minmax")
        line = f"{row['step']}, per {row['granularity']}, {row['range']}" if shown else None
        return {"bits": int(row["bits"]), "line": line, "float32": exact.get((row["machine"], row["data"]))}

    return table.extended(drawn, {"float32": "1"})


def ranges(records: Sequence[Record]) -> Table:
    """Before quantization. outside_sigma3: the share of values outside three standard deviations, which such a range
    would clamp.
    """
    return Table.of_series(records, "ranges", "data")


def histogram(series: str) -> Callable[[Sequence[Record]], Table]:
    """Shares of a tensor's values in equal bins, before and after: of the machine's largest data set alone."""

    def table(records: Sequence[Record]) -> Table:
        largest: dict[str, Record] = {}
        for record in records:
            largest[record.machine] = max(largest.get(record.machine, record), record, key=_images)
        return Table.of_series(largest.values(), series, "data")

    return table


def _images(record: Record) -> float:
    return sum(float(facts.get("train", 0)) for facts in record.data.values())


def deployed(records: Sequence[Record]) -> Table:
    """latency: one image, including launch overhead; outlined: compiled. best_latency: of the whole best batch;
    energy: per image at that batch. snr_db: of the logits relative to float32's. left: layers that stay in floating
    point. against_float32: its latency divided by this one's, both eager. Line (front): no other method is both as
    accurate and faster.
    """
    metrics = ("accuracy", "agreement", "size", "latency", "throughput", "best_batch")
    units = {"best_latency": "s", "energy": "J", "power": "W"}
    table = Table.of_records(records, *metrics, more=_deployed, units=units)
    where = ("machine", "device", "model", "data")
    groups = table.groups(*where)

    def compared(row: Row) -> Row:
        group = groups[tuple(row[name] for name in where)]
        base = next(
            (each["latency"] for each in group if (each["method"], each["runtime"]) == ("float32", "eager")), None
        )
        times = base / row["latency"] if base and row["latency"] else None
        return {
            "against_float32": times,
            "front": row["latency"] is not None and not any(_better(o, row) for o in group),
        }

    columns = ("method", "runtime", "accuracy", "agreement", "snr_db", "size", "latency", "throughput", "best_batch")
    units = dict.fromkeys(("snr_db", "against_float32"), "1")
    chosen = (*where, *columns, "best_latency", "energy", "power", "left", "against_float32", "front")
    return table.extended(compared, units).select(*chosen)


def _deployed(record: Record) -> Row:
    error, left, tried = record.median("error"), record.series.get("left_in_float"), record.series.get("batches")
    batch, throughput = int(record.median("best_batch") or 0), record.median("throughput")
    measured = record.series.get("energy")
    row: Row = {"device": record.benchmark.rpartition("_")[2], "snr_db": -20 * math.log10(error) if error else None}
    row |= {"best_batch": batch, "best_latency": batch / throughput if throughput else None}
    row |= {name: measured.numbers(name)[0] if measured else None for name in ("energy", "power")}
    # Where a single image does not run, the metric is that of the smallest batch that does.
    single = {} if not tried or min(tried.numbers("batch")) == 1 else {"latency": None}
    return {**row, **single, "left": len(left.columns["layer"]) if left else 0}


def _better(other: Row, row: Row) -> bool:
    if other["latency"] is None:
        return False
    ours, theirs = (row["accuracy"], -row["latency"]), (other["accuracy"], -other["latency"])
    return theirs != ours and theirs[0] >= ours[0] and theirs[1] >= ours[1]


def products(records: Sequence[Record]) -> Table:
    """n × n, warm caches, random numbers, the fastest implementation (`ways` lists all). Dashed horizontal lines:
    published dense peaks; share: of that peak. against_bfloat16: rate relative to bfloat16 at that size; below 1 the
    narrower format is slower.
    """
    best: dict[tuple[Any, ...], Row] = {}
    for row in ways(records).rows():
        key = tuple(row[name] for name in POINT)
        best[key] = max(best.get(key, row), row, key=lambda each: each["rate"])

    def compared(row: Row) -> Row:
        found = best[tuple(row[name] for name in POINT)]
        share, base = found.get("share"), best.get((*(row[name] for name in POINT[:3]), "bfloat16"))
        relative = {"share": share, "peak": found["rate"] / share if share else None}
        relative["against_bfloat16"] = row["rate"] / base["rate"] if base else None
        return {"highest": found["highest"], "way": found["way"], **relative}

    units = {"highest": "OP/s", "peak": "OP/s", "share": "1", "against_bfloat16": "1"}
    table = Table.of_records(records, "time", "rate", more=_device).extended(compared, units)
    columns = ("time", "rate", "highest", "way", "share", "peak", "against_bfloat16")
    return table.select("machine", "device", "dtype", "size", *columns).sorted("machine", "device", "dtype", "size")


#: What tells products apart.
POINT = ("machine", "device", "size", "dtype")


def ways(records: Sequence[Record]) -> Table:
    """share: of the published dense peak. Results differ in type: cuBLASLt to int8 rounds its sums, the other int8
    implementations return int32, fp8 returns bfloat16.
    """
    table = Table.of_series(records, "ways", "dtype", "size", more=_device)
    columns = ("machine", "device", "dtype", "size", "way", "rate", "highest", "share")
    return table.select(*columns).sorted("machine", "device", "dtype", "way", "size")


def _device(record: Record) -> Row:
    return {"device": record.benchmark.rpartition("_")[2]}


ACCURACY = line_chart(
    Axis("bits", "bits"),
    Axis("accuracy", "accuracy", "%", zero=True),
    "line",
    panel=("machine", "data"),
    rules=[Rule("y", "float32", "float32")],
    transform=[{"filter": "isValid(datum.line)"}],
)
HISTOGRAM = line_chart(
    Axis("from", "value"),
    Axis("value", "share", "%", log=True, floor=1e-4),
    parts=SHOWN,
    panel=("machine", "layer"),
    steps=True,
    points=False,
    independent=("x", "y"),
    across=3,
)
FRONT = line_chart(
    Axis("latency", "latency of one image", "s", log=True, nice=True),
    Axis("accuracy", "accuracy", "%"),
    "method",
    panel=("machine", "device", "model", "data"),
    lines=False,
    hollow="datum.runtime === 'compile'",
    independent=("x",),
    also=("runtime", Axis("throughput", "throughput at the best batch", "1/s"), "front"),
    layers=[
        # An image more or less is chance: the axis spans a tenth at least.
        *({"mark": {"type": "rule", "opacity": 0}, "encoding": {"y": {"datum": end}}} for end in (0.9, 1)),
        {
            "transform": [{"filter": "datum.front"}],
            "mark": {"type": "line", "interpolate": "step-after", "color": "#8a939e", "strokeWidth": 1},
            "encoding": {
                "x": {"field": "latency", "type": "quantitative"},
                "y": {"field": "accuracy", "type": "quantitative"},
            },
        },
    ],
)
RATES = line_chart(
    Axis("size", "size n of n × n", log=True, base=2),
    Axis("rate", "rate", "OP/s", log=True),
    "dtype",
    dash=("machine", "device"),
    rules=[Rule("y", "peak", "published peak")],
    also=("way", Axis("share", "share of the published peak", "%")),
)
WEIGHTS_CAPTION = (
    "Share of each layer's weights in 40 equal bins; one scale per channel, min–max ranges; one data set per machine."
)
ACTIVATIONS_CAPTION = (
    "Same plot for the input and every layer's activations on the calibration images. The last layer keeps 16 bits."
)
_WEIGHTS, _ACTIVATIONS = histogram("weights"), histogram("activations")
FIGURES = (
    Figure("steps", "Accuracy after each step at 8 bits", BY_HAND, steps),
    Figure("accuracy", "Accuracy by number of bits", BY_HAND, accuracy, ACCURACY),
    Figure("ranges", "Ranges of weights and activations", BY_HAND, ranges),
    Figure("weights", "Weights before and after quantization", BY_HAND, _WEIGHTS, HISTOGRAM, WEIGHTS_CAPTION),
    Figure("activations", "Activations before and after", BY_HAND, _ACTIVATIONS, HISTOGRAM, ACTIVATIONS_CAPTION),
    Figure("front", "Quantized by libraries: accuracy and latency", DEPLOYED, deployed, FRONT),
    Figure("products", "Matrix products in low precision", PRODUCTS, products, RATES),
    Figure("ways", "Matrix products in low precision, every implementation", PRODUCTS, ways),
)
