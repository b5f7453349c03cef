"""Memory: the parts as stacked bars, the ratio and the number of layers with the published
figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hpml_plugins import Axis, Figure, Record, Table, bar_chart, dot_chart, published_figures
from hpml_plugins.plugins.memory.layers import ACTIVATION

KEPT = ("parameters", "gradients", "optimiser_state", "activations", "other")
ON_CARD = (*KEPT, "working", "slack", "context")

Row = dict[str, Any]


def kept(records: Sequence[Record]) -> Table:
    """At the end of the forward pass, counted from the tensors. other: the batch and the running
    statistics."""
    table = Table.of_records(records, "parameter_size", *KEPT[1:], "total", "ratio")
    before = ("machine", "model", "optimiser", "batch")
    return table.select(
        *before,
        parameters="parameter_size",
        **{name: name for name in (*KEPT[1:], "total", "ratio")},
    )


def card(records: Sequence[Record]) -> Table:
    """All memory that NVML reports in use, summed over the point's cards. Parameters, gradients and
    the optimiser's state follow from theory; activations grow with the batch; working, slack and
    context are overhead.
    """
    return Table.of_records(records, *ON_CARD, "card")


def ratio(records: Sequence[Record]) -> Table:
    """The published figures are for another card and an unknown batch size; the ratio depends
    mostly on the batch."""
    names = ("machine", "batch", "model", "gpus", "parameter_size", "card", "ratio")
    rows = list(Table.of_records(records, *names[4:]).select(*names).rows())
    rows += [
        {**row, "machine": row["who"], **values, "card": values["used"]}
        for row, values in _published("memory")
    ]
    return Table.of(rows, {"parameter_size": "B", "card": "B", "ratio": "1"}).select(*names)


def batch(records: Sequence[Record]) -> Table:
    """Forward and backward pass, images of 224 × 224, no optimiser. image: additional bytes per
    image."""
    return Table.of_records(records, "batch", "peak", "image").extended(_limited)


def layers(records: Sequence[Record]) -> Table:
    """Alternating convolution and linear layers, input (16, 64, 112, 112), forward pass with all
    activations kept. The published two-GPU run has one row per card. activations: layers ×
    51,380,224 bytes, a lower bound.
    """
    names = ("layers", "conv", "linear", "time")
    rows = list(
        Table.of_records(records, *names).select("gpus", "limit", *names, who="machine").rows()
    )
    for row, values in _published("largest_model"):
        sizes = {
            "layers": values["conv"] + values["linear"],
            **{name: values[name] for name in names[1:]},
        }
        rows.append({"who": row["who"], "gpus": row["gpus"], "limit": "10.91", **sizes})
    table = Table.of(rows, {**dict.fromkeys(names[:3], "1"), "time": "s"}).select(
        "who", "gpus", "limit", *names
    )
    return table.extended(
        lambda row: {**_limited(row), "activations": row["layers"] * ACTIVATION},
        {"activations": "B"},
    )


def _limited(row: Row) -> Row:
    return {"limit": "whole card" if row["limit"] == "card" else f"{row['limit']} GiB"}


def _published(about: str) -> list[tuple[Row, dict[str, float]]]:
    """(who, model and gpus, quantity → value) of each subject of this topic."""
    found: dict[str, tuple[Row, dict[str, float]]] = {}
    for figure in published_figures(about):
        subject = figure.subject
        part = f", card {subject['device']} of 2" if "device" in subject else ""
        row: Row = {"who": f"{subject['gpu']}{part}, published"}
        row |= {"model": subject.get("model"), "gpus": subject["gpus"]}
        found.setdefault(str(subject), (row, {}))[1][figure.quantity] = figure.value
    return list(found.values())


MEMORY = Axis("value", "memory", "B")
RATIO = Axis("ratio", "memory in use / (parameters × 4 B)", zero=True)
BATCH = Axis("batch", "largest batch (images)", log=True, base=2)
FIT = Axis("value", "layers that fit", log=True)
KEPT_BARS = bar_chart(("machine", "model", "optimiser", "batch {batch}"), MEMORY, parts=KEPT)
CARD_BARS = bar_chart(("machine", "model", "GPUs: {gpus}", "batch {batch}"), MEMORY, parts=ON_CARD)
RATIO_DOTS = dot_chart(("model", "GPUs: {gpus}"), RATIO, ("machine", "batch {batch}"))
BATCH_DOTS = dot_chart(("model", "limit"), BATCH, ("machine", "dtype"))
LAYER_DOTS = dot_chart(("who", "GPUs: {gpus}", "limit"), FIT, parts=("conv", "linear"))
FIGURES = [
    Figure("kept", "What a training step keeps in memory", ("memory_parts",), kept, KEPT_BARS),
    Figure("card", "GPU memory in use during training", ("memory_card",), card, CARD_BARS),
    Figure(
        "ratio",
        "Memory in use relative to parameters × 4 bytes",
        ("memory_card",),
        ratio,
        RATIO_DOTS,
    ),
    Figure("batch", "The largest batch that fits", ("memory_batch",), batch, BATCH_DOTS),
    Figure("layers", "How many layers fit", ("memory_layers",), layers, LAYER_DOTS),
]
