"""What the plugin draws."""

from __future__ import annotations

from hpml_plugins import Figure
from hpml_plugins.plugins.paleo import charts, tables

FIGURES = (
    Figure(
        "predicted",
        "Predicted time of one picture on every GPU type",
        ("paleo_predict",),
        tables.predicted,
        charts.draw_predicted,
        "Not measured: (FLOP / peak + bytes / bandwidth) / percent of peak, summed over layers, with published peaks "
        "and PALEO's own percent of peak. at_peak: FLOP / peak alone. peak_of: which published peak; float64 is held "
        "against tensor cores where the card has them. A K80 is one CUDA device, half of the board.",
    ),
    Figure(
        "against",
        "Predicted against measured, layer by layer",
        ("paleo_measure",),
        tables.layers,
        charts.draw_against,
        "Layers made of multiply-adds, float32, the largest batch, each timed alone with its launch hidden. Above the "
        "dashed line a layer is slower than predicted. at_peak: predicted for a platform that wastes nothing.",
    ),
    Figure(
        "ppp",
        "Platform percent of peak, layer by layer",
        ("paleo_measure",),
        tables.layers,
        charts.draw_ppp,
        "FLOP over measured time over the published float32 peak. Dashed: the one number that PALEO takes for all "
        "layers. Above 1 an algorithm does with fewer FLOP than were counted. A processor without a published peak "
        "is in the table only.",
    ),
    Figure(
        "sums",
        "The sum of the layers against the whole",
        ("paleo_measure",),
        tables.sums,
        None,
        "forward: the whole pass, launches hidden. layers_hidden: each layer timed alone, launches hidden. "
        "layers_synchronised: layer by layer with a synchronisation after each, as a framework's layer profiler does. "
        "PPP: achieved FLOP/s over the published peak.",
    ),
    Figure(
        "communication",
        "All-reduce of the gradients against the links",
        ("paleo_communication",),
        tables.communication,
        None,
        "PPP: bus bandwidth over the published NVLink peak of one direction (half of both). predicted: a ring at "
        "PALEO's percent of peak for communication.",
    ),
)
