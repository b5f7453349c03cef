"""The figures of the plugin."""

from __future__ import annotations

from hpml_plugins import Axis, Figure, Rule, dot_chart, line_chart
from hpml_plugins.plugins.paleo import tables
from hpml_plugins.plugins.paleo.precisions import default_ppp

PREDICTED = dot_chart("gpu", Axis("forward", "predicted time per image", "s", log=True), "model", panel="dtype")
AGAINST = line_chart(
    Axis("predicted", "predicted", "s", log=True),
    Axis("measured", "measured, layer alone", "s", log=True),
    ("model", "batch {batch}"),
    panel="machine",
    diagonal=True,
    lines=False,
    also=["layer"],
)


def figures() -> list[Figure]:
    """The figures of the plugin."""
    share = Rule("y", default_ppp("compute"), "PALEO's default")
    ppp = line_chart(
        Axis("number", "layer with multiply-adds, in the model's order"),
        Axis("ppp", "share of the published peak", "%", zero=True),
        ("model", "batch {batch}"),
        panel="machine",
        rules=[share],
        also=["layer"],
    )
    return [
        Figure(
            "predicted",
            "Predicted time per image on every GPU type",
            ("paleo_predict",),
            tables.predicted,
            PREDICTED,
            "Not measured: (FLOP / peak + bytes / bandwidth) / percent of peak, summed over layers, with published peaks "
            "and PALEO's own percent of peak. at_peak: FLOP / peak alone. peak_of: the published peak used; for float64 that "
            "of tensor cores where the card has them. A K80 is one CUDA device, half of the board.",
        ),
        Figure(
            "against",
            "Predicted and measured time of each layer",
            ("paleo_measure",),
            tables.layers,
            AGAINST,
            "Layers with multiply-adds, float32, the largest batch; each layer is timed alone with its launch hidden. Above "
            "the dashed line a layer is slower than predicted. at_peak: predicted for a platform without losses.",
        ),
        Figure(
            "ppp",
            "Platform percent of peak of each layer",
            ("paleo_measure",),
            tables.layers,
            ppp,
            "FLOP divided by measured time and by the published float32 peak. Dashed: the single value that PALEO assumes for "
            "all layers. Above 100 % an algorithm needs fewer FLOP than were counted. Processors without a published peak are "
            "in the table only.",
        ),
        Figure(
            "sums",
            "The sum of the layers and the whole pass",
            ("paleo_measure",),
            tables.sums,
            caption="forward: the whole pass, launches hidden. layers_hidden: each layer timed alone, launches hidden. "
            "layers_synchronised: layer by layer with a synchronisation after each, like a framework's layer profiler. PPP: "
            "achieved FLOP/s divided by the published peak.",
        ),
        Figure(
            "communication",
            "All-reduce of the gradients and the links' peak",
            ("paleo_communication",),
            tables.communication,
            caption="PPP: bus bandwidth divided by the published NVLink peak of one direction (half of both). predicted: a "
            "ring at PALEO's percent of peak for communication.",
        ),
    ]
