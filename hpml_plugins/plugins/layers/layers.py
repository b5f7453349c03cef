"""The benchmarks `layers_cuda` and `layers_cpu`: one layer alone, its time, memory and, on a GPU,
power."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hpml_plugins import Bench, Benchmark, Metric, Requires, Samples
from hpml_plugins.plugins.layers.shapes import FEATURES, IMAGE, LAYERS, MODES, OUTPUTS

#: The most copies of the largest tensor in memory at once, with a margin.
ROOM = 6
#: s of sampling; there are many points.
BUDGET = 1.0


def measure(bench: Bench, *, layer: str, mode: str, batch: int) -> dict[str, Any]:
    """Time one layer over `batch` rows in single precision, hot; on a GPU its energy too.

    layer: see `steps.build`.  mode: see `steps.step_of`.  Raises HpmlError for another layer or
    mode.
    """
    import torch

    from hpml_plugins.plugins.layers import steps

    if bench.device == "cpu" and (needed := ROOM * largest_bytes(layer, batch)) > bench.node.ram:
        bench.skip(
            f"needs {needed / 2**30:.0f} GiB of memory, this node has {bench.node.ram / 2**30:.0f}"
        )
    torch.manual_seed(bench.seed)
    module = steps.build(layer, bench.device)
    values = torch.randn(
        (batch, FEATURES) if layer == "linear" else (batch, *IMAGE), device=bench.device
    )
    bench.progress("checking against float64", 0.0)
    error = steps.error_against_float64(module, values)
    bench.check(
        error <= steps.tolerance(layer, bench.device), "output or gradients differ from float64"
    )

    step = steps.step_of(module, values, mode)
    memory = steps.peak_memory(step, bench.device)
    bench.progress("timing", 0.3)
    time = bench.time(step, budget=BUDGET)
    if work := flop(layer, batch, mode):
        bench.series(
            "work",
            {"flop": [work], "rate": [work / time.median]},
            {"flop": "FLOP", "rate": "FLOP/s"},
        )
        rounds_to_tf32 = (
            layer == "conv" and bench.device == "cuda" and torch.backends.cudnn.allow_tf32
        )
        bench.work(flop=work, dtype="tf32" if rounds_to_tf32 else "float32")
    return {
        "time": time,
        "rate": batch / time,
        "memory": memory,
        "energy": measure_energy(bench, step),
    }


def measure_energy(bench: Bench, step: Callable[[], object]) -> Samples | None:
    """Energy of a call on a GPU, and the series `power`: mean power and energy under that load,
    including the idle part."""
    if bench.device == "cpu":
        return None
    bench.progress("energy", 0.8)
    if energy := bench.energy(step):
        power, gross, calls = (float(energy.info[name]) for name in ("power", "gross", "calls"))
        columns = {
            "power": [power],
            "energy": [gross],
            "calls": [calls],
            "time": [calls * gross / power],
        }
        bench.series("power", columns, {"power": "W", "energy": "J", "calls": "1", "time": "s"})
    return energy


def flop(layer: str, batch: int, mode: str) -> int:
    """FLOP of a convolution or linear layer without bias, else 0; the backward pass is two products
    of that size."""
    multiply_adds = {"conv": 128 * 224 * 224 * 3 * 3**2, "linear": FEATURES * OUTPUTS}.get(layer, 0)
    return 2 * batch * multiply_adds * (3 if mode == "training" else 1)


def largest_bytes(layer: str, batch: int) -> int:
    """Bytes of the largest tensor: the convolution's output, the linear layer's weight or input, or
    the images."""
    if layer == "linear":
        return 4 * FEATURES * max(batch, OUTPUTS)
    return 4 * (128 if layer == "conv" else 3) * 224 * 224 * batch


LAYERS_CUDA = Benchmark(
    "layers_cuda",
    measure,
    metrics=(
        Metric("time", "s", "lower", "of one pass over the batch"),
        Metric("rate", "1/s", "higher", "rows of the batch over the time"),
        Metric(
            "memory",
            "B",
            "lower",
            "most that a pass has allocated at once, beyond input and weights",
        ),
        Metric("energy", "J", "lower", "of one pass, above that of the idle card"),
    ),
    grid={"layer": LAYERS, "mode": MODES, "batch": (256,)},
    requires=Requires(gpus=1, gpu_memory=24e9, modules=("torch",)),
    timeout=120,
    description=(
        "ReLU, max pooling, convolution and linear layer alone, on one GPU: time, memory and power."
    ),
)
LAYERS_CPU = replace(
    LAYERS_CUDA,
    name="layers_cpu",
    grid={"layer": LAYERS, "mode": MODES, "batch": (8, 256)},
    requires=Requires(modules=("torch",)),
    timeout=300,
    description=(
        "ReLU, max pooling, convolution and linear layer alone, on the CPU: time and memory."
    ),
)
