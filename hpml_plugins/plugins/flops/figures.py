"""What is drawn of the counts: the models against one another, what they compute with, and VGG layer by layer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from hpml_plugins import Figure, Record, Table, dots, legend_below
from hpml_plugins.plugins.flops.tables import UNITS

METRICS = ("multiply_adds", "flops", "parameters", "activations", "bytes", "convolution_share")
#: The models of the exercise, shown layer by layer.
BY_LAYER = ("vgg16", "vgg19")
#: Up to so many models each bears its name in the chart.
NAMED = 12


def models_table(records: Sequence[Record]) -> Table:
    """A row a model, the smallest first, with the machines that counted so. Those that count otherwise have a row more.

    intensity: FLOP / B, as if nothing were fused or cached.
    """
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for record in records:
        counts = {name: record.median(name) for name in METRICS}
        key = (record.params["model"], *counts.values())
        row = rows.setdefault(key, {"model": record.params["model"], **counts, "intensity": None, "counted_on": ""})
        if counts["flops"] and counts["bytes"]:
            row["intensity"] = counts["flops"] / counts["bytes"]
        row["counted_on"] = ", ".join(filter(None, (row["counted_on"], record.machine)))
    ordered = sorted(rows.values(), key=lambda row: (row["multiply_adds"] or 0, str(row["model"])))
    return Table.of(ordered, {**UNITS, "convolution_share": "1", "intensity": "FLOP/B"})


def draw_models(sheet: Any, table: Table) -> None:
    """Parameters over multiply-adds, log-log, a mark a model, a look for each family."""
    axes = sheet.subplots()
    rows = list(table.rows())
    families: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        families.setdefault(family(str(row["model"])), []).append(row)
    for name, members in sorted(families.items()):
        x, y = ([row[column] for row in members] for column in ("multiply_adds", "parameters"))
        axes.plot(x, y, linewidth=0.6, label=name)
    if len(rows) <= NAMED:
        for row in rows:
            place = (row["multiply_adds"], row["parameters"])
            axes.annotate(str(row["model"]), place, (4, 4), textcoords="offset points", fontsize=8)
    axes.set(xscale="log", yscale="log", xlabel="multiply-adds of one input", ylabel="parameters")
    legend_below(sheet, columns=6)


def family(model: str) -> str:
    """ "vgg" of "vgg16_bn"; a model of one's own is its own family."""
    found = re.match("[a-z]+", model)
    return found[0] if found and ":" not in model else model


def operators_table(records: Sequence[Record]) -> Table:
    """A row for each operator of each model: its calls, how it was counted, and its share of the multiply-adds."""
    rows = []
    for record in _once(records):
        whole = record.median("multiply_adds")
        for row in _rows(record, "operators"):
            share = row["multiply_adds"] / whole if whole else None
            rows.append({"model": record.params["model"], **row, "share": share})
    chosen = ("model", "operator", "counted", "calls", "multiply_adds", "share", "activations", "bytes", "apart")
    return Table.of(({name: row[name] for name in chosen} for row in rows), {**UNITS, "share": "1"})


def layers_table(records: Sequence[Record]) -> Table:
    """A row for each layer of the exercise's models that multiplies and adds, in the model's order."""
    rows = []
    for record in _once(records):
        whole = record.median("multiply_adds")
        for row in _rows(record, "layers") if record.params["model"] in BY_LAYER else ():
            if row["multiply_adds"] and whole:
                told = {name: row[name] for name in ("layer", "type", "multiply_adds", "parameters", "bytes")}
                rows.append({"model": record.params["model"], **told, "share": row["multiply_adds"] / whole})
    return Table.of(rows, {**UNITS, "share": "1"})


def draw_layers(sheet: Any, table: Table) -> None:
    """Layers down in the model's order, multiply-adds and parameters across, a mark a kind of layer."""
    points = {
        label: [(f"{row['model']} {row['layer']}", str(row["type"]), row[name]) for row in table.rows()]
        for name, label in (("multiply_adds", "multiply-adds"), ("parameters", "parameters"))
    }
    for axes in dots(sheet, points):
        axes.set_xscale("log")


def _rows(record: Record, series: str) -> Iterator[dict[str, Any]]:
    return Table(dict(record.series[series].columns)).rows()


def _once(records: Sequence[Record]) -> Iterator[Record]:
    """One Record for each model that has its series, by name: what was counted is the same on every machine."""
    seen = set()
    for record in sorted(records, key=lambda record: str(record.params["model"])):
        if record.params["model"] not in seen and {"operators", "layers"} <= record.series.keys():
            seen.add(record.params["model"])
            yield record


FIGURES = (
    Figure(
        "models",
        "What one input costs in each model",
        ("flops",),
        models_table,
        draw_models,
        "Counted, not timed: the same on every machine. Lines join the models of a family. intensity: FLOP over bytes, "
        "as if nothing were fused or cached.",
    ),
    Figure(
        "operators",
        "What the models compute with",
        ("flops",),
        operators_table,
        caption="counted: in multiply-adds, apart (fvcore's count, in no sum), none for what only moves data, or no.",
    ),
    Figure(
        "layers",
        "The exercise's models, layer by layer",
        ("flops",),
        layers_table,
        draw_layers,
        "The layers with multiply-adds. VGG's convolutions have nearly all of them, its linear layers nearly all "
        "parameters.",
    ),
)
