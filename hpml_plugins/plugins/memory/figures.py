"""Memory: the parts as stacked bars, the ratio and the number of layers beside the published figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hpml_plugins import Axis, Figure, Record, Table, bar_chart, dot_chart, published_figures
from hpml_plugins.plugins.memory.stack import ACTIVATION

KEPT = ("parameters", "gradients", "optimiser_state", "activations", "other")
ON_CARD = (*KEPT, "working", "slack", "context")


def kept_table(records: Sequence[Record]) -> Table:
    """One row per point of `memory_parts`, with its parts and their sum."""
    table = Table.of_records(records, "parameter_size", *KEPT[1:], "total", "ratio")
    renamed = {"parameter_size": "parameters"}
    columns = {renamed.get(name, name): values for name, values in table.columns.items()}
    return Table(columns, {renamed.get(name, name): symbol for name, symbol in table.units.items()})


def card_table(records: Sequence[Record]) -> Table:
    """One row per point of `memory_card`, with its parts and what the cards hold."""
    return Table.of_records(records, *ON_CARD, "card")


def ratio_table(records: Sequence[Record]) -> Table:
    """Memory of the cards over parameters × 4 bytes: ours, then the published ones."""
    names = ("model", "gpus", "parameter_size", "card", "ratio")
    ours = Table.of_records(records, *names[2:])
    rows: list[dict[str, Any]] = [
        {"who": f"{row['machine']}, batch {row['batch']}"} | {name: row[name] for name in names} for row in ours.rows()
    ]
    for subject, values, document in _published("memory"):
        who = f"{subject['gpu']}, published ({document})"
        row = {"who": who, "model": subject["model"], "gpus": subject["gpus"]}
        rows.append(
            {**row, "parameter_size": values["parameter_size"], "card": values["used"], "ratio": values["ratio"]}
        )
    return Table.of(rows, {"parameter_size": "B", "card": "B", "ratio": "1"})


def batch_table(records: Sequence[Record]) -> Table:
    """One row per point of `memory_batch`."""
    table = Table.of_records(records, "batch", "peak", "image")
    memory = ["whole card" if limit == "card" else f"{limit} GiB" for limit in table.columns.get("limit", ())]
    return Table({**table.columns, "limit": memory}, table.units) if memory else table


def layers_table(records: Sequence[Record]) -> Table:
    """How many layers fit: ours, then the published, one row for each number of cards and limit."""
    names = ("layers", "conv", "linear", "time")
    rows: list[dict[str, Any]] = [
        {"who": row["machine"], "gpus": row["gpus"], "limit": str(row["limit"]), **{name: row[name] for name in names}}
        for row in Table.of_records(records, *names).rows()
    ]
    for subject, values, document in _published("largest_model"):
        part = f", card {subject['device']} of 2" if "device" in subject else ""
        who = f"{subject['gpu']}{part}, published ({document})"
        sizes = {"layers": values["conv"] + values["linear"], **{name: values[name] for name in names[1:]}}
        rows.append({"who": who, "gpus": subject["gpus"], "limit": "10.91", **sizes})
    for row in rows:
        row["limit"] = "whole card" if row["limit"] == "card" else f"{row['limit']} GiB"
        row["activations"] = row["layers"] * ACTIVATION
    return Table.of(rows, {**dict.fromkeys(names[:3], "1"), "time": "s", "activations": "B"})


def _published(about: str) -> list[tuple[dict[str, str | int], dict[str, float], str]]:
    """(subject, quantity → value, document) of each subject of this topic."""
    found: dict[str, tuple[dict[str, str | int], dict[str, float], str]] = {}
    for figure in published_figures(about):
        found.setdefault(str(figure.subject), (figure.subject, {}, figure.document))[1][figure.quantity] = figure.value
    return list(found.values())


MEMORY = Axis("value", "memory", "B")
FIGURES = (
    Figure(
        "kept",
        "What a training step keeps in memory",
        ("memory_parts",),
        kept_table,
        bar_chart(("machine", "model", "optimiser", "batch {batch}"), MEMORY, parts=KEPT),
        "At the end of the forward pass, counted from the tensors. other: the batch and the running statistics.",
    ),
    Figure(
        "card",
        "GPU memory in use during training",
        ("memory_card",),
        card_table,
        bar_chart(("machine", "model", "GPUs: {gpus}", "batch {batch}"), MEMORY, parts=ON_CARD),
        "All memory that NVML reports in use, summed over the point's cards. Parameters, gradients and the optimiser's "
        "state follow from theory; activations grow with the batch; working, slack and context are overhead.",
    ),
    Figure(
        "ratio",
        "Memory in use relative to parameters × 4 bytes",
        ("memory_card",),
        ratio_table,
        dot_chart(("model", "GPUs: {gpus}"), Axis("ratio", "memory in use / (parameters × 4 B)", zero=True), "who"),
        "The published figures are for another card and an unknown batch size; the ratio depends mostly on the batch.",
    ),
    Figure(
        "batch",
        "The largest batch that fits",
        ("memory_batch",),
        batch_table,
        dot_chart(("model", "limit"), Axis("batch", "largest batch (images)", log=True, base=2), ("machine", "dtype")),
        "Forward and backward pass, images of 224 × 224, no optimiser. image: additional bytes per image.",
    ),
    Figure(
        "layers",
        "How many layers fit",
        ("memory_layers",),
        layers_table,
        dot_chart(
            ("who", "GPUs: {gpus}", "limit"), Axis("value", "layers that fit", log=True), parts=("conv", "linear")
        ),
        "Alternating convolution and linear layers, input (16, 64, 112, 112), forward pass with all activations kept. The "
        "published two-GPU run has one row per card. activations: layers × 51,380,224 bytes, a lower bound.",
    ),
)
