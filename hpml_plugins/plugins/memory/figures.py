"""What is drawn of the memory: the parts as stacked bars, the ratio and the layers beside the published figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hpml_plugins import Figure, Record, Table, dots, legend_below, published_figures
from hpml_plugins.plugins.memory.stack import ACTIVATION

KEPT = ("parameters", "gradients", "optimiser_state", "activations", "other")
ON_CARD = (*KEPT, "working", "slack", "context")
GIB = 2**30


def kept_table(records: Sequence[Record]) -> Table:
    """A row a point of `memory_parts`, with its parts and their sum."""
    table = Table.of_records(records, "parameter_size", *KEPT[1:], "total", "ratio")
    columns = {{"parameter_size": "parameters"}.get(name, name): values for name, values in table.columns.items()}
    units = {{"parameter_size": "parameters"}.get(name, name): symbol for name, symbol in table.units.items()}
    return Table(columns, units)


def card_table(records: Sequence[Record]) -> Table:
    """A row a point of `memory_card`, with its parts and what the cards hold."""
    return Table.of_records(records, *ON_CARD, "card")


def draw_kept(sheet: Any, table: Table) -> None:
    """Stacked bars, one a point, of what a step keeps."""
    _stack(sheet, table, KEPT, ("machine", "model", "optimiser", "batch"))


def draw_card(sheet: Any, table: Table) -> None:
    """Stacked bars, one a point, of what the cards hold."""
    _stack(sheet, table, ON_CARD, ("machine", "model", "gpus", "batch"))


def ratio_table(records: Sequence[Record]) -> Table:
    """What cards hold over parameters × 4 bytes: ours, then the published ones."""
    rows: list[dict[str, Any]] = [
        {
            "who": f"{row['machine']}, batch {row['batch']}",
            **{name: row[name] for name in ("model", "gpus")},
            **_sizes(row),
        }
        for row in Table.of_records(records, "parameter_size", "card", "ratio").rows()
    ]
    for subject, told, document in _published("memory"):
        sizes = _sizes({"parameter_size": told["parameter_size"], "card": told["used"], "ratio": told["ratio"]})
        who = f"{subject['gpu']}, published ({document})"
        rows.append({"who": who, "model": subject["model"], "gpus": subject["gpus"], **sizes})
    return Table.of(rows, {"parameter_size": "B", "card": "B", "ratio": "1"})


def draw_ratio(sheet: Any, table: Table) -> None:
    """Models and cards down, the ratio across: ours and the published."""
    points = [(_spelled(row, ("model", "gpus")), str(row["who"]), row["ratio"]) for row in table.rows()]
    (axes,) = dots(sheet, {"held / (parameters × 4 bytes)": points})
    axes.set_xlim(left=0)


def batch_table(records: Sequence[Record]) -> Table:
    """A row a point of `memory_batch`."""
    return Table.of_records(records, "batch", "peak", "image")


def draw_batch(sheet: Any, table: Table) -> None:
    """Models and limits down, the batch across on a logarithmic scale: a whole card holds far more than the limit."""
    points = [
        (_spelled(row, ("model", "limit")), f"{row['machine']}, {row['dtype']}", row["batch"]) for row in table.rows()
    ]
    (axes,) = dots(sheet, {"largest batch, images": points})
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:.0f}")


def layers_table(records: Sequence[Record]) -> Table:
    """How many layers fit, ours, then the published: a row for each count of cards and limit."""
    names = ("layers", "conv", "linear", "time")
    rows: list[dict[str, Any]] = [
        {"who": row["machine"], "gpus": row["gpus"], "limit": str(row["limit"]), **{name: row[name] for name in names}}
        for row in Table.of_records(records, *names).rows()
    ]
    for subject, told, document in _published("largest_model"):
        part = f", card {subject['device']} of 2" if "device" in subject else ""
        who = f"{subject['gpu']}{part}, published ({document})"
        sizes = {"layers": told["conv"] + told["linear"], **{name: told[name] for name in names[1:]}}
        rows.append({"who": who, "gpus": subject["gpus"], "limit": "10.91", **sizes})
    for row in rows:
        row["activations"] = row["layers"] * ACTIVATION
    return Table.of(rows, {**dict.fromkeys(names[:3], "1"), "time": "s", "activations": "B"})


def draw_layers(sheet: Any, table: Table) -> None:
    """Cards and limits down, how many convolution and linear layers fit across."""
    points = [
        (_spelled(row, ("who", "gpus", "limit")), name, row[column])
        for row in table.rows()
        for name, column in (("convolutions", "conv"), ("linear layers", "linear"))
    ]
    (axes,) = dots(sheet, {"layers that fit": points})
    axes.set_xscale("log")


def _published(about: str) -> list[tuple[dict[str, str | int], dict[str, float], str]]:
    """(subject, quantity → value, document) of each subject of this topic."""
    found: dict[str, tuple[dict[str, str | int], dict[str, float], str]] = {}
    for figure in published_figures(about):
        _, told, _ = found.setdefault(str(figure.subject), (figure.subject, {}, figure.document))
        told[figure.quantity] = figure.value
    return list(found.values())


def _sizes(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("parameter_size", "card", "ratio")}


def _limit(limit: object) -> str:
    return "whole card" if limit == "card" else f"{limit} GiB"


def _stack(sheet: Any, table: Table, parts: Sequence[str], names: Sequence[str]) -> None:
    """Horizontal bars, a row each, of parts end to end."""
    rows = list(table.rows())
    sheet.set_size_inches(sheet.get_figwidth(), 1.6 + 0.32 * len(rows))
    axes = sheet.subplots()
    left = [0.0] * len(rows)
    for part in parts:
        sizes = [float(row[part] or 0) / GIB for row in rows]
        axes.barh(range(len(rows)), sizes, left=left, label=part.replace("_", " "), height=0.7)
        left = [low + size for low, size in zip(left, sizes, strict=True)]
    axes.set_yticks(range(len(rows)), [_spelled(row, names) for row in rows], fontsize=8)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set(xlabel="GiB")
    legend_below(sheet, columns=4)


def _spelled(row: Mapping[str, Any], names: Sequence[str]) -> str:
    return ", ".join(_spell(name, row[name]) for name in names)


def _spell(name: str, cell: object) -> str:
    spelled = {"gpus": f"{cell} GPU" if cell == 1 else f"{cell} GPUs", "batch": f"batch {cell}", "limit": _limit(cell)}
    return spelled.get(name, str(cell))


FIGURES = (
    Figure(
        "kept",
        "What a training step keeps",
        ("memory_parts",),
        kept_table,
        draw_kept,
        "At the end of the forward pass, counted from the tensors; other is the batch and the running statistics.",
    ),
    Figure(
        "card",
        "What the cards hold while they train",
        ("memory_card",),
        card_table,
        draw_card,
        "All that NVML sees in use, over all cards of the point. Parameters, gradients and the optimiser's state are "
        "what theory knows of; activations grow with the batch; working, slack and context are what it takes to run.",
    ),
    Figure(
        "ratio",
        "Memory held against parameters × 4 bytes",
        ("memory_card",),
        ratio_table,
        draw_ratio,
        "Published figures are of another card and an unknown batch; the ratio depends on the batch above all.",
    ),
    Figure(
        "batch",
        "The largest batch that fits",
        ("memory_batch",),
        batch_table,
        draw_batch,
        "Forward and backward pass, images of 224 × 224, no optimiser. image: bytes that each image more takes.",
    ),
    Figure(
        "layers",
        "How many layers fit",
        ("memory_layers",),
        layers_table,
        draw_layers,
        "Convolution and linear layers in turn, input (16, 64, 112, 112), forward pass with everything kept. Of the "
        "published two-GPU run each card has a row. activations: layers × 51,380,224 bytes, which at least are kept.",
    ),
)
