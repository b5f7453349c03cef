"""The benchmark `flops`: the operations of one input through a model, counted, not timed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hpml_plugins import Bench, Benchmark, Metric, Requires

if TYPE_CHECKING:
    from hpml_plugins import ModelCount, Work

#: Relative difference from torchvision's count above which there is a warning.
AGREES = 0.01
#: torchvision publishes multiply-adds in G with three decimals: shufflenet_v2_x0_5's 40.5 M are
#: "0.04".
ROUNDED = 1e6
#: Operators that are convolutions.
CONVOLUTIONS = ("conv", "conv_tbc", "torchvision::deform_conv2d")
#: The units of the series' numeric columns.
UNITS = {"multiply_adds": "MAC", "flops": "FLOP", "activation_bytes": "B", "bytes": "B"}
UNITS |= dict.fromkeys(("calls", "parameters", "activations", "apart"), "1")


def measure(bench: Bench, *, model: str) -> dict[str, float]:
    """Count one forward pass of one input through `model`, in eval mode: see docs/flops.md.

    model: a torchvision classifier or `module:factory`, and `@3x224x224` or `@int64:128` for the
    shape of one input. Raises HpmlError for an unknown model, a factory that fails, a model that
    cannot be traced, and one with an operator that may multiply and has no formula.
    """
    from hpml_plugins import count_model

    count = count_model(model)
    bench.check(count.total.multiply_adds > 0, "no multiply-add was counted")
    bench.check(not count.has_negative, "an operation has a negative count")
    bench.check(
        sum(count.layer_parameters.values()) == count.parameters,
        "parameters of the layers differ from the total",
    )
    bench.check(
        count.total.flops == count.torch_flops,
        "the count by operator differs from torch's own flop_counter",
    )
    attach_series(bench, count)
    warn_of_operators_left_out(bench, count.operators)
    published, counted = count.published_multiply_adds, count.total.multiply_adds
    if published and abs(counted - published) > max(AGREES * published, ROUNDED / 2):
        share = published / counted
        bench.warn(
            f"torchvision publishes {published / 1e9:.3f} G multiply-adds, {share:.4f} of this"
            " count"
        )
    convolutions = sum(
        work.multiply_adds for name, work in count.operators.items() if name in CONVOLUTIONS
    )
    return {
        **sums(count.total),
        "parameters": count.parameters,
        "convolution_share": convolutions / counted,
    }


def sums(work: Work) -> dict[str, int]:
    """The numbers that the metrics and both series have."""
    return {
        name: getattr(work, name)
        for name in ("multiply_adds", "flops", "activations", "activation_bytes", "bytes")
    }


def attach_series(bench: Bench, count: ModelCount) -> None:
    """The series `layers` (modules with their own operations on data, or parameters) and
    `operators`."""
    layers = [
        {
            "layer": name,
            "type": count.layer_types[name],
            **sums(work),
            "parameters": count.layer_parameters[name],
        }
        for name, work in count.layers.items()
        if work.multiply_adds or work.bytes or count.layer_parameters[name]
    ]
    operators = [
        {
            "operator": name,
            "counted": how_counted(work),
            "calls": work.calls,
            **sums(work),
            "apart": work.apart,
        }
        for name, work in count.operators.items()
        if work.bytes or not work.counted
    ]
    for series, rows in (("layers", layers), ("operators", operators)):
        columns: dict[str, list[Any]] = {name: [row[name] for row in rows] for name in rows[0]}
        bench.series(series, columns, {name: UNITS[name] for name in columns if name in UNITS})


def how_counted(work: Work) -> str:
    """ "multiply-adds"; "apart", by fvcore in other units; "none", nothing to count; "no", not
    counted."""
    if not work.counted:
        return "no"
    return "multiply-adds" if work.multiply_adds else "apart" if work.apart else "none"


def warn_of_operators_left_out(bench: Bench, operators: Mapping[str, Work]) -> None:
    """Warn about the operators that fvcore does not count in multiply-adds, and those that it does
    not count at all."""
    ordered = sorted(operators.items())
    if apart := ", ".join(f"{name} {work.apart}" for name, work in ordered if work.apart):
        bench.warn(f"not counted as multiply-adds: {apart}")
    if uncounted := ", ".join(
        f"{name} ×{work.calls}" for name, work in ordered if not work.counted
    ):
        bench.warn(f"not counted: {uncounted}")


#: torchvision's classifiers, all of 0.26 to 0.29; the grid must be the same on every node, without
#: importing it.
CLASSIFIERS = """
    alexnet convnext_base convnext_large convnext_small convnext_tiny densenet121 densenet161 densenet169
    densenet201 efficientnet_b0 efficientnet_b1 efficientnet_b2 efficientnet_b3 efficientnet_b4 efficientnet_b5
    efficientnet_b6 efficientnet_b7 efficientnet_v2_l efficientnet_v2_m efficientnet_v2_s googlenet inception_v3
    maxvit_t mnasnet0_5 mnasnet0_75 mnasnet1_0 mnasnet1_3 mobilenet_v2 mobilenet_v3_large mobilenet_v3_small
    regnet_x_16gf regnet_x_1_6gf regnet_x_32gf regnet_x_3_2gf regnet_x_400mf regnet_x_800mf regnet_x_8gf
    regnet_y_128gf regnet_y_16gf regnet_y_1_6gf regnet_y_32gf regnet_y_3_2gf regnet_y_400mf regnet_y_800mf
    regnet_y_8gf resnet101 resnet152 resnet18 resnet34 resnet50 resnext101_32x8d resnext101_64x4d resnext50_32x4d
    shufflenet_v2_x0_5 shufflenet_v2_x1_0 shufflenet_v2_x1_5 shufflenet_v2_x2_0 squeezenet1_0 squeezenet1_1 swin_b
    swin_s swin_t swin_v2_b swin_v2_s swin_v2_t vgg11 vgg11_bn vgg13 vgg13_bn vgg16 vgg16_bn vgg19 vgg19_bn vit_b_16
    vit_b_32 vit_h_14 vit_l_16 vit_l_32 wide_resnet101_2 wide_resnet50_2
"""  # noqa: E501
FLOPS = Benchmark(
    "flops",
    measure,
    metrics=[
        Metric(
            "multiply_adds",
            "MAC",
            None,
            "of convolutions, linear layers and matrix products, one input",
        ),
        Metric("flops", "FLOP", None, "2 × multiply_adds, one input"),
        Metric("parameters", "1", None, "without auxiliary classifiers"),
        Metric(
            "activations", "1", None, "elements of all results that new memory holds, one input"
        ),
        Metric("activation_bytes", "B", None, "of the activations"),
        Metric("bytes", "B", None, "read and written by all operators, nothing fused or cached"),
        Metric("convolution_share", "1", None, "of the multiply-adds"),
    ],
    grid={"model": CLASSIFIERS.split()},
    requires=Requires(modules=("torch", "torchvision", "fvcore")),
    version="2",
    timeout=120,
    description=(
        "Multiply-adds, FLOP, parameters, activations and bytes of one input through a model, by"
        " fvcore."
    ),
    rounds=1,
)
