"""The counts: the models compared, what they compute with, and VGG layer by layer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from hpml_plugins import Axis, Figure, Record, Table, dot_chart, line_chart
from hpml_plugins.plugins.flops.tables import UNITS

METRICS = ("multiply_adds", "flops", "parameters", "activations", "bytes", "convolution_share")
#: The models of the exercise, shown layer by layer.
BY_LAYER = ("vgg16", "vgg19")


def models_table(records: Sequence[Record]) -> Table:
    """One row per model, the smallest first, with the machines that counted so; differing counts have further rows.

    intensity: FLOP / B, without fusion or caching.
    """
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for record in records:
        model, counts = str(record.params["model"]), {name: record.median(name) for name in METRICS}
        intensity = counts["flops"] / counts["bytes"] if counts["flops"] and counts["bytes"] else None
        row = {"model": model, "family": family(model), **counts, "intensity": intensity, "counted_on": ""}
        row = rows.setdefault((model, *counts.values()), row)
        row["counted_on"] = ", ".join(filter(None, (row["counted_on"], record.machine)))
    ordered = sorted(rows.values(), key=lambda row: (row["multiply_adds"] or 0, str(row["model"])))
    return Table.of(ordered, {**UNITS, "convolution_share": "1", "intensity": "FLOP/B"})


def family(model: str) -> str:
    """ "vgg" of "vgg16_bn"; a model of one's own is its own family."""
    found = re.match("[a-z]+", model)
    return found[0] if found and ":" not in model else model


def operators_table(records: Sequence[Record]) -> Table:
    """One row for each operator of each model: its calls, how it was counted, its share of the multiply-adds."""
    chosen = ("model", "operator", "counted", "calls", "multiply_adds", "share", "activations", "bytes", "apart")
    rows = [{name: row[name] for name in chosen} for record in _once(records) for row in _rows(record, "operators")]
    return Table.of(rows, {**UNITS, "share": "1"})


def layers_table(records: Sequence[Record]) -> Table:
    """One row for each layer of the exercise's models that has multiply-adds, in the model's order."""
    chosen = ("model", "layer", "type", "multiply_adds", "parameters", "bytes", "share")
    models = [record for record in _once(records) if record.params["model"] in BY_LAYER]
    rows = [row for record in models for row in _rows(record, "layers") if row["multiply_adds"] and row["share"]]
    return Table.of([{name: row[name] for name in chosen} for row in rows], {**UNITS, "share": "1"})


def _rows(record: Record, series: str) -> Iterator[dict[str, Any]]:
    total = record.median("multiply_adds")
    for row in Table.of_series([record], series, "model").rows():
        yield {**row, "share": row["multiply_adds"] / total if total else None}  # type: ignore[operator]


def _once(records: Sequence[Record]) -> Iterator[Record]:
    """One Record for each model that has its series, by name: the counts are the same on every machine."""
    seen = set()
    for record in sorted(records, key=lambda record: str(record.params["model"])):
        if record.params["model"] not in seen and {"operators", "layers"} <= record.series.keys():
            seen.add(record.params["model"])
            yield record


#: The largest model of each family bears the family's name.
_LARGEST = [{"field": "parameters", "order": "descending"}]
MODELS = line_chart(
    Axis("multiply_adds", "multiply-adds per input", "MAC", log=True),
    Axis("parameters", "parameters", log=True),
    "family",
    transform=[
        {"window": [{"op": "row_number", "as": "rank"}], "groupby": ["family"], "sort": _LARGEST},
        {"calculate": "datum.rank === 1 ? datum.family : ''", "as": "name"},
    ],
    label="name",
    also=["model"],
    legend=False,
)
LAYERS = dot_chart(
    ("model", "layer"),
    [Axis("multiply_adds", "multiply-adds", "MAC", log=True), Axis("parameters", "parameters", log=True)],
    "type",
)
FIGURES = (
    Figure(
        "models",
        "Cost of one input in each model",
        ("flops",),
        models_table,
        MODELS,
        "Counted, not timed: the same on every machine. Lines connect the models of a family; its name stands at the "
        "largest. intensity: FLOP per byte, without fusion or caching.",
    ),
    Figure(
        "operators",
        "Operators used by each model",
        ("flops",),
        operators_table,
        caption="Counted: ‘multiply-adds’ (in totals), ‘apart’ (counted by fvcore, not in totals), ‘none’ (moves data "
        "only), ‘no’ (not counted).",
    ),
    Figure(
        "layers",
        "The exercise's models, layer by layer",
        ("flops",),
        layers_table,
        LAYERS,
        "The layers with multiply-adds. VGG's convolutions account for almost all of them, its linear layers for almost "
        "all parameters.",
    ),
)
