"""The counts: a comparison of the models, their operators, and VGG layer by layer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from hpml_plugins import Axis, Figure, Record, Table, dot_chart, line_chart

METRICS = ("multiply_adds", "flops", "parameters", "activations", "bytes", "convolution_share")
#: The coursework's models, shown layer by layer.
BY_LAYER = ("vgg16", "vgg19")


def models(records: Sequence[Record]) -> Table:
    """Counted, not timed: the same on every machine. Lines connect the models of a family; its name
    is at the largest. intensity: FLOP per byte, without fusion or caching.
    """
    table = Table.of_records(records, *METRICS)
    rows: list[dict[str, Any]] = []
    for same in table.groups("model", *METRICS).values():
        row: dict[str, Any] = same[0]
        intensity = row["flops"] / row["bytes"] if row["flops"] and row["bytes"] else None
        counted_on = ", ".join(str(each["machine"]) for each in same)
        rows.append(
            {
                **row,
                "family": family(row["model"]),
                "intensity": intensity,
                "counted_on": counted_on,
            }
        )
    once = Table.of(rows, {**table.units, "intensity": "FLOP/B"}).sorted("multiply_adds", "model")
    return once.select("model", "family", *METRICS, "intensity", "counted_on")


def family(model: str) -> str:
    """ "vgg" of "vgg16_bn"; a model of one's own is its own family."""
    found = re.match("[a-z]+", model)
    return found[0] if found and ":" not in model else model


def operators(records: Sequence[Record]) -> Table:
    """Counted: ‘multiply-adds’ (in totals), ‘apart’ (counted by fvcore, not in totals), ‘none’
    (moves data only), ‘no’ (not counted).
    """
    chosen = (
        "model",
        "operator",
        "counted",
        "calls",
        "multiply_adds",
        "share",
        "activations",
        "bytes",
        "apart",
    )
    return _shares(records, "operators").select(*chosen)


def layers(records: Sequence[Record]) -> Table:
    """The layers with multiply-adds. VGG's convolutions account for almost all of them, its linear
    layers for almost all parameters.
    """
    chosen = ("model", "layer", "type", "multiply_adds", "parameters", "bytes", "share")
    table = _shares([record for record in records if record.params["model"] in BY_LAYER], "layers")
    return table.filtered(lambda row: row["multiply_adds"] and row["share"]).select(*chosen)


def _shares(records: Sequence[Record], series: str) -> Table:
    """The series of one Record for each model, by name, with each row's share of the model's
    multiply-adds."""
    first = {
        str(record.params["model"]): record
        for record in reversed(records)
        if series in record.series
    }
    table = Table.of_series(
        [first[model] for model in sorted(first)],
        series,
        "model",
        more=lambda r: {"total": r.value("multiply_adds")},
    )
    return table.extended(
        lambda row: {"share": row["multiply_adds"] / row["total"] if row["total"] else None},
        {"share": "1"},
    )


MULTIPLY_ADDS = Axis("multiply_adds", "multiply-adds per input", "MAC", log=True)
PARAMETERS = Axis("parameters", "parameters", log=True)
MODELS = line_chart(
    MULTIPLY_ADDS,
    PARAMETERS,
    "family",
    label="family",
    label_once=True,
    also=["model"],
    legend=False,
)
LAYERS = dot_chart(("model", "layer"), [MULTIPLY_ADDS, PARAMETERS], "type")
FIGURES = (
    Figure("models", "Cost of one input in each model", ("flops",), models, MODELS),
    Figure("operators", "Operators used by each model", ("flops",), operators),
    Figure("layers", "VGG16 and VGG19, layer by layer", ("flops",), layers, LAYERS),
)
