"""The benchmark `kernels_experts`: a layer of a mixture of experts, and the grouped product in
it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hpml_plugins import Bench, Benchmark, HpmlError, Metric, Requires
from hpml_plugins.plugins.kernels import formulas
from hpml_plugins.plugins.kernels.models import model
from hpml_plugins.plugins.kernels.variants import Step, relative_error, speedup, survey, trial

LOADS = ("balanced", "skewed")
#: Relative error against float64 of one product, and of the layer with three products and roundings
#: between them.
TOLERANCE = {"cuda": (1e-2, 2e-2), "cpu": (1e-5, 1e-5)}
#: Rows and columns of the product that are checked.
CHECKED = 256


def measure(bench: Bench, *, of: str, tokens: int, load: str) -> dict[str, Any]:
    """Time the product out of the experts by the fastest way, and the layer's stages.

    of: a model with experts.  load: the distribution of tokens, see `formulas.loads`.
    """
    import torch

    from hpml_plugins.plugins.kernels import expert_layer

    shape = model(of)
    if load not in LOADS or not shape.experts:
        raise HpmlError(
            f"load={load!r} of {of!r}: use one of {', '.join(LOADS)}, and a model with experts"
        )
    counts = formulas.loads(load, tokens, shape.experts, shape.top)
    product_tolerance, layer_tolerance = TOLERANCE[bench.device]
    layer, x = expert_layer.build(shape, counts, tokens, bench.device, bench.seed)
    routing = layer.route(x)
    ends = expert_layer.expected_ends(counts)
    bench.check(
        routing.ends.tolist() == ends, "the router does not send tokens to experts as planned"
    )

    rows = sum(counts)
    generator = torch.Generator(bench.device).manual_seed(bench.seed + 1)
    inner = torch.randn(rows, shape.intermediate, generator=generator, device=bench.device).to(
        x.dtype
    )
    out = torch.empty(rows, shape.hidden, dtype=x.dtype, device=bench.device)
    used = sum(count > 0 for count in counts)
    flop = formulas.gemm_flop(rows, shape.hidden, shape.intermediate)
    numbers = rows * (shape.hidden + shape.intermediate) + used * shape.hidden * shape.intermediate
    bench.work(flop=flop, bytes=numbers * x.element_size(), dtype=x.dtype)

    def grouped() -> Step:
        return lambda: expert_layer.grouped(inner, layer.down, routing.ends)

    def looped() -> Step:
        return lambda: expert_layer.looped(inner, layer.down, counts, out)

    def error(result: Any) -> float:
        """The relative error of some rows of the first and of the last expert that has any."""
        last = max(number for number, count in enumerate(counts) if count)
        checked = [
            (0, slice(0, min(CHECKED, counts[0]))),
            (last, slice(rows - min(CHECKED, counts[last]), rows)),
        ]
        return max(
            relative_error(
                result[some][:, :CHECKED],
                inner[some].double() @ layer.down[expert, :CHECKED].double().T,
            )
            for expert, some in checked
        )

    builders = {"loop": looped, "grouped": grouped}
    found = survey(bench, builders, error, product_tolerance, always=tuple(builders))
    bench.progress("timing", 0.4)
    time = bench.time(found.steps[found.fastest]).note(way=found.fastest)
    times: dict[str, Any] = {"time": time, "error": found.errors[found.fastest]}
    times |= dict.fromkeys(
        ("speedup", "layer_time", "routing_time", "permutation_time", "combination_time")
    )
    if "grouped" not in found.steps:
        return times
    times |= speedup(bench, found.steps["loop"], {"speedup": found.steps["grouped"]})
    bench.progress("the layer and its stages", 0.8)
    result = bench.result(layer.forward(x))
    layer_error = max(
        relative_error(result[token], layer.exact(x, token))
        for token in (0, tokens // 2, tokens - 1)
    )
    bench.check(layer_error <= layer_tolerance, "the layer's result differs from float64")
    stages: dict[str, Step] = {
        "layer_time": lambda: layer.forward(x),
        "routing_time": lambda: layer.route(x),
        "permutation_time": lambda: layer.permute(x, routing),
        "combination_time": lambda: layer.combine(out, routing),
    }
    return times | {name: trial(bench, step) for name, step in stages.items()}


EXPERTS = Benchmark(
    "kernels_experts",
    measure,
    metrics=(
        Metric("time", "s", "lower", "of the product out of all experts, by the fastest way"),
        Metric(
            "rate",
            "FLOP/s",
            "higher",
            "2 FLOP for each number of a row and of a weight that meet, over time",
        ),
        Metric(
            "bandwidth",
            "B/s",
            "higher",
            "rows, results and the weights of experts that have rows, over time",
        ),
        Metric(
            "error", "1", "lower", "of the product against float64, relative, 2-norm", (0, None)
        ),
        Metric(
            "speedup", "1", "higher", "time of a loop of products over that of torch._grouped_mm"
        ),
        Metric(
            "layer_time",
            "s",
            "lower",
            "of the whole layer, short timing: routing, products, combination",
        ),
        Metric(
            "routing_time",
            "s",
            "lower",
            "of choosing experts and sorting the choices, short timing",
        ),
        Metric(
            "permutation_time",
            "s",
            "lower",
            "of copying tokens into the order of experts, short timing",
        ),
        Metric("combination_time", "s", "lower", "of adding up each token's outputs, short timing"),
    ),
    grid={"of": ("mixtral-8x7b",), "tokens": (64, 4096), "load": LOADS},
    requires=Requires(gpus=1, gpu_memory=24e9, modules=("torch",)),
    timeout=180,
    description=(
        "A layer of Mixtral's experts: grouped product, routing and permutation, under even and"
        " uneven loads."
    ),
    terms={
        "of": "the model, in models.yaml",
        "load=balanced": "every expert has as many tokens",
        "load=skewed": "the experts' tokens are as 1, 1/2, 1/3, … (Zipf's law)",
    },
)
EXPERTS_CPU = replace(
    EXPERTS,
    name="kernels_experts_cpu",
    grid={"of": ("granite-3.0-1b-a400m",), "tokens": (64,), "load": ("balanced",)},
    requires=Requires(modules=("torch",)),
    description="A layer of Granite's 32 experts on the CPU in float32.",
)
