"""Tables from Records: accuracy after each step, histograms, what was deployed, and the products underneath."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hpml_plugins import Record, Table

STEP_METRICS = (
    "float_accuracy",
    "weights_accuracy",
    "activations_accuracy",
    "biases_accuracy",
    "integer_accuracy",
    "loss",
)
SHOWN = ("float", "bits8", "bits4", "bits2")


def steps(records: Sequence[Record]) -> Table:
    """A row a data set: accuracy after each step at 8 bits, a scale a channel."""
    return Table.of_records(records, *STEP_METRICS)


def accuracy(records: Sequence[Record]) -> Table:
    """A row for every width, granularity, range and step; float32's has 32 bits."""
    rows = []
    for record in records:
        found = record.series["accuracy"].columns
        names = ("bits", "granularity", "range", "step", "accuracy")
        for values in zip(*(found[name] for name in names), strict=True):
            row: dict[str, Any] = dict(zip(names, values, strict=True))
            row["bits"] = int(row["bits"])
            rows.append({"machine": record.machine, "data": record.params["data"], **row})
    return Table.of(rows, {"accuracy": "1"})


def ranges(records: Sequence[Record]) -> Table:
    """A row a tensor: what its range is, and what three standard deviations would clamp."""
    names = ("low", "high", "mean", "deviation", "outside_sigma3")
    rows: list[dict[str, Any]] = []
    for record in records:
        found = record.series["ranges"].columns
        for values in zip(*(found[name] for name in ("of", "layer", *names)), strict=True):
            row = dict(zip(("of", "layer", *names), values, strict=True))
            rows.append({"machine": record.machine, "data": record.params["data"], **row})
    return Table.of(rows, dict.fromkeys(names, "1"))


def weights(records: Sequence[Record]) -> Table:
    """Shares of the weights in equal bins, before and after."""
    return _histogram(records, "weights")


def activations(records: Sequence[Record]) -> Table:
    """Shares of the activations of the calibration set in equal bins, before and after."""
    return _histogram(records, "activations")


def _histogram(records: Sequence[Record], series: str) -> Table:
    """Of one data set a machine, the largest there is: a page would not hold more."""
    chosen: dict[str, Record] = {}
    for record in records:
        if record.machine not in chosen or _images(record) > _images(chosen[record.machine]):
            chosen[record.machine] = record
    rows: list[dict[str, Any]] = []
    for record in chosen.values():
        found = record.series[series].columns
        for values in zip(*(found[name] for name in ("layer", "from", "to", *SHOWN)), strict=True):
            row = dict(zip(("layer", "from", "to", *SHOWN), values, strict=True))
            rows.append({"machine": record.machine, "data": record.params["data"], **row})
    return Table.of(rows, dict.fromkeys(("from", "to", *SHOWN), "1"))


def _images(record: Record) -> float:
    return sum(float(facts.get("train", 0)) for facts in record.data.values())


DEPLOY_UNITS = {
    "accuracy": "1",
    "agreement": "1",
    "snr_db": "1",
    "size": "B",
    "latency": "s",
    "throughput": "1/s",
    "best_latency": "s",
    "energy": "J",
    "power": "W",
    "against_float32": "1",
}


def deployed(records: Sequence[Record]) -> Table:
    """A row a point: what a method keeps, takes and costs.

    snr_db: of the logits against float32's.  latency: of one image; none where one alone does not run (what the metric
    has is then of the smallest batch that does).  best_latency: of the whole best batch.  energy: J an image at that
    batch.  left: layers in floating point.
    against_float32: its latency over this one's, both eager.  front: no other way on that machine is both as accurate
    and faster.
    """
    rows: list[dict[str, Any]] = []
    for record in records:
        error = record.median("error")
        left = record.series.get("left_in_float")
        row: dict[str, Any] = {"machine": record.machine, "device": record.benchmark.rpartition("_")[2]}
        row |= {name: record.params[name] for name in ("model", "data", "method", "runtime")}
        row |= {name: record.median(name) for name in ("accuracy", "agreement")}
        row["snr_db"] = -20 * math.log10(error) if error else None
        row |= {name: record.median(name) for name in ("size", "latency", "throughput")}
        tried = record.series.get("batches")
        if tried and min(tried.numbers("batch")) > 1:
            row["latency"] = None
        row["best_batch"] = int(record.median("best_batch") or 0)
        row["best_latency"] = row["best_batch"] / row["throughput"] if row["throughput"] else None
        for name in ("energy", "power"):
            found = record.series.get("energy")
            row[name] = found.numbers(name)[0] if found else None
        row["left"] = len(left.columns["layer"]) if left else 0
        rows.append(row)
    for group in _groups(rows).values():
        base = [row["latency"] for row in group if (row["method"], row["runtime"]) == ("float32", "eager")]
        for row in group:
            row["against_float32"] = base[0] / row["latency"] if base and base[0] and row["latency"] else None
            row["front"] = row["latency"] is not None and not any(_better(other, row) for other in group)
    return Table.of(rows, DEPLOY_UNITS)


def _groups(rows: Sequence[dict[str, Any]]) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["machine"], row["device"], row["model"], row["data"]), []).append(row)
    return groups


def _better(other: dict[str, Any], row: dict[str, Any]) -> bool:
    if other["latency"] is None:
        return False
    as_good = other["accuracy"] >= row["accuracy"] and other["latency"] <= row["latency"]
    return bool(as_good and (other["accuracy"] > row["accuracy"] or other["latency"] < row["latency"]))


def products(records: Sequence[Record]) -> Table:
    """A row a product: rate, its highest sample, share of the published peak, times bfloat16's rate at that size."""
    rows: list[dict[str, Any]] = []
    for record in records:
        found = record.series["ways"].columns
        best = max(range(len(found["rate"])), key=lambda number: float(found["rate"][number]))
        rows.append(
            {
                "machine": record.machine,
                "device": record.benchmark.rpartition("_")[2],
                "dtype": record.params["dtype"],
                "size": record.params["size"],
                "time": record.median("time"),
                "rate": record.median("rate"),
                "highest": found["highest"][best],
                "way": found["way"][best],
                "share": found["share"][best] if "share" in found else None,
            }
        )
    base = {(row["machine"], row["device"], row["size"]): row["rate"] for row in rows if row["dtype"] == "bfloat16"}
    for row in rows:
        bfloat16 = base.get((row["machine"], row["device"], row["size"]))
        row["against_bfloat16"] = row["rate"] / bfloat16 if bfloat16 else None
    rows.sort(key=lambda row: (row["machine"], row["device"], row["dtype"], row["size"]))
    return Table.of(rows, {"time": "s", "rate": "OP/s", "highest": "OP/s", "share": "1", "against_bfloat16": "1"})


def ways(records: Sequence[Record]) -> Table:
    """A row a product and way: rate, its highest sample, share of the published peak."""
    rows: list[dict[str, Any]] = []
    for record in records:
        point = {
            "machine": record.machine,
            "device": record.benchmark.rpartition("_")[2],
            "dtype": record.params["dtype"],
            "size": record.params["size"],
        }
        found = record.series["ways"].columns
        names = [name for name in ("way", "rate", "highest", "share") if name in found]
        for values in zip(*(found[name] for name in names), strict=True):
            rows.append({**point, **dict(zip(names, values, strict=True))})
    rows.sort(key=lambda row: (row["machine"], row["device"], row["dtype"], row["way"], row["size"]))
    return Table.of(rows, {"rate": "OP/s", "highest": "OP/s", "share": "1"})
