"""The benchmark `flops`: one image through a torchvision classifier, counted, not timed."""

from __future__ import annotations

from typing import Any

from hpml_plugins import Bench, Benchmark, Metric, Requires
from hpml_plugins.plugins.flops.counting import Count, count
from hpml_plugins.plugins.flops.formulas import flop
from hpml_plugins.plugins.flops.models import build, image_size, require_classifier

#: fvcore reads einsum's count from text that NumPy rounds to four digits.
EINSUM_ROUNDING = 1e-3


def measure(bench: Bench, *, model: str) -> dict[str, float]:
    """Count one forward pass of one image through `model`, in eval mode.

    multiply_adds: of convolutions, linear layers and matrix products (`operators.MULTIPLY_ADD`), where fvcore counts
    one multiply-add as 1; biases are not counted.  flops: 2 × multiply_adds.  What fvcore counts in other ways
    (batch_norm 2 an element, adaptive pooling 1, layer_norm an estimate of 5) is kept out of both and named in a
    warning, as is each operator it does not count. VGG19: 19.632 G multiply-adds, 99.37 % of them in convolutions.
    Raises HpmlError where torchvision has no such classifier.
    """
    import torch

    require_classifier(model)
    network, size = build(model), image_size(model)
    image = torch.zeros(1, 3, size, size)
    counted = count(network, image)
    total = counted.multiply_adds
    parameters = sum(parameter.numel() for parameter in network.parameters())
    layers = own_counts(network, counted)

    bench.check(all(row[1] >= 0 for row in layers), "a layer has a negative count")
    bench.check(sum(row[1] for row in layers) == total, "multiply-adds of the layers differ from the total")
    bench.check(sum(row[2] for row in layers) == parameters, "parameters of the layers differ from the total")
    slack = EINSUM_ROUNDING * counted.by_operator.get("einsum", 0)
    other = counted_by_torch(network, image)
    bench.check(abs(flop(total) - other) <= flop(1) * slack, "fvcore's count differs from torch's own flop_counter")

    say_what_is_left_out(bench, counted)
    columns = dict(zip(("index", "multiply_adds", "parameters"), zip(*layers, strict=True), strict=True))
    bench.series("layers", columns, {"index": "1", "multiply_adds": "MAC", "parameters": "1"})
    return {
        "multiply_adds": total,
        "flops": flop(total),
        "parameters": parameters,
        "convolution_share": counted.by_operator.get("conv", 0) / total,
    }


def own_counts(network: Any, counted: Count) -> list[tuple[int, int, int]]:
    """(index, multiply-adds, parameters) of each module that has any of its own, its children's left out.

    index: place in `list(network.named_modules())`, 0 for the whole; so the layer's name can be found again.
    """
    rows = []
    for index, (name, module) in enumerate(network.named_modules()):
        prefix = f"{name}." if name else ""
        children = sum(counted.by_module.get(prefix + child, 0) for child, _ in module.named_children())
        own = counted.by_module.get(name, 0) - children
        parameters = sum(parameter.numel() for parameter in module.parameters(recurse=False))
        if own or parameters:
            rows.append((index, own, parameters))
    return rows


def counted_by_torch(network: Any, image: Any) -> int:
    """FLOP of the same pass by torch.utils.flop_counter, 2 a multiply-add. Moves the network to "meta": no work."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network.to("meta")(image.to("meta"))
    return int(counter.get_total_flops())


def say_what_is_left_out(bench: Bench, counted: Count) -> None:
    """Name what is not in the numbers: what fvcore counts otherwise than in multiply-adds, and what it does not."""
    if counted.apart:
        spelled = ", ".join(f"{name} {number}" for name, number in sorted(counted.apart.items()))
        bench.warn(f"left out, not multiply-adds (fvcore's counts): {spelled}")
    if counted.uncounted:
        spelled = ", ".join(f"{name} ×{calls}" for name, calls in sorted(counted.uncounted.items()))
        bench.warn(f"not counted: {spelled}")


FLOPS = Benchmark(
    "flops",
    measure,
    metrics=[
        Metric("multiply_adds", "MAC", "lower", "of convolutions, linear layers and matrix products, one image"),
        Metric("flops", "FLOP", "lower", "2 × multiply_adds, one image"),
        Metric("parameters", "1", "lower", "without auxiliary classifiers"),
        Metric("convolution_share", "1", "lower", "of the multiply-adds; descriptive: neither direction is better"),
    ],
    grid={"model": ["alexnet", "vgg16", "vgg19", "googlenet", "resnet18", "resnet50"]},
    requires=Requires(modules=("torch", "torchvision", "fvcore")),
    version="1",
    timeout=120,
    description="Multiply-adds, FLOP and parameters of torchvision classifiers on one image, counted by fvcore.",
)
