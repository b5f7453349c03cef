"""The benchmarks `layers_cuda` and `layers_cpu`: one layer alone, its time, memory and, on a GPU, power."""

from __future__ import annotations

from typing import Any

from hpml_plugins import Bench, Benchmark, Metric, Requires
from hpml_plugins.plugins.layers.peak import peak_memory
from hpml_plugins.plugins.layers.power import attach_power
from hpml_plugins.plugins.layers.shapes import LAYERS, build, flop, input_shape, largest_bytes, tolerance

METRICS = (
    Metric("time", "s", "lower", "of one pass over the batch"),
    Metric("rate", "1/s", "higher", "rows of the batch over the time"),
    Metric("memory", "B", "lower", "most that a pass has allocated at once, beyond input and weights"),
)
#: How often the largest tensor, and copies of it, are held at once, with room to spare.
ROOM = 6
#: s of sampling; there are many points.
BUDGET = 1.0
MODES = ("forward", "training")


def measure(bench: Bench, *, layer: str, mode: str, batch: int) -> dict[str, Any]:
    """Time one layer over `batch` rows in single precision, hot.

    layer: "relu" (in place), "maxpool" (2, 2), "conv" (3 to 128 channels, 3 × 3) on (batch, 3, 224, 224), or "linear"
    (25088 to 4096).  mode: "forward", without gradients, or "training", forward and backward with the gradients of
    input and weights. On a GPU the series `power` has the card's average power over the repeated step.
    Raises HpmlError for another layer or mode.
    """
    import torch

    from hpml_plugins.plugins.layers.steps import error_against_float64, step_of

    if bench.device == "cpu" and (needed := ROOM * largest_bytes(layer, batch)) > bench.node.ram:
        bench.skip(f"needs {needed / 2**30:.0f} GiB of memory, this node has {bench.node.ram / 2**30:.0f}")
    torch.manual_seed(bench.seed)
    module = build(layer, bench.device)
    values = torch.randn(input_shape(layer, batch), device=bench.device)
    bench.progress("checking against float64", 0.0)
    error = error_against_float64(module, values)
    bench.check(error <= tolerance(layer, bench.device), "output or gradients differ from float64")

    step = step_of(module, values, mode)
    memory = peak_memory(step, bench.device)
    bench.progress("timing", 0.3)
    time = bench.time(step, budget=BUDGET)
    if work := flop(layer, batch, mode):
        bench.series("work", {"flop": [work], "rate": [work / time.median]}, {"flop": "FLOP", "rate": "FLOP/s"})
    if bench.device == "cuda":
        bench.progress("power", 0.8)
        attach_power(bench, step, time.median)
    return {"time": time, "rate": batch / time, "memory": memory}


LAYERS_CUDA = Benchmark(
    "layers_cuda",
    measure,
    metrics=METRICS,
    grid={"layer": LAYERS, "mode": MODES, "batch": (256,)},
    requires=Requires(gpus=1, gpu_memory=24e9, modules=("torch", "pynvml")),
    version="1",
    timeout=120,
    description="ReLU, max pooling, convolution and linear layer alone, on one GPU: time, memory and power.",
)
LAYERS_CPU = Benchmark(
    "layers_cpu",
    measure,
    metrics=METRICS,
    grid={"layer": LAYERS, "mode": MODES, "batch": (8, 256)},
    requires=Requires(modules=("torch",)),
    version="1",
    timeout=300,
    description="ReLU, max pooling, convolution and linear layer alone, on the CPU: time and memory.",
)
