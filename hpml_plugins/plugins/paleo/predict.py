"""The benchmark `paleo_predict`: runs only the count; the times are predictions for published
cards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hpml_plugins import Bench, Benchmark, Metric, Requires, Table, gpu_types
from hpml_plugins.plugins.paleo.formulas import (
    default_ppp,
    find_precision,
    layer_costs,
    layer_time,
    predict,
)

#: The GPU type of the metrics: one CUDA device of it, half of the board.
REFERENCE = "Tesla K80"
MODELS = ("alexnet", "vgg16", "googlenet", "resnet50")


def measure(bench: Bench, *, model: str, dtype: str) -> dict[str, float]:
    """Predict the time of one picture's forward pass and training step for every GPU type with a
    published peak.

    model: as for `hpml_plugins.count_model`.  Raises HpmlError for an unknown model or precision.
    """
    from hpml_plugins import count_model

    find_precision(dtype)
    ppp = default_ppp("compute")
    count = count_model(model)
    costs = layer_costs(count, 1, dtype)
    bench.check(
        sum(cost.flop for cost in costs) == count.total.flops,
        "FLOP of the layers differ from the model's",
    )
    bench.check(
        count.total.flops == count.torch_flops,
        "fvcore's count differs from torch's own flop_counter",
    )

    found = {gpu.name: predict(costs, gpu, dtype, ppp) for gpu in gpu_types()}
    if lacking := [name for name, prediction in found.items() if not prediction]:
        bench.warn(f"left out, no published {dtype} peak: {', '.join(lacking)}")
    if not (reference := found.get(REFERENCE)):
        bench.skip(f"{REFERENCE}, of which the metrics are, has no published {dtype} peak")
    columns: Mapping[str, Any] = Table.of(filter(None, found.values())).columns
    units = {"peak": "FLOP/s", "bandwidth": "B/s", "at_peak": "s", "forward": "s", "training": "s"}
    bench.series("gpus", columns, units)
    k80 = [
        layer_time(cost.flop, cost.nbytes, reference["peak"], reference["bandwidth"], ppp)
        for cost in costs
    ]
    names = ("layer", "type", "flops", "bytes", "training_flops", "training_bytes")
    bench.series(
        "layers",
        {**dict(zip(names, zip(*costs, strict=True), strict=True)), "k80_forward": k80},
        {
            "flops": "FLOP",
            "bytes": "B",
            "training_flops": "FLOP",
            "training_bytes": "B",
            "k80_forward": "s",
        },
    )
    return {f"k80_{name}": reference[name] for name in ("at_peak", "forward", "training")}


PREDICT = Benchmark(
    "paleo_predict",
    measure,
    metrics=[
        Metric(
            "k80_at_peak",
            "s",
            None,
            "forward, one picture: FLOP over the published peak of half a K80",
        ),
        Metric(
            "k80_forward", "s", None, "forward, one picture, by PALEO with its own percent of peak"
        ),
        Metric("k80_training", "s", None, "forward and backward, one picture, by PALEO"),
    ],
    grid={"model": MODELS, "dtype": ("float32", "float64")},
    requires=Requires(modules=("torch", "torchvision", "fvcore")),
    timeout=120,
    description=(
        "PALEO: predicted time of one picture on every GPU type with published peaks; the metrics"
        " are a K80's."
    ),
    rounds=1,
)
