"""The benchmark `flops`: one input through a model, counted, not timed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hpml_plugins import Bench, Benchmark, Metric, Requires
from hpml_plugins.plugins.flops.classifiers import CLASSIFIERS

if TYPE_CHECKING:
    from hpml_plugins import ModelCount, Work

#: Share by which a count may differ from torchvision's before the record says so.
AGREES = 0.01
#: torchvision publishes multiply-adds in G with three decimals: shufflenet_v2_x0_5's 40.5 M are "0.04".
ROUNDED = 1e6


def measure(bench: Bench, *, model: str) -> dict[str, float]:
    """Count one forward pass of one input through `model`, in eval mode.

    model: a torchvision classifier or `module:factory`, and `@3x224x224` or `@int64:128` for the shape of one input.
    multiply_adds: of convolutions, linear layers and matrix products (`MULTIPLY_ADD` of
    `hpml_plugins.workloads.complexity.tracing`), where fvcore counts one multiply-add as 1; biases are not
    counted.  flops: 2 × multiply_adds.  activations: elements of the results that new memory holds, views and in-place
    results left out.  bytes: of every tensor, weights included, that an operator
    reads or writes, each once an operator, as if nothing were fused or cached.  VGG19: 19.632 G multiply-adds, 99.37 %
    of them in convolutions.
    Raises HpmlError for an unknown model, a factory that fails and a model that cannot be traced.
    """
    from hpml_plugins import count_model
    from hpml_plugins.plugins.flops import series

    count = count_model(model)
    bench.check(count.total.multiply_adds > 0, "no multiply-add was counted")
    bench.check(not count.has_negative, "an operation has a negative count")
    bench.check(
        sum(count.layer_parameters.values()) == count.parameters, "parameters of the layers differ from the total"
    )
    bench.check(count.total.flops == count.torch_flops, "fvcore's count differs from torch's own flop_counter")

    for name, columns in (
        ("layers", series.layer_columns(count.layers, count.layer_types, count.layer_parameters)),
        ("operators", series.operator_columns(count.operators)),
    ):
        bench.series(name, columns, series.units(columns))
    say_what_is_left_out(bench, count.operators)
    hold_against_torchvision(bench, count)
    convolutions = count.operators["conv"].multiply_adds if "conv" in count.operators else 0
    return {
        "multiply_adds": count.total.multiply_adds,
        "flops": count.total.flops,
        "parameters": count.parameters,
        "activations": count.total.activations,
        "activation_bytes": count.total.activation_bytes,
        "bytes": count.total.bytes,
        "convolution_share": convolutions / count.total.multiply_adds,
    }


def say_what_is_left_out(bench: Bench, operators: Mapping[str, Work]) -> None:
    """Name what is not in the numbers: what fvcore counts otherwise than in multiply-adds, and what it does not."""
    from hpml_plugins.plugins.flops import series

    if apart := {name: row.apart for name, row in operators.items() if row.apart}:
        bench.warn(f"left out, not multiply-adds (fvcore's counts): {series.formatted(apart)}")
    if uncounted := {name: row.calls for name, row in operators.items() if not row.counted}:
        bench.warn(f"not counted: {series.formatted(uncounted, '×')}")


def hold_against_torchvision(bench: Bench, count: ModelCount) -> None:
    """Warn where torchvision publishes another number of multiply-adds for this model and size of image."""
    published, counted = count.published_multiply_adds, count.total.multiply_adds
    if published and abs(counted - published) > max(AGREES * published, ROUNDED / 2):
        share = published / counted
        bench.warn(f"torchvision publishes {published / 1e9:.3f} G multiply-adds, {share:.4f} of this count")


FLOPS = Benchmark(
    "flops",
    measure,
    metrics=[
        Metric("multiply_adds", "MAC", None, "of convolutions, linear layers and matrix products, one input"),
        Metric("flops", "FLOP", None, "2 × multiply_adds, one input"),
        Metric("parameters", "1", None, "without auxiliary classifiers"),
        Metric("activations", "1", None, "elements of all results that new memory holds, one input"),
        Metric("activation_bytes", "B", None, "of the activations"),
        Metric("bytes", "B", None, "read and written by all operators, nothing fused or cached"),
        Metric("convolution_share", "1", None, "of the multiply-adds"),
    ],
    grid={"model": CLASSIFIERS},
    requires=Requires(modules=("torch", "torchvision", "fvcore")),
    version="2",
    timeout=120,
    description="Multiply-adds, FLOP, parameters, activations and bytes of one input through a model, by fvcore.",
    rounds=1,
)
