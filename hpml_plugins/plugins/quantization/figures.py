"""The figures of the plugin."""

from __future__ import annotations

from hpml_plugins import Axis, Figure, Rule, line_chart
from hpml_plugins.plugins.quantization import tables

BY_HAND = ("quantization_steps",)
DEPLOYED = ("quantization_deploy_cuda", "quantization_deploy_cpu")
PRODUCTS = ("quantization_matmul_cuda", "quantization_matmul_cpu")

ACCURACY = line_chart(
    Axis("bits", "bits"),
    Axis("accuracy", "accuracy", "%", zero=True),
    "line",
    panel=("machine", "data"),
    rules=[Rule("y", "float32", "float32")],
    transform=[{"filter": "isValid(datum.line)"}],
)
HISTOGRAM = line_chart(
    Axis("from", "value"),
    Axis("value", "share", "%", log=True, limits=(1e-4, 1)),
    parts=tables.SHOWN,
    panel=("machine", "layer"),
    steps=True,
    points=False,
    independent=("x", "y"),
    across=3,
)
FRONT = line_chart(
    Axis("latency", "latency of one image", "s", log=True, nice=True),
    Axis("accuracy", "accuracy", "%"),
    "method",
    panel=("machine", "device", "{model} on", "data"),
    lines=False,
    hollow="datum.runtime === 'compile'",
    independent=("x",),
    also=("runtime", "throughput", "front"),
    layers=[
        {
            "transform": [{"filter": "datum.front"}],
            "mark": {"type": "line", "interpolate": "step-after", "color": "#8a939e", "strokeWidth": 1},
            "encoding": {
                "x": {"field": "latency", "type": "quantitative"},
                "y": {"field": "accuracy", "type": "quantitative"},
            },
        }
    ],
)
RATES = line_chart(
    Axis("size", "size n of n × n", log=True, base=2),
    Axis("rate", "rate", "OP/s", log=True),
    "dtype",
    dash=("machine", "device"),
    rules=[Rule("y", "peak", "published peak")],
    also=("way", "share"),
)
FIGURES = (
    Figure(
        "steps",
        "Accuracy after each step at 8 bits",
        BY_HAND,
        tables.steps,
        caption="One scale per channel, min–max ranges. ‘integer’: all tensors are integers; ‘loss’: float32 accuracy "
        "minus integer accuracy.",
    ),
    Figure(
        "accuracy",
        "Accuracy by number of bits",
        BY_HAND,
        tables.accuracy,
        ACCURACY,
        "Weights and activations of that many bits, biases of 32 bits. integer: integers only; the others are simulated "
        "after each step, with one scale per channel. Dashed: float32. Differences of two or three test images are noise.",
    ),
    Figure(
        "ranges",
        "Ranges of weights and activations",
        BY_HAND,
        tables.ranges,
        caption="Before quantization. outside_sigma3: the share of values outside three standard deviations, which such a "
        "range would clamp.",
    ),
    Figure(
        "weights",
        "Weights before and after quantization",
        BY_HAND,
        tables.histogram("weights"),
        HISTOGRAM,
        "Share of each layer's weights in 40 equal bins; one scale per channel, min–max ranges; one data set per machine.",
    ),
    Figure(
        "activations",
        "Activations before and after quantization",
        BY_HAND,
        tables.histogram("activations"),
        HISTOGRAM,
        "Same plot for the input and every layer's activations on the calibration images. The last layer keeps 16 bits.",
    ),
    Figure(
        "front",
        "Quantized by libraries: accuracy and latency",
        DEPLOYED,
        tables.deployed,
        FRONT,
        "latency: one image, including launch overhead; outlined: compiled. energy: per image at the best batch. snr_db: of "
        "the logits relative to float32's. left: layers that stay in floating point. Line (front): no other method is both "
        "as accurate and faster.",
    ),
    Figure(
        "products",
        "Matrix products in low precision",
        PRODUCTS,
        tables.products,
        RATES,
        "n × n, warm caches, random numbers, the fastest implementation (`ways` lists all). Dashed horizontal lines: "
        "published dense peaks; share: of that peak. against_bfloat16: rate relative to bfloat16 at that size; below 1 the "
        "narrower format is slower.",
    ),
    Figure(
        "ways",
        "Matrix products in low precision, every implementation",
        PRODUCTS,
        tables.ways,
        caption="share: of the published dense peak. Results differ in type: cuBLASLt to int8 rounds its sums, the other "
        "int8 implementations return int32, fp8 returns bfloat16.",
    ),
)
