"""Accuracy after each step, histograms, deployed networks, and the products underneath."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from hpml_plugins import Axis, Figure, Record, Rule, Table, dot_chart, line_chart

STEPS = ("float", "weights", "activations", "biases", "integer")
BY_HAND = ("quantization_steps",)
DEPLOYED = ("quantization_deploy_cuda", "quantization_deploy_cpu")
PRODUCTS = ("quantization_matmul_cuda", "quantization_matmul_cpu")
#: The columns with one chart of deployed networks each, and those that identify a product.
SUBJECT, POINT = ("machine", "device", "model", "data"), ("machine", "device", "size", "dtype")

Row = dict[str, Any]


def steps(records: Sequence[Record]) -> Table:
    """One scale per channel, min–max ranges. ‘integer’: all tensors are integers; ‘loss’: float32
    accuracy minus integer accuracy.
    """
    return Table.of_records(records, *(f"{step}_accuracy" for step in STEPS), "loss")


def accuracy(records: Sequence[Record]) -> Table:
    """Weights and activations of that many bits, biases of 32 bits. integer: integers only; the
    others are simulated after each step, with one scale per channel. Dashed: float32. Differences
    of two or three test images are noise.
    """
    table = Table.of_series(records, "accuracy", "data")
    exact = {
        (row["machine"], row["data"]): row["accuracy"]
        for row in table.rows()
        if row["step"] == "float"
    }

    def drawn(row: Row) -> Row:
        shown = row["step"] == "integer" or (row["granularity"], row["range"]) == (
            "channel",
            "minmax",
        )
        line = f"{row['step']}, per {row['granularity']}, {row['range']}" if shown else None
        return {
            "bits": int(row["bits"]),
            "line": line,
            "float32": exact.get((row["machine"], row["data"])),
        }

    return table.extended(drawn, {"float32": "1"})


def ranges(records: Sequence[Record]) -> Table:
    """Before quantization. outside_sigma3: the share of values outside three standard deviations,
    which such a range would clamp.
    """
    return Table.of_series(records, "ranges", "data")


def histogram(series: str, records: Sequence[Record]) -> Table:
    """Only the rows of each machine's largest data set."""

    def train_images(record: Record) -> float:
        return sum(float(facts.get("train", 0)) for facts in record.data.values())

    machines = dict.fromkeys(record.machine for record in records)
    largest = [
        max((r for r in records if r.machine == machine), key=train_images) for machine in machines
    ]
    return Table.of_series(largest, series, "data")


def deployed(records: Sequence[Record]) -> Table:
    """latency: one image, including launch overhead; outlined: compiled. best_latency: of the whole
    best batch; energy: per image at that batch. snr_db: of the logits relative to float32's. left:
    layers that stay in floating point. against_float32: its latency divided by this one's, both
    eager. Line (front): no other method is both as accurate and faster.
    """
    metrics = ("accuracy", "agreement", "size", "latency", "throughput", "best_batch")
    table = Table.of_records(records, *metrics, more=_deployed)
    groups = table.groups(*SUBJECT)

    def compared(row: Row) -> Row:
        group: list[Row] = groups[tuple(row[name] for name in SUBJECT)]
        plain = [
            other["latency"]
            for other in group
            if (other["method"], other["runtime"]) == ("float32", "eager")
        ]
        return {
            "against_float32": (
                plain[0] / row["latency"] if plain and plain[0] and row["latency"] else None
            ),
            "front": (
                row["latency"] is not None and not any(_is_better(other, row) for other in group)
            ),
        }

    units = {
        "best_latency": "s",
        "energy": "J",
        "power": "W",
        "snr_db": "1",
        "against_float32": "1",
    }
    columns = (
        "method",
        "runtime",
        "accuracy",
        "agreement",
        "snr_db",
        "size",
        "latency",
        "throughput",
        "best_batch",
    )
    more = ("best_latency", "energy", "power", "left", "against_float32", "front")
    return table.extended(compared, units).select(*SUBJECT, *columns, *more)


def _deployed(record: Record) -> Row:
    error, throughput, batch = (
        record.value(name) for name in ("error", "throughput", "best_batch")
    )
    left, tried, energy = (
        record.series.get(name) for name in ("left_in_float", "batches", "energy")
    )
    row: Row = {
        **_device(record),
        "snr_db": -20 * math.log10(error) if error else None,
        "best_batch": int(batch or 0),
        "best_latency": (batch or 0) / throughput if throughput else None,
        "energy": energy.numbers("energy")[0] if energy else None,
        "power": energy.numbers("power")[0] if energy else None,
        "left": len(left.columns["layer"]) if left else 0,
    }
    # If a single image does not run, the metric is that of the smallest batch that does.
    return {**row, "latency": None} if tried and min(tried.numbers("batch")) > 1 else row


def _is_better(other: Row, row: Row) -> bool:
    if other["latency"] is None:
        return False
    ours, theirs = (row["accuracy"], -row["latency"]), (other["accuracy"], -other["latency"])
    return theirs != ours and theirs[0] >= ours[0] and theirs[1] >= ours[1]


def products(records: Sequence[Record]) -> Table:
    """n × n, warm caches, random numbers, the fastest implementation (`ways` lists all). Dashed
    horizontal lines: published dense peaks; share: of that peak. against_bfloat16: rate relative to
    bfloat16 at that size; below 1 the narrower format is slower.
    """
    groups = ways(records).groups(*POINT)
    best: dict[Any, Row] = {
        point: max(group, key=itemgetter("rate")) for point, group in groups.items()
    }

    def compared(row: Row) -> Row:
        *point, dtype = (row[name] for name in POINT)
        found, base = best[*point, dtype], best.get((*point, "bfloat16"))
        share = found.get("share")
        return {
            "highest": found["highest"],
            "way": found["way"],
            "share": share,
            "peak": found["rate"] / share if share else None,
            "against_bfloat16": row["rate"] / base["rate"] if base else None,
        }

    units = {"highest": "OP/s", "peak": "OP/s", "share": "1", "against_bfloat16": "1"}
    table = Table.of_records(records, "time", "rate", more=_device).extended(compared, units)
    columns = ("time", "rate", "highest", "way", "share", "peak", "against_bfloat16")
    return table.select("machine", "device", "dtype", "size", *columns).sorted(
        "machine", "device", "dtype", "size"
    )


def ways(records: Sequence[Record]) -> Table:
    """share: of the published dense peak. Results differ in type: cuBLASLt to int8 rounds its sums,
    the other int8 implementations return int32, fp8 returns bfloat16.
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
STEPS_CHART = dot_chart(
    ("data", "machine"),
    Axis("value", "accuracy", "%"),
    parts=tuple(f"{step}_accuracy" for step in STEPS),
)
HISTOGRAM = line_chart(
    Axis("from", "value"),
    Axis("value", "share", "%", log=True, floor=1e-4),
    parts=("float", "bits8", "bits4", "bits2"),
    panel=("machine", "data", "layer"),
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
        # Differences of single images are chance, so the axis spans at least a tenth.
        *(
            {"mark": {"type": "rule", "opacity": 0}, "encoding": {"y": {"datum": end}}}
            for end in (0.9, 1)
        ),
        {
            "transform": [{"filter": "datum.front"}],
            "mark": {
                "type": "line",
                "interpolate": "step-after",
                "color": "#8a939e",
                "strokeWidth": 1,
            },
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
    "Share of each layer's weights in 40 equal bins; one scale per channel, min–max ranges; one"
    " data set per machine."
)
ACTIVATIONS_CAPTION = (
    "Same plot for the input and every layer's activations on the calibration images. The last"
    " layer keeps 16 bits."
)
_WEIGHTS, _ACTIVATIONS = partial(histogram, "weights"), partial(histogram, "activations")
FIGURES = (
    Figure("steps", "Accuracy after each step at 8 bits", BY_HAND, steps, STEPS_CHART),
    Figure("accuracy", "Accuracy by number of bits", BY_HAND, accuracy, ACCURACY),
    Figure("ranges", "Ranges of weights and activations", BY_HAND, ranges),
    Figure(
        "weights",
        "Weights before and after quantization",
        BY_HAND,
        _WEIGHTS,
        HISTOGRAM,
        WEIGHTS_CAPTION,
    ),
    Figure(
        "activations",
        "Activations before and after",
        BY_HAND,
        _ACTIVATIONS,
        HISTOGRAM,
        ACTIVATIONS_CAPTION,
    ),
    Figure("front", "Quantized by libraries: accuracy and latency", DEPLOYED, deployed, FRONT),
    Figure("products", "Matrix products in low precision", PRODUCTS, products, RATES),
    Figure("ways", "Matrix products in low precision, every implementation", PRODUCTS, ways),
)
