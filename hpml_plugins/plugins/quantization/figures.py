"""What the plugin draws."""

from __future__ import annotations

from hpml_plugins import Figure
from hpml_plugins.plugins.quantization import charts, tables

BY_HAND = ("quantization_steps",)
DEPLOYED = ("quantization_deploy_cuda", "quantization_deploy_cpu")
PRODUCTS = ("quantization_matmul_cuda", "quantization_matmul_cpu")

FIGURES = (
    Figure(
        "steps",
        "Accuracy after each step at 8 bits",
        BY_HAND,
        tables.steps,
        None,
        "A scale a channel, ranges from smallest to largest. integer: every tensor is of integers; loss: float32's "
        "accuracy less that.",
    ),
    Figure(
        "accuracy",
        "Accuracy against bits",
        BY_HAND,
        tables.accuracy,
        charts.draw_accuracy,
        "Weights and activations of so many bits, biases of 32. Solid: integers alone; dotted: simulated after each "
        "step, a scale a channel. Two or three test images more or less are chance.",
    ),
    Figure(
        "ranges",
        "Ranges of weights and activations",
        BY_HAND,
        tables.ranges,
        None,
        "Before quantization. outside_sigma3: the share that ranges of three standard deviations would clamp.",
    ),
    Figure(
        "weights",
        "Weights before and after",
        BY_HAND,
        tables.weights,
        charts.draw_histograms,
        "Share of each layer's weights in 40 equal bins; one scale a channel, ranges from smallest to largest; of one "
        "data set a machine.",
    ),
    Figure(
        "activations",
        "Activations before and after",
        BY_HAND,
        tables.activations,
        charts.draw_histograms,
        "The same of the input and of each layer's results over the calibration images. The last layer keeps 16 bits.",
    ),
    Figure(
        "front",
        "Quantized by libraries: accuracy against latency",
        DEPLOYED,
        tables.deployed,
        charts.draw_front,
        "latency: one image, launching included. energy: of an image at the best batch. snr_db: of the logits against "
        "float32's. left: layers that stay in floating point. front, the line: nothing is both as accurate and faster.",
    ),
    Figure(
        "products",
        "Matrix products in low precision",
        PRODUCTS,
        tables.products,
        charts.draw_products,
        "n × n, hot, random numbers, by the fastest way (`ways` has all). share: of the published dense peak (dotted). "
        "against_bfloat16: times its rate at that size; below 1 the narrower numbers are slower.",
    ),
    Figure(
        "ways",
        "Matrix products in low precision, every way",
        PRODUCTS,
        tables.ways,
        None,
        "The same, all ways that were tried. share: of the published dense peak. What a way gives back differs: "
        "cuBLASLt to int8 rounds its sums, the others of int8 keep them in int32, fp8 gives bfloat16.",
    ),
)
