"""The benchmarks `roofline_model`, `roofline_kernel` and `roof_power`: steps counted, timed, and
under power limits."""

from __future__ import annotations

import math
from typing import Any

from hpml_plugins import Bench, Benchmark, HpmlError, Metric, Requires
from hpml_plugins.plugins.roofline import formulas
from hpml_plugins.plugins.roofline.counting import NCU, count, metrics, settle

#: Relative error of logits: that of a matrix product, amplified by the layers.
MODEL_TOLERANCE = {dtype: 5 * tolerance for dtype, tolerance in formulas.TOLERANCE.items()}
#: Relative difference up to which counted FLOP agree with the formula, unless that is only a
#: convention. Scaling a product by alpha takes n² more; a tile that overhangs the matrix is
#: computed in full.
FLOP_TOLERANCE = {"scale": 0.02, "triad": 0.02, "matmul": 0.02, "fma": 0.0}
#: Allowed difference of the bytes of an operation far larger than the L2 from its formula: data
#: that stay in the L2 are not written within the kernel.
BYTES_TOLERANCE = 0.15

METRICS = (
    Metric("flop", "FLOP", "lower", "of one step; its info says whether counted or estimated"),
    Metric(
        "bytes", "B", "lower", "read from and written to DRAM in one step; counted or estimated"
    ),
    Metric("time", "s", "lower", "of one step, without ncu"),
    Metric("rate", "FLOP/s", "higher", "flop / time"),
    Metric("bandwidth", "B/s", "higher", "bytes / time"),
    Metric("intensity", "FLOP/B", None, "flop / bytes"),
)


def measure_model(bench: Bench, *, model: str, step: str, dtype: str, batch: int) -> dict[str, Any]:
    """Count (or with a warning estimate) and time one step, "forward" or "train", of a torchvision
    classifier."""
    formulas.require_precision(bench, dtype)
    from hpml_plugins.plugins.roofline import steps
    from hpml_plugins.workloads.complexity import require_classifier

    if step not in steps.STEPS:
        raise HpmlError(f"no step {step!r}; use one of {', '.join(steps.STEPS)}")
    require_classifier(model)
    bench.progress("counting", 0.1)
    arguments = (model, step, dtype, batch, bench.device, bench.seed)
    counts = count(bench, "model", arguments, dtype)

    bench.progress("checking", 0.6)
    built = steps.model_step(*arguments)
    error = built.error()
    bench.check(
        error < MODEL_TOLERANCE[dtype],
        f"logits differ from the CPU's in float32 by {error:.1e} of their length",
    )
    work = settle(bench, counts, built.estimate)
    before = float(built.run()) if step == "train" else math.nan
    bench.progress("timing", 0.7)
    time = bench.time(built.run)
    if step == "train":
        after = float(built.run())
        bench.check(
            after < before,
            f"a step lowers the loss on its images: {before:.3g} before, {after:.3g} after",
        )
    return metrics(work, time)


def measure_kernel(bench: Bench, *, kernel: str) -> dict[str, Any]:
    """Count and time one operation, and compare ncu's FLOP and bytes with its formulas.  kernel:
    see `formulas.parse`.

    If ncu cannot count, the formulas replace the counts, with a warning.
    """
    kind, dtype, _ = formulas.parse(kernel)
    if kind == "fma":
        if bench.device == "cpu":
            bench.skip(f"{kernel} is for a GPU's counters")
        bench.import_module("triton")
    formulas.require_precision(bench, dtype)
    bench.progress("counting", 0.1)
    counts = count(bench, "kernel", (kernel, bench.device, bench.seed))

    bench.progress("checking", 0.5)
    from hpml_plugins.plugins.roofline.steps import checked_kernel

    built = checked_kernel(bench, kernel)
    work = settle(bench, counts, built.estimate)
    flop, nbytes = built.estimate()
    if work.flop_source == NCU and kind in FLOP_TOLERANCE:
        bench.check(
            abs(work.flop - flop) <= FLOP_TOLERANCE[kind] * flop,
            f"ncu counts {work.flop:.10g} FLOP, the formula says {flop:.10g}",
        )
    if work.bytes_source == NCU and kind in formulas.STREAMING:
        bench.check(
            abs(work.nbytes / nbytes - 1) <= BYTES_TOLERANCE,
            f"ncu counts {work.nbytes:.10g} B, the formula says {nbytes:.10g}",
        )
    bench.progress("timing", 0.7)
    time = bench.time(built.run, budget=1.0)
    excess = {"flop_excess": work.flop - flop, "bytes_ratio": work.nbytes / nbytes}
    return {**metrics(work, time), **excess}


def measure_power(bench: Bench, *, kernel: str, watts: int) -> dict[str, Any]:
    """Time a kernel of `roofline_kernel` and measure its energy. watts: the power limit; 0 leaves
    the card's own."""
    _, dtype, _ = formulas.parse(kernel)
    formulas.require_precision(bench, dtype)
    from hpml_plugins.plugins.roofline.steps import checked_kernel

    step = checked_kernel(bench, kernel)
    flop, nbytes = step.estimate()
    bench.work(flop=flop, bytes=nbytes, dtype=dtype)
    with bench.power_limit(watts):
        return {"time": bench.time(step.run), "energy": bench.energy(step.run)}


MODEL = Benchmark(
    "roofline_model",
    measure_model,
    METRICS,
    grid={
        "model": ["resnet18", "resnet50"],
        "step": ["forward", "train"],
        "dtype": ["float32", "tf32", "bfloat16"],
        "batch": [32],
    },
    requires=Requires(gpus=1, modules=("torch", "torchvision"), cpu_fallback=True),
    timeout=400,
    description=(
        "FLOP, DRAM bytes and time of a forward pass and a training step of ResNet18 and ResNet50."
    ),
)
PRODUCTS = ("float32_2048", "bfloat16_2048", "tf32_8192", "bfloat16_8192", "float16_8192")
KERNEL = Benchmark(
    "roofline_kernel",
    measure_kernel,
    (
        *METRICS,
        Metric(
            "flop_excess",
            "FLOP",
            "lower",
            "counted less those of the formula; 0 where not counted",
            (None, None),
        ),
        Metric(
            "bytes_ratio", "1", "lower", "counted over those of the formula; 1 where not counted"
        ),
    ),
    grid={
        "kernel": [
            *formulas.STREAMING,
            *(f"matmul_{product}" for product in PRODUCTS),
            "fma_float16",
        ]
    },
    requires=Requires(gpus=1, modules=("torch",), cpu_fallback=True),
    timeout=300,
    description=(
        "FLOP and DRAM bytes of single operations by ncu against their formulas, and their rates."
    ),
)
POWER = Benchmark(
    "roof_power",
    measure_power,
    [
        Metric("time", "s", "lower", "of one call"),
        Metric("rate", "FLOP/s", "higher", "FLOP by formula over time"),
        Metric("energy", "J", "lower", "of one call, above that of the idle card"),
    ],
    # No limit is ever set unless an operator adds one: `grid: {roof_power: {watts: [0, 400, 550]}}`
    # in registry.yaml.
    grid={"kernel": ["triad", "matmul_bfloat16_8192"], "watts": [0]},
    requires=Requires(gpus=1, modules=("torch",)),
    timeout=120,
    description=(
        "Time and energy of a kernel under a power limit: the card's own, or others that an"
        " operator adds."
    ),
)
