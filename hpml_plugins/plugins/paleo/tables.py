"""The tables, from Records: predictions, and measurements next to what a published peak predicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hpml_plugins import GpuType, Record, Table, find_gpu
from hpml_plugins.plugins.paleo.formulas import layer_time, percent_of_peak, ring_all_reduce_time
from hpml_plugins.plugins.paleo.precisions import default_ppp, published_peak

Row = dict[str, Any]
#: Metrics of `paleo_measure` that the table `sums` shows, and their units.
SUMS = {
    "forward": "s",
    "forward_visible": "s",
    "layers_hidden": "s",
    "layers_synchronised": "s",
    "hidden_ratio": "1",
    "synchronised_ratio": "1",
    "training": "s",
}


def card(record: Record) -> GpuType | None:
    """The published peaks of the Record's GPU; None on a CPU, for an unknown card and for unlike ones."""
    names = {str(gpu["name"]) for gpu in record.gpus}
    return find_gpu(names.pop()) if len(names) == 1 else None


def _peak(record: Record) -> tuple[str, float] | None:
    gpu = card(record)
    return published_peak(gpu, str(record.params["dtype"])) if gpu else None


def predicted(records: Sequence[Record]) -> Table:
    """One row per model, precision and GPU type. Every machine predicts the same: the first Record of a point counts."""
    first: dict[tuple[object, ...], Record] = {}
    for record in records:
        first.setdefault((record.params["model"], record.params["dtype"]), record)
    units = {"peak": "FLOP/s", "bandwidth": "B/s", "at_peak": "s", "forward": "s", "training": "s"}
    rows = Table.of_series(first.values(), "gpus", "model", "dtype").rows()
    return Table.of(({name: cell for name, cell in row.items() if name != "machine"} for row in rows), units)


def layers(records: Sequence[Record]) -> Table:
    """Layers made of multiply-adds: measured alone, predicted, and their percent of peak.

    float32 alone, and of each model and machine the largest batch: a page cannot hold all; the Records have the rest.
    number: of the layer in its model.
    """
    largest: dict[tuple[object, ...], Record] = {}
    for record in records:
        key = (record.machine, record.params["model"])
        if record.params["dtype"] == "float32" and "layers" in record.series:
            largest[key] = max(record, largest.get(key, record), key=lambda each: float(each.params["batch"]))
    rows = [row for record in largest.values() for row in _layers_of(record)]
    units = {"flops": "FLOP", "bytes": "B", "measured": "s", "predicted": "s", "at_peak": "s", "ppp": "1"}
    return Table.of(rows, units)


def _layers_of(record: Record) -> Iterator[Row]:
    gpu, published = card(record), _peak(record)
    computing = [row for row in Table.of_series([record], "layers", "model", "batch").rows() if row["flops"]]
    for number, layer in enumerate(computing, 1):
        flops, nbytes, measured = (float(layer[name] or 0) for name in ("flops", "bytes", "alone"))
        row: Row = {name: layer[name] for name in ("machine", "model", "batch", "layer")} | {"number": number}
        row |= {"type": layer["type"], "flops": flops, "bytes": nbytes, "measured": layer["alone"]}
        row |= dict.fromkeys(("predicted", "at_peak", "ppp"))
        if gpu and published:
            work = (flops, nbytes, published[1], gpu.bandwidth)
            row |= {"predicted": layer_time(*work, default_ppp("compute")), "at_peak": layer_time(*work)}
            row["ppp"] = percent_of_peak(flops, measured, published[1]) if measured else None
        yield row


def sums(records: Sequence[Record]) -> Table:
    """Whole passes, the sums of their layers, and the percent of peak of the whole."""
    rows: list[Row] = []
    for record in records:
        median = {name: metric.median for name, metric in record.metrics.items()}
        published = _peak(record)
        row: Row = {"machine": record.machine, "model": record.params["model"], "precision": record.params["dtype"]}
        row |= {"batch": record.params["batch"], **{name: median[name] for name in SUMS}}
        row |= {"training / forward": median["training"] / median["forward"]}
        row |= {"peak of": published[0] if published else None}
        for column, rate in (("PPP forward", "rate"), ("PPP training", "training_rate")):
            row[column] = median[rate] / published[1] if published else None
        rows.append(row)
    return Table.of(rows, {**SUMS, **dict.fromkeys(("training / forward", "PPP forward", "PPP training"), "1")})


def communication(records: Sequence[Record]) -> Table:
    """All-reduces of gradients against the published NVLink peak of one direction."""
    rows: list[Row] = []
    for record in records:
        nbytes, time, bandwidth = (record.metrics[name].median for name in ("bytes", "time", "bus_bandwidth"))
        gpu, ranks = card(record), int(record.params["ranks"])
        link = gpu.nvlink / 2 if gpu and gpu.nvlink else None
        share = default_ppp("communication")
        row: Row = {"machine": record.machine, "model": record.params["model"], "ranks": ranks, "bytes": nbytes}
        row |= {"measured": time, "predicted": ring_all_reduce_time(nbytes, ranks, link, share) if link else None}
        rows.append(row | {"bus bandwidth": bandwidth, "link": link, "PPP": bandwidth / link if link else None})
    units = {"bytes": "B", "measured": "s", "predicted": "s", "bus bandwidth": "B/s", "link": "B/s", "PPP": "1"}
    return Table.of(rows, units)
