"""The benchmark `roof_power`: time and energy of kernels under other power limits, for operators who may set them."""

from __future__ import annotations

from typing import Any

from hpml_plugins import Bench, Benchmark, Metric, Requires
from hpml_plugins.plugins.roofline import formulas


def measure(bench: Bench, *, kernel: str, watts: int) -> dict[str, Any]:
    """Time a kernel of `roofline_kernel` and measure its energy. watts: the power limit; 0 leaves the card's own."""
    _, dtype, _ = formulas.parse(kernel)
    formulas.require_precision(bench, dtype)
    from hpml_plugins.plugins.roofline.steps import checked_kernel

    step = checked_kernel(bench, kernel)
    flop, nbytes = step.estimate()
    bench.work(flop=flop, bytes=nbytes, dtype=dtype)
    with bench.power_limit(watts):
        return {"time": bench.time(step.run), "energy": bench.energy(step.run)}


POWER = Benchmark(
    "roof_power",
    measure,
    [
        Metric("time", "s", "lower", "of one call"),
        Metric("rate", "FLOP/s", "higher", "FLOP by formula over time"),
        Metric("energy", "J", "lower", "of one call, above that of the idle card"),
    ],
    # No limit is ever set unless an operator adds one: `grid: {roof_power: {watts: [0, 400, 550]}}` in registry.yaml.
    grid={"kernel": ["triad", "matmul_bfloat16_8192"], "watts": [0]},
    requires=Requires(gpus=1, modules=("torch",)),
    timeout=120,
    description="Time and energy of a kernel under a power limit: the card's own, or others that an operator adds.",
)
