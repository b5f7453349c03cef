"""What is drawn of the memory: the parts as stacked bars, the ratio and the layers beside the published figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hpml_plugins import Figure, Record, Table, published_figures
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
    _stack(sheet, table, KEPT, ("model", "optimiser", "batch", "machine"))


def draw_card(sheet: Any, table: Table) -> None:
    """Stacked bars, one a point, of what the cards hold."""
    _stack(sheet, table, ON_CARD, ("model", "gpus", "batch", "machine"))


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
    """Bars side by side: the models and cards, ours and the published."""
    _side_by_side(sheet, table, ("model", "gpus"), "who", "ratio", "held / (parameters × 4 bytes)")


def batch_table(records: Sequence[Record]) -> Table:
    """A row a point of `memory_batch`."""
    return Table.of_records(records, "batch", "peak", "image")


def draw_batch(sheet: Any, table: Table) -> None:
    """Bars side by side on a logarithmic scale: a whole card holds far more than the limit."""
    labelled = Table.of({**row, "who": f"{row['machine']}, {row['dtype']}"} for row in table.rows())
    axes = _side_by_side(sheet, labelled, ("model", "limit"), "who", "batch", "largest batch, images")
    axes.set_yscale("log", base=2)


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
    """Bars, a row each, as long as the layers are many."""
    rows = list(table.rows())
    axes = sheet.subplots()
    labels = [f"{row['who']}\n{row['gpus']} GPU, {_limit(row['limit'])}" for row in rows]
    axes.barh(range(len(rows)), [row["conv"] for row in rows], label="convolutions")
    axes.barh(range(len(rows)), [row["linear"] for row in rows], left=[row["conv"] for row in rows], label="linear")
    axes.set_yticks(range(len(rows)), labels, fontsize=7)
    axes.invert_yaxis()
    axes.set(xlabel="layers that fit", xscale="symlog")
    axes.legend()


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
    rows = list(table.rows())
    axes = sheet.subplots()
    bottom = [0.0] * len(rows)
    for part in parts:
        sizes = [float(row[part] or 0) / GIB for row in rows]
        axes.bar(range(len(rows)), sizes, bottom=bottom, label=part.replace("_", " "), width=0.7)
        bottom = [low + size for low, size in zip(bottom, sizes, strict=True)]
    labels = ["\n".join(_spell(name, row[name]) for name in names) for row in rows]
    axes.set_xticks(range(len(rows)), labels, fontsize=8)
    axes.set(ylabel="GiB")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _side_by_side(sheet: Any, table: Table, at: Sequence[str], by: str, value: str, label: str) -> Any:
    """Bars grouped at the columns `at`, one for each value of the column `by`."""
    axes = sheet.subplots()
    groups = list(table.groups(*at))
    series = table.groups(by)
    width = 0.8 / len(series)
    for number, ((name,), rows) in enumerate(series.items()):
        places = [
            groups.index(tuple(row[each] for each in at)) + (number - (len(series) - 1) / 2) * width for row in rows
        ]
        axes.bar(places, [row[value] for row in rows], width=width, label=str(name))
    spelled = [", ".join(_spell(name, cell) for name, cell in zip(at, group, strict=True)) for group in groups]
    axes.set_xticks(range(len(groups)), spelled, fontsize=8)
    axes.set(ylabel=label)
    axes.legend()
    return axes


def _spell(name: str, cell: object) -> str:
    spelled = {"gpus": f"{cell} GPU", "batch": f"batch {cell}", "limit": _limit(cell)}
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
