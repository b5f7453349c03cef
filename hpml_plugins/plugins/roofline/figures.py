"""What the plugin draws: the chart and its tables."""

from __future__ import annotations

from hpml_plugins import Figure
from hpml_plugins.plugins.roofline.chart import draw
from hpml_plugins.plugins.roofline.tables import everything, kernels, points, roofs, tensor_cores

BENCHMARKS = ("roofline_model", "roofline_kernel", "roof_copy", "roof_matmul")

FIGURES = (
    Figure(
        "roofline",
        "Roofline: attainable and achieved FLOP/s over arithmetic intensity",
        BENCHMARKS,
        everything,
        draw,
        "A panel a machine. Lines: min(peak, intensity × bandwidth), solid as published for the card, dashed "
        "as measured on this node (copy and matrix products). A point left of its ridge is bound by memory, "
        "right of it by arithmetic; how far below its line it lies is what it leaves unused. Filled points "
        "were counted by ncu, hollow coloured ones estimated; hollow grey and brown ones are published by others, not "
        "measured here, and of cards whose roofs are not drawn. Operations without any FLOP (relu) are in the tables "
        "only.",
    ),
    Figure(
        "roofs",
        "The roofs: published and measured",
        BENCHMARKS,
        roofs,
        None,
        "Ridge: the least intensity at which the peak can be reached. Measured: the highest sample. The "
        "published float32 peak is that of plain float32 (no tensor cores).",
    ),
    Figure(
        "points",
        "The points, and their share of the roof",
        BENCHMARKS,
        points,
        None,
        "attainable = min(peak, intensity × bandwidth), as published; share of roof = rate / attainable. "
        "Points that others published stand against the published float32 roof of their own card.",
    ),
    Figure(
        "kernels",
        "Single operations: counters against formulas",
        ("roofline_kernel",),
        kernels,
        None,
        "FLOP excess: counted less the formula's. Bytes ratio: counted over the formula's; below 1 where "
        "results stayed in the L2.",
    ),
    Figure(
        "tensor_cores",
        "What FADD, FMUL and FFMA do not see",
        ("roofline_model",),
        tensor_cores,
        None,
        "Of each model's counted FLOP, how many the counters of ordinary instructions tell: tensor cores' are"
        " not among them.",
    ),
)
