"""Predictions, and measurements next to predictions from a published peak."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hpml_plugins import Axis, Figure, GpuType, Record, Rule, Table, dot_chart, find_gpu, line_chart
from hpml_plugins.plugins.paleo import formulas

Row = dict[str, Any]
#: Metrics of `paleo_measure` that the table `sums` shows.
SUMS = (
    "forward",
    "forward_visible",
    "layers_hidden",
    "layers_synchronised",
    "hidden_ratio",
    "synchronised_ratio",
    "training",
)


def card(record: Record) -> GpuType | None:
    """The published peaks of the Record's GPU; None on a CPU, for an unknown card and for unlike
    ones."""
    names = set(record.gpu_names)
    return find_gpu(names.pop()) if len(names) == 1 else None


def _peak(record: Record) -> tuple[str | None, float | None]:
    """(name of the published peak, FLOP/s) of the Record's GPU at its precision."""
    gpu = card(record)
    return (gpu and formulas.published_peak(gpu, str(record.params["dtype"]))) or (None, None)


def predicted(records: Sequence[Record]) -> Table:
    """Not measured: (FLOP / peak + bytes / bandwidth) / percent of peak, summed over layers, with
    published peaks and PALEO's own percent of peak. at_peak: FLOP / peak alone. peak_of: the
    published peak used; for float64 that of tensor cores where the card has them. A K80 is one CUDA
    device, half of the board.
    """
    first: dict[tuple[object, ...], Record] = {}  # every machine predicts the same
    for record in records:
        first.setdefault((record.params["model"], record.params["dtype"]), record)
    table = Table.of_series(first.values(), "gpus", "model", "dtype")
    return table.select(*(name for name in table.columns if name != "machine"))


def layers(records: Sequence[Record]) -> Table:
    """Layers with multiply-adds: measured alone, predicted, and their percent of peak.

    Only float32 and the largest batch of each model and machine; the Records have the rest. number:
    of the layer in its model.
    """
    largest: dict[tuple[object, ...], Record] = {}
    for record in records:
        key = (record.machine, record.params["model"])
        if record.params["dtype"] == "float32":
            largest[key] = max(
                record, largest.get(key, record), key=lambda each: float(each.params["batch"])
            )

    def against(record: Record) -> Row:
        gpu = card(record)
        return {"peak": _peak(record)[1], "bandwidth": gpu.bandwidth if gpu else None}

    counted = Table.of_series(largest.values(), "layers", "model", "batch", more=against).filtered(
        lambda r: r["flops"]
    )
    numbers: dict[Any, int] = {}

    def compared(row: Row) -> Row:
        key = row["machine"], row["model"]
        numbers[key] = numbers.get(key, 0) + 1
        found = {
            "number": numbers[key],
            "measured": row["alone"],
            **dict.fromkeys(("predicted", "at_peak", "ppp")),
        }
        if not row["peak"]:
            return found
        work = (row["flops"], row["bytes"], row["peak"], row["bandwidth"])
        share = (
            formulas.percent_of_peak(row["flops"], row["alone"], row["peak"])
            if row["alone"]
            else None
        )
        predicted = formulas.layer_time(*work, formulas.default_ppp("compute"))
        return {
            **found,
            "predicted": predicted,
            "at_peak": formulas.layer_time(*work),
            "ppp": share,
        }

    units = {"measured": "s", "predicted": "s", "at_peak": "s", "ppp": "1"}
    shown = ("machine", "model", "batch", "layer", "number", "type", "flops", "bytes", *units)
    return counted.extended(compared, units).select(*shown)


def sums(records: Sequence[Record]) -> Table:
    """forward: the whole pass, launches hidden. layers_hidden: each layer timed alone, launches
    hidden. layers_synchronised: layer by layer with a synchronisation after each, like a
    framework's layer profiler. PPP: achieved FLOP/s divided by the published peak. predicted: of
    the forward pass, by PALEO, from the counted FLOP and bytes of each layer. The chart has GPUs
    with a published peak, in float32.
    """
    ratios = ("training / forward", "PPP forward", "PPP training")

    def compare(record: Record) -> Row:
        peak_of, peak = _peak(record)
        training, forward = record.metrics["training"].value, record.metrics["forward"].value
        rates = (record.metrics[name].value for name in ("rate", "training_rate"))
        values = (training / forward, *(rate / peak if peak else None for rate in rates))
        return {
            "precision": record.params["dtype"],
            "peak of": peak_of,
            **dict(zip(ratios, values, strict=True)),
            "predicted": _predicted(record),
        }

    units = {**dict.fromkeys(ratios, "1"), "predicted": "s"}
    table = Table.of_records(records, *SUMS, more=compare, units=units)
    point = ("machine", "model", "precision", "batch")
    return table.select(*point, *SUMS, "predicted", ratios[0], "peak of", *ratios[1:])


def _predicted(record: Record) -> float | None:
    """Seconds of the forward pass by PALEO, whose percent of peak is one number; None without a
    published peak."""
    gpu, (_, peak), counted = card(record), _peak(record), record.series.get("layers")
    if gpu is None or not peak or counted is None:
        return None
    share = formulas.default_ppp("compute")
    work = zip(counted.numbers("flops"), counted.numbers("bytes"), strict=True)
    return sum(formulas.layer_time(flop, size, peak, gpu.bandwidth, share) for flop, size in work)


def communication(records: Sequence[Record]) -> Table:
    """PPP: bus bandwidth divided by the published NVLink peak of one direction (half of both).
    predicted: a ring at PALEO's percent of peak for communication.
    """

    def predict(record: Record) -> Row:
        gpu = card(record)
        link = gpu.nvlink / 2 if gpu and gpu.nvlink else None
        if not link:
            return dict.fromkeys(("predicted", "link", "PPP"))
        nbytes, share = record.metrics["bytes"].value, formulas.default_ppp("communication")
        predicted = formulas.ring_all_reduce_time(nbytes, int(record.params["ranks"]), link, share)
        return {
            "predicted": predicted,
            "link": link,
            "PPP": record.metrics["bus_bandwidth"].value / link,
        }

    units = {"predicted": "s", "link": "B/s", "PPP": "1"}
    table = Table.of_records(records, "bytes", "time", "bus_bandwidth", more=predict, units=units)
    renamed = {"measured": "time", "predicted": "predicted", "bus bandwidth": "bus_bandwidth"}
    return table.select("machine", "model", "ranks", "bytes", **renamed, link="link", PPP="PPP")


PREDICTED = dot_chart(
    "gpu", Axis("forward", "predicted time per image", "s", log=True), "model", panel="dtype"
)
AGAINST = line_chart(
    Axis("predicted", "predicted", "s", log=True),
    Axis("measured", "measured, layer alone", "s", log=True),
    ("model", "batch {batch}"),
    panel="machine",
    diagonal=True,
    lines=False,
    also=["layer"],
)
PPP = line_chart(
    Axis("number", "layer with multiply-adds, in the model's order"),
    Axis("ppp", "share of the published peak", "%", zero=True),
    ("model", "batch {batch}"),
    panel="machine",
    rules=[Rule("y", formulas.default_ppp("compute"), "PALEO's default")],
    also=["layer"],
)
SUMS_DOTS = dot_chart(
    ("machine", "model", "batch {batch}"),
    Axis("value", "time of a forward pass", "s", log=True),
    parts=("forward", "layers_hidden", "layers_synchronised", "predicted"),
    transform=[{"filter": "datum.precision === 'float32' && isValid(datum.predicted)"}],
)
AGAINST_CAPTION = (
    "Layers with multiply-adds, float32, the largest batch; each layer is timed alone with its"
    " launch hidden. Above the dashed line a layer is slower than predicted. at_peak: predicted for"
    " a platform without losses."
)
PPP_CAPTION = (
    "FLOP divided by measured time and by the published float32 peak. Dashed: the single value that"
    " PALEO assumes for all layers. Above 100 % an algorithm needs fewer FLOP than were counted."
    " Processors without a published peak are in the table only."
)
FIGURES = [
    Figure(
        "predicted",
        "Predicted time per image on every GPU type",
        ("paleo_predict",),
        predicted,
        PREDICTED,
    ),
    Figure(
        "against",
        "Predicted and measured time of each layer",
        ("paleo_measure",),
        layers,
        AGAINST,
        AGAINST_CAPTION,
    ),
    Figure(
        "ppp",
        "Platform percent of peak of each layer",
        ("paleo_measure",),
        layers,
        PPP,
        PPP_CAPTION,
    ),
    Figure("sums", "The sum of the layers and the whole pass", ("paleo_measure",), sums, SUMS_DOTS),
    Figure(
        "communication",
        "All-reduce of the gradients and the links' peak",
        ("paleo_communication",),
        communication,
    ),
]
