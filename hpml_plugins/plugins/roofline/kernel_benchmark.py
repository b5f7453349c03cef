"""The benchmark `roofline_kernel`."""

from __future__ import annotations

from typing import Any

from hpml_plugins import Bench, Benchmark, Metric, Requires
from hpml_plugins.plugins.roofline import dtypes, names
from hpml_plugins.plugins.roofline.model_benchmark import METRICS
from hpml_plugins.plugins.roofline.work import NCU, attach, count, metrics, settle

#: By how much the bytes of an operation far larger than the L2 may differ from its formula: what stays in the L2 is not
#: written within the kernel.
BYTES_TOLERANCE = 0.15


def measure(bench: Bench, *, kernel: str) -> dict[str, Any]:
    """Count and time one operation, and hold ncu's FLOP and bytes against the operation's formulas.

    kernel: see `names.parse`.  flop_excess: FLOP counted less those of the formula, 0 where all is understood.
    bytes_ratio: bytes counted over those of the formula. Where ncu cannot count, the formulas stand for the counts, a
    warning says so, and the two metrics say nothing (0 and 1).
    """
    kind, dtype, _ = names.parse(kernel)
    if kind == "fma" and bench.device == "cpu":
        bench.skip(f"{kernel} is for a GPU's counters")
    dtypes.require(bench, dtype)
    if kind == "fma":
        bench.import_module("triton")
    bench.progress("counting", 0.1)
    counts = count(bench, ["kernel", kernel, str(bench.seed)])

    bench.progress("checking", 0.5)
    from hpml_plugins.plugins.roofline import kernels

    built = kernels.kernel(kernel, bench.device, bench.seed)
    built.run()
    error = built.error()
    tolerance = dtypes.TOLERANCE[dtype]
    bench.check(error < tolerance, f"result differs from float64's by {error:.1e} of its length")
    work = settle(bench, counts, lambda: (built.flop, built.nbytes))
    attach(bench, counts)
    if work.flop_source == NCU and built.tolerance is not None:
        bench.check(
            abs(work.flop - built.flop) <= built.tolerance * built.flop,
            f"ncu counts {work.flop:.10g} FLOP, the formula says {built.flop:.10g}",
        )
    if work.bytes_source == NCU and built.streams:
        bench.check(
            abs(work.nbytes / built.nbytes - 1) <= BYTES_TOLERANCE,
            f"ncu counts {work.nbytes:.10g} B, the formula says {built.nbytes:.10g}",
        )
    bench.progress("timing", 0.7)
    time = bench.time(built.run, budget=1.0)
    excess = {"flop_excess": work.flop - built.flop, "bytes_ratio": work.nbytes / built.nbytes}
    return {**metrics(work, time), **excess}


KERNEL = Benchmark(
    "roofline_kernel",
    measure,
    (
        *METRICS,
        Metric("flop_excess", "FLOP", "lower", "counted less those of the formula; 0 where not counted"),
        Metric("bytes_ratio", "1", "lower", "counted over those of the formula; 1 where not counted"),
    ),
    grid={
        "kernel": [
            "scale",
            "triad",
            "relu",
            "softmax",
            "matmul_float32_2048",
            "matmul_bfloat16_2048",
            "matmul_tf32_8192",
            "matmul_bfloat16_8192",
            "matmul_float16_8192",
            "fma_float16",
        ]
    },
    requires=Requires(gpus=1, modules=("torch",), cpu_fallback=True),
    version="1",
    timeout=300,
    description="FLOP and DRAM bytes of single operations by ncu against their formulas, and their rates.",
)
