"""The figures of the plugin: the chart and its tables."""

from __future__ import annotations

from hpml_plugins import Axis, Figure, roofline_chart
from hpml_plugins.plugins.roofline.tables import everything, kernels, points, roofs, tensor_cores

BENCHMARKS = ("roofline_model", "roofline_kernel", "roof_copy", "roof_matmul")
CHART = roofline_chart(
    Axis("intensity", "arithmetic intensity (bytes of DRAM)", "FLOP/B", log=True),
    Axis("rate", "rate (1 multiply-add = 2 FLOP)", "FLOP/s", log=True),
    "precision",
    roof="min(datum.rate, datum.at * datum.bandwidth)",
    dash="{roof} roof",
    shape="kind",
    panel=("machine", "GPU"),
    label="name",
    hollow="indexof(datum.source, 'ncu') < 0",
    across=2,
    also=("FLOP", "bytes", "time", "share of roof", "source"),
)

FIGURES = (
    Figure(
        "roofline",
        "Roofline: attainable and achieved FLOP/s by arithmetic intensity",
        BENCHMARKS,
        everything,
        CHART,
        "One panel per machine. Lines: min(peak, intensity × bandwidth), as published for the card and as measured on this "
        "node (copy and matrix products). Left of its ridge a point is limited by memory bandwidth, right of it by "
        "arithmetic; its distance below the line is unused capacity. Filled points were counted by ncu, outlined ones "
        "estimated or published by others. Operations without FLOP (relu) are in the tables only.",
    ),
    Figure(
        "roofs",
        "The roofs, published and measured",
        BENCHMARKS,
        roofs,
        caption="Ridge: the lowest intensity at which the peak can be reached. Measured: the highest sample. The published "
        "float32 peak is that of plain float32 (no tensor cores).",
    ),
    Figure(
        "points",
        "The points and their share of the roof",
        BENCHMARKS,
        points,
        caption="attainable = min(peak, intensity × bandwidth), as published; share of roof = rate / attainable. Points "
        "published by others are relative to the published float32 roof of their own card.",
    ),
    Figure(
        "kernels",
        "Single operations: counters and formulas",
        ("roofline_kernel",),
        kernels,
        caption="FLOP excess: counted minus formula. Bytes ratio: counted divided by formula; below 1 where results stayed "
        "in the L2 cache.",
    ),
    Figure(
        "tensor_cores",
        "FLOP not visible to FADD, FMUL and FFMA counters",
        ("roofline_model",),
        tensor_cores,
        caption="The share of each model's FLOP that the counters of ordinary instructions report: those of tensor cores "
        "are not included.",
    ),
)
