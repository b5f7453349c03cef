"""The benchmark `paleo_measure`: the times of a forward pass and a training step, whole and layer
by layer."""

from __future__ import annotations

import statistics
from typing import Any

from hpml_plugins import Bench, Benchmark, HpmlError, Metric, Requires, Samples
from hpml_plugins.plugins.paleo.formulas import (
    LayerCost,
    find_precision,
    layer_costs,
    published_peak,
)
from hpml_plugins.plugins.paleo.predict import MODELS

#: s of sampling a whole pass.
BUDGET = 0.3


def measure(bench: Bench, *, model: str, dtype: str, batch: int) -> dict[str, Any]:
    """Time a forward pass of `batch` pictures whole and by layer, and a training step whole.

    model: as for `hpml_plugins.count_model`; takes pictures and gives one row of scores each.
    dtype: of all tensors; "float32" forbids TF32.  Raises HpmlError for others, and for a model
    that cannot be traced.
    """
    from hpml_plugins import count_model

    if batch < 1:
        raise HpmlError(f"batch is {batch}; use 1 or more")
    capability = bench.node.gpus[0].capability if bench.gpus and bench.node.gpus else ""
    if reason := why_not(dtype, bench.device, capability):
        bench.skip(reason)
    if bench.device == "cpu" and batch > 1:
        bench.skip(f"a batch of {batch} is measured on GPUs only")
    bench.progress("counting", 0.0)
    costs = layer_costs(count_model(model), batch, dtype)

    import torch

    from hpml_plugins.plugins.paleo.network import (
        Network,
        relative_error,
        time_alone,
        time_synchronised,
    )

    if bench.device == "cpu":
        # small layers on many threads would measure the threads' waiting; and sums are comparable
        # on one core
        torch.set_num_threads(1)
    network = Network(model, dtype, batch, bench.device, bench.seed)
    error = network.error()
    tolerance = find_precision(dtype).tolerance
    bench.check(
        error < tolerance, f"scores differ from float64's on the CPU by {error:.1e} of their length"
    )

    bench.progress("timing the whole", 0.2)
    forward = bench.time(network.forward, budget=BUDGET, name="forward")
    visible = forward
    if bench.device == "cuda":
        visible = bench.time(
            network.forward, launch="visible", budget=BUDGET, name="forward_visible"
        )

    graph = network.graph()
    layers, scores = time_alone(bench, graph, network.images)
    agree = relative_error(scores, network.forward()) <= tolerance
    bench.check(agree, "layer by layer the scores differ from the whole's")
    passes = time_synchronised(graph, network.images, layers)

    network.network.train()
    training = bench.time(network.train, budget=BUDGET, name="training")
    bench.check(network.gradients_finite(), "the loss or a gradient is not finite")

    warn_of_unknown_peak(bench, dtype)
    attach_layers(bench, costs, layers, passes)
    hidden = sum(layer.seconds for layer in layers)
    synchronised = Samples.of([sum(taken) for taken in passes], "s")
    return {
        "forward": forward,
        "forward_visible": visible,
        "layers_hidden": Samples.of([hidden], "s"),
        "layers_synchronised": synchronised,
        "hidden_ratio": hidden / forward.median,
        "synchronised_ratio": synchronised.median / forward.median,
        "training": training,
        "rate": sum(cost.flop for cost in costs) / forward,
        "training_rate": sum(cost.training_flop for cost in costs) / training,
    }


def why_not(dtype: str, device: str, capability: str) -> str:
    """Why a precision cannot be measured there; empty if it can.  capability: "9.0", empty if
    unknown."""
    least = find_precision(dtype).capability
    if device == "cpu" and dtype not in ("float32", "float64"):
        return f"{dtype} is measured on GPUs only"
    if device != "cpu" and capability and int(capability.partition(".")[0]) < least:
        return f"{dtype} needs compute capability {least}.0, this card has {capability}"
    return ""


def warn_of_unknown_peak(bench: Bench, dtype: str) -> None:
    """Warn if there is no published peak for the measured rate."""
    if bench.device == "cpu":
        bench.warn("no platform percent of peak: no published peak of a CPU")
    elif not (gpu := bench.peaks):
        bench.warn(f"no platform percent of peak: unknown card {bench.node.gpu}: no published peak")
    elif not published_peak(gpu, dtype):
        bench.warn(f"no platform percent of peak: {gpu.name} has no published {dtype} peak")


def attach_layers(
    bench: Bench, costs: list[LayerCost], layers: Any, passes: list[list[float]]
) -> None:
    """The series `layers`, one row per path: FLOP and bytes by the count, seconds alone and between
    synchronisations."""
    synchronised = [statistics.median(each) for each in zip(*passes, strict=True)]
    rows = []
    for path in dict.fromkeys(layer.path for layer in layers):
        calls = [
            (layer, seconds)
            for layer, seconds in zip(layers, synchronised, strict=True)
            if layer.path == path
        ]
        leaf = all(layer.leaf for layer, _ in calls)
        # a leaf of torch.fx may contain modules (attention has its projection)
        inside = [
            cost
            for cost in costs
            if cost.layer == path or (leaf and cost.layer.startswith(f"{path}."))
        ]
        rows.append(
            {
                "layer": path,
                "type": next((cost.type for cost in inside if cost.layer == path), ""),
                "calls": len(calls),
                "flops": sum(cost.flop for cost in inside),
                "bytes": sum(cost.nbytes for cost in inside),
                "alone": sum(layer.seconds for layer, _ in calls),
                "synchronised": sum(seconds for _, seconds in calls),
            }
        )
    if (missing := sum(cost.flop for cost in costs) - sum(row["flops"] for row in rows)) > 0:
        bench.warn(f"{missing / 1e9:.3g} GFLOP were counted in layers that were not timed alone")
    units = {"calls": "1", "flops": "FLOP", "bytes": "B", "alone": "s", "synchronised": "s"}
    bench.series(
        "layers", {name: [row[name] for row in rows] for name in ("layer", "type", *units)}, units
    )


MEASURE = Benchmark(
    "paleo_measure",
    measure,
    metrics=[
        Metric(
            "forward", "s", "lower", "of the whole batch; on a GPU its own time, launches hidden"
        ),
        Metric(
            "forward_visible",
            "s",
            "lower",
            "as a loop of passes takes it: launches show where they are slower",
        ),
        Metric("layers_hidden", "s", "lower", "sum over layers, each timed alone, launches hidden"),
        Metric(
            "layers_synchronised",
            "s",
            "lower",
            "sum over layers in a pass with a synchronisation after each",
        ),
        Metric("hidden_ratio", "1", None, "layers_hidden / forward"),
        Metric(
            "synchronised_ratio",
            "1",
            "lower",
            "layers_synchronised / forward: what measuring layers adds",
        ),
        Metric(
            "training", "s", "lower", "forward, loss and backward of the whole batch; no optimiser"
        ),
        Metric("rate", "FLOP/s", "higher", "counted FLOP / forward"),
        Metric(
            "training_rate", "FLOP/s", "higher", "counted FLOP of forward and backward / training"
        ),
    ],
    grid={"model": MODELS, "dtype": ("float32", "tf32", "float64"), "batch": (1, 32)},
    requires=Requires(gpus=1, cpu_fallback=True, modules=("torch", "torchvision", "fvcore")),
    timeout=180,
    description=(
        "A forward pass and a training step, whole and layer by layer, against their FLOP: percent"
        " of peak."
    ),
)
