"""Tables from Records: accuracy after each step, histograms, deployed networks, and the products underneath."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from hpml_plugins import Record, Table

STEP_METRICS = tuple(f"{step}_accuracy" for step in ("float", "weights", "activations", "biases", "integer")) + (
    "loss",
)
#: Widths of a histogram, and what the charts call them.
SHOWN = ("float", "bits8", "bits4", "bits2")
DEPLOY_UNITS = {
    **dict.fromkeys(("accuracy", "agreement", "snr_db", "against_float32"), "1"),
    **dict.fromkeys(("latency", "best_latency"), "s"),
    "size": "B",
    "throughput": "1/s",
    "energy": "J",
    "power": "W",
}
PRODUCT_UNITS = {
    **dict.fromkeys(("rate", "highest", "peak"), "OP/s"),
    "time": "s",
    "share": "1",
    "against_bfloat16": "1",
}

Row = dict[str, Any]


def steps(records: Sequence[Record]) -> Table:
    """One row per data set: accuracy after each step at 8 bits, one scale per channel."""
    return Table.of_records(records, *STEP_METRICS)


def accuracy(records: Sequence[Record]) -> Table:
    """One row for each width, granularity, range and step; float32 has 32 bits.

    line: of the chart, which shows integers in every way and each simulated step with one scale per channel.  float32:
    accuracy without quantization.
    """
    found = list(Table.of_series(records, "accuracy", "data").rows())
    exact = {(row["machine"], row["data"]): row["accuracy"] for row in found if row["step"] == "float"}
    rows = []
    for row in found:
        integer, usual = row["step"] == "integer", (row["granularity"], row["range"]) == ("channel", "minmax")
        line = f"{row['step']}, per {row['granularity']}, {row['range']}" if integer or usual else None
        whole = exact.get((row["machine"], row["data"]))
        rows.append({**row, "bits": int(row["bits"] or 0), "line": line, "float32": whole})
    return Table.of(rows, dict.fromkeys(("accuracy", "float32"), "1"))


def ranges(records: Sequence[Record]) -> Table:
    """One row per tensor: its range, and the share that three standard deviations would clamp."""
    names = ("low", "high", "mean", "deviation", "outside_sigma3")
    return Table.of_series(records, "ranges", "data", units=dict.fromkeys(names, "1"))


def histogram(series: str) -> Callable[[Sequence[Record]], Table]:
    """Shares of a tensor's values in equal bins, before and after: of the machine's largest data set alone."""

    def table(records: Sequence[Record]) -> Table:
        largest: dict[str, Record] = {}
        for record in records:
            largest[record.machine] = max(largest.get(record.machine, record), record, key=_images)
        found = Table.of_series(largest.values(), series, "data")
        names = ("machine", "data", "layer", "from", "to", *SHOWN)
        rows = [{name: row[name] for name in names} for row in found.rows()]
        return Table.of(rows, dict.fromkeys(("from", "to", *SHOWN), "1"))

    return table


def _images(record: Record) -> float:
    return sum(float(facts.get("train", 0)) for facts in record.data.values())


def deployed(records: Sequence[Record]) -> Table:
    """One row per point: what a method keeps, takes and costs.

    snr_db: of the logits relative to float32's.  latency: of one image; None where a single image does not run (what the
    metric has is then of the smallest batch that does).  best_latency: of the whole best batch.  energy: J per image at
    that batch.  left: layers in floating point.  against_float32: its latency over this one's, both eager.  front: no
    other method on that machine is both as accurate and faster.
    """
    rows = [_deployed(record) for record in records]
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in ("machine", "device", "model", "data")), []).append(row)
    for group in groups.values():
        base = next((row["latency"] for row in group if (row["method"], row["runtime"]) == ("float32", "eager")), None)
        for row in group:
            row["against_float32"] = base / row["latency"] if base and row["latency"] else None
            row["front"] = row["latency"] is not None and not any(_better(other, row) for other in group)
    return Table.of(rows, DEPLOY_UNITS)


def _deployed(record: Record) -> Row:
    error, left, tried = record.median("error"), record.series.get("left_in_float"), record.series.get("batches")
    row: Row = {"machine": record.machine, "device": record.benchmark.rpartition("_")[2]}
    row |= {name: record.params[name] for name in ("model", "data", "method", "runtime")}
    row |= {name: record.median(name) for name in ("accuracy", "agreement")}
    row["snr_db"] = -20 * math.log10(error) if error else None
    row |= {name: record.median(name) for name in ("size", "latency", "throughput")}
    if tried and min(tried.numbers("batch")) > 1:
        row["latency"] = None
    row["best_batch"] = int(record.median("best_batch") or 0)
    row["best_latency"] = row["best_batch"] / row["throughput"] if row["throughput"] else None
    measured = record.series.get("energy")
    row |= {name: measured.numbers(name)[0] if measured else None for name in ("energy", "power")}
    return row | {"left": len(left.columns["layer"]) if left else 0}


def _better(other: Row, row: Row) -> bool:
    if other["latency"] is None:
        return False
    ours, theirs = (row["accuracy"], -row["latency"]), (other["accuracy"], -other["latency"])
    return theirs != ours and theirs[0] >= ours[0] and theirs[1] >= ours[1]


def products(records: Sequence[Record]) -> Table:
    """One row per product: rate, its highest sample, share of the published peak, relative to bfloat16 at that size."""
    best: dict[tuple[Any, ...], Row] = {}
    for row in ways(records).rows():
        key = tuple(row[name] for name in ("machine", "device", "size", "dtype"))
        best[key] = max(best.get(key, row), row, key=lambda each: each["rate"])
    rows = []
    for record in records:
        point = _product(record)
        found = best[tuple(point[name] for name in ("machine", "device", "size", "dtype"))]
        rate, share = record.median("rate"), found.get("share")
        base = best.get((point["machine"], point["device"], point["size"], "bfloat16"), {}).get("rate")
        row = {**point, "time": record.median("time"), "rate": rate, "highest": found["highest"], "way": found["way"]}
        row |= {"share": share, "peak": found["rate"] / share if share else None}
        rows.append(row | {"against_bfloat16": rate / base if rate and base else None})
    rows.sort(key=lambda row: (row["machine"], row["device"], row["dtype"], row["size"]))
    return Table.of(rows, PRODUCT_UNITS)


def ways(records: Sequence[Record]) -> Table:
    """One row per product and way: rate, its highest sample, share of the published peak."""
    rows: list[Row] = []
    for record in records:
        names = [name for name in ("way", "rate", "highest", "share") if name in record.series["ways"].columns]
        found = Table.of_series([record], "ways").rows()
        rows += [{**_product(record), **{name: row[name] for name in names}} for row in found]
    rows.sort(key=lambda row: (row["machine"], row["device"], row["dtype"], row["way"], row["size"]))
    return Table.of(rows, PRODUCT_UNITS)


def _product(record: Record) -> Row:
    device = record.benchmark.rpartition("_")[2]
    return {"machine": record.machine, "device": device, **{name: record.params[name] for name in ("dtype", "size")}}
