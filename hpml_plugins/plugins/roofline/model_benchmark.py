"""The benchmark `roofline_model`."""

from __future__ import annotations

import math
from typing import Any

from hpml_plugins import Bench, Benchmark, Metric, Requires
from hpml_plugins.plugins.roofline import dtypes
from hpml_plugins.plugins.roofline.work import attach, count, metrics, settle

METRICS = (
    Metric("flop", "FLOP", "lower", "of one step; its info says whether counted or estimated"),
    Metric("bytes", "B", "lower", "read from and written to DRAM in one step; counted or estimated"),
    Metric("time", "s", "lower", "of one step, without ncu"),
    Metric("rate", "FLOP/s", "higher", "flop / time"),
    Metric("bandwidth", "B/s", "higher", "bytes / time"),
    Metric("intensity", "FLOP/B", None, "flop / bytes"),
)


def measure(bench: Bench, *, model: str, step: str, dtype: str, batch: int) -> dict[str, Any]:
    """Count and time one step of a torchvision classifier on `batch` random images of 224 × 224.

    step: "forward" or "train".  dtype: "float32", "tf32", "bfloat16" or "float16", of weights, activations, gradients.
    The FLOP and bytes come from ncu, or where it cannot, from `estimating.estimate`, with a warning that says so.
    Raises HpmlError for an unknown model, step or precision; skips where the node lacks the precision.
    """
    dtypes.require(bench, dtype)
    from hpml_plugins.plugins.roofline.models import ModelStep, require

    require(model, step)
    bench.progress("counting", 0.1)
    counts = count(bench, ["model", model, step, dtype, str(batch), str(bench.seed)], dtype)

    bench.progress("checking", 0.6)
    built = ModelStep(model, step, dtype, batch, bench.device, bench.seed)
    error = built.forward_error()
    bench.check(
        error < MODEL_TOLERANCE[dtype], f"logits differ from the CPU's in float32 by {error:.1e} of their length"
    )
    work = settle(bench, counts, built.step.estimate)
    attach(bench, counts)
    before = float(built.step.run()) if step == "train" else math.nan
    bench.progress("timing", 0.7)
    time = bench.time(built.step.run)
    if step == "train":
        after = float(built.loss)
        bench.check(after < before, f"a step lowers the loss on its images: {before:.3g} before, {after:.3g} after")
    return metrics(work, time)


#: Relative error of logits: of a matrix product, grown through the layers.
MODEL_TOLERANCE = {dtype: 5 * tolerance for dtype, tolerance in dtypes.TOLERANCE.items()}

MODEL = Benchmark(
    "roofline_model",
    measure,
    METRICS,
    grid={
        "model": ["resnet18", "resnet50"],
        "step": ["forward", "train"],
        "dtype": ["float32", "tf32", "bfloat16"],
        "batch": [32],
    },
    requires=Requires(gpus=1, modules=("torch", "torchvision"), cpu_fallback=True),
    version="1",
    timeout=400,
    description="FLOP, DRAM bytes and time of a forward pass and a training step of ResNet18 and ResNet50.",
)
