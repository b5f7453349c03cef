"""What the figures show, from Records: predictions, and measurements beside what a published peak predicts."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from hpml_plugins import GpuType, Record, Table, find_gpu
from hpml_plugins.plugins.paleo.formulas import layer_time, percent_of_peak, ring_all_reduce_time
from hpml_plugins.plugins.paleo.precisions import default_ppp, published_peak

Row = dict[str, Any]


def card(record: Record) -> GpuType | None:
    """The published peaks of the Record's GPU; None on a CPU, for an unknown card and for unlike ones."""
    names = {str(gpu["name"]) for gpu in record.node.get("gpus", ())}
    return find_gpu(names.pop()) if len(names) == 1 else None


def predicted(records: Sequence[Record]) -> Table:
    """A row a model, precision and GPU type. Every machine predicts the same, so the first Record of a point counts."""
    rows: list[Row] = []
    seen: set[tuple[object, ...]] = set()
    for record in records:
        point = (record.params["model"], record.params["dtype"])
        if point in seen or "gpus" not in record.series:
            continue
        seen.add(point)
        columns = record.series["gpus"].columns
        for cells in zip(*columns.values(), strict=True):
            rows.append({"model": point[0], "precision": point[1], **dict(zip(columns, cells, strict=True))})
    units = {"peak": "FLOP/s", "bandwidth": "B/s", "at_peak": "s", "forward": "s", "training": "s"}
    return Table.of(rows, units)


def layers(records: Sequence[Record]) -> Table:
    """Layers made of multiply-adds: measured alone, predicted, and their percent of peak.

    float32 alone, and of each model and machine the largest batch: a page cannot hold all; the Records have the rest.
    """
    largest: dict[tuple[object, ...], Record] = {}
    for record in records:
        if record.params["dtype"] != "float32" or "layers" not in record.series:
            continue
        key = (record.machine, record.params["model"])
        if key not in largest or largest[key].params["batch"] < record.params["batch"]:  # type: ignore[operator]
            largest[key] = record
    rows = [row for record in largest.values() for row in _layers_of(record)]
    units = {"flops": "FLOP", "bytes": "B", "measured": "s", "predicted": "s", "at_peak": "s", "ppp": "1"}
    return Table.of(rows, units)


def _layers_of(record: Record) -> Iterator[Row]:
    gpu = card(record)
    published = published_peak(gpu, str(record.params["dtype"])) if gpu else None
    columns = record.series["layers"].columns
    for values in zip(*columns.values(), strict=True):
        layer: Row = dict(zip(columns, values, strict=True))
        if not layer["flops"]:
            continue
        row: Row = {
            "machine": record.machine,
            "model": record.params["model"],
            "batch": record.params["batch"],
            "layer": layer["layer"],
            "type": layer["type"],
            "flops": layer["flops"],
            "bytes": layer["bytes"],
            "measured": layer["alone"],
        }
        row |= dict.fromkeys(("predicted", "at_peak", "ppp"))
        if gpu and published:
            _, peak = published
            work = (layer["flops"], layer["bytes"], peak, gpu.bandwidth)
            row["predicted"] = layer_time(*work, default_ppp("compute"))
            row["at_peak"] = layer_time(*work)
            row["ppp"] = percent_of_peak(layer["flops"], layer["alone"], peak) if layer["alone"] else None
        yield row


def sums(records: Sequence[Record]) -> Table:
    """Whole passes, the sums of their layers, and the percent of peak of the whole."""
    rows = []
    for record in records:
        median = {name: statistics.median(metric.samples) for name, metric in record.metrics.items()}
        gpu = card(record)
        published = published_peak(gpu, str(record.params["dtype"])) if gpu else None
        rows.append(
            {
                "machine": record.machine,
                "model": record.params["model"],
                "precision": record.params["dtype"],
                "batch": record.params["batch"],
                **{name: median[name] for name in SUMS},
                "training / forward": median["training"] / median["forward"],
                "peak of": published[0] if published else None,
                "PPP forward": median["rate"] / published[1] if published else None,
                "PPP training": median["training_rate"] / published[1] if published else None,
            }
        )
    return Table.of(rows, {**SUMS, **dict.fromkeys(("training / forward", "PPP forward", "PPP training"), "1")})


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


def communication(records: Sequence[Record]) -> Table:
    """All-reduces of gradients against the published NVLink peak of one direction."""
    rows = []
    for record in records:
        median = {name: statistics.median(metric.samples) for name, metric in record.metrics.items()}
        gpu = card(record)
        link = gpu.nvlink / 2 if gpu and gpu.nvlink else None
        ranks = int(record.params["ranks"])
        share = default_ppp("communication")
        rows.append(
            {
                "machine": record.machine,
                "model": record.params["model"],
                "ranks": ranks,
                "bytes": median["bytes"],
                "measured": median["time"],
                "predicted": ring_all_reduce_time(median["bytes"], ranks, link, share) if link else None,
                "bus bandwidth": median["bus_bandwidth"],
                "link": link,
                "PPP": median["bus_bandwidth"] / link if link else None,
            }
        )
    units = {"bytes": "B", "measured": "s", "predicted": "s", "bus bandwidth": "B/s", "link": "B/s", "PPP": "1"}
    return Table.of(rows, units)
