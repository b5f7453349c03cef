"""The benchmark `quantization_steps`: accuracy after each step of quantizing a trained network, for every width."""

from __future__ import annotations

import itertools
from typing import Any

from hpml_plugins import Bench, Benchmark, Metric, Requires

BITS = (8, 6, 4, 2, 1)
#: Integer-only predictions and simulated ones may differ where two logits are a rounding apart, as a share of images.
MAY_DIFFER = 0.02
#: Images for which the int8 product is held against 64-bit integers.
EXACT_IMAGES = 32
#: What the metrics are of, over all test images; the series `accuracy` has all, on a CPU over some of them.
CHOSEN = (8, "channel", "minmax")
CPU_IMAGES = 2000


def measure(bench: Bench, *, data: str, calibration: int) -> dict[str, float]:
    """Train the simple network, quantize it, and say how many test images it still gets right.

    calibration: training images that the activations' ranges are taken from, classes balanced. The metrics are those
    of 8 bits, a scale a channel, ranges from smallest to largest; the series `accuracy` has 8, 6, 4, 2 and 1 bit, a
    scale a tensor and a channel, both kinds of range, after each step. Fails when a tensor of integer-only inference
    is not of integers, or its predictions are not those of the simulation.
    """
    import torch

    from hpml_plugins.plugins.quantization import histograms, quantized
    from hpml_plugins.plugins.quantization.affine import GRANULARITIES, RANGES
    from hpml_plugins.plugins.quantization.blocks import blocks_of, left_in_float
    from hpml_plugins.plugins.quantization.calibration import calibrate, remarks
    from hpml_plugins.plugins.quantization.network import accuracy, as_reals, train

    # The simulation is to differ by its grids alone: TF32 would round every operand once more.
    torch.backends.cudnn.allow_tf32 = False
    images = bench.data(data)
    trained = train(bench, images)
    blocks = blocks_of(trained.network)
    left = left_in_float(blocks)
    for name, why in left.items():
        bench.warn(f"{name} is left in floating point: {why}")
    chosen = images.train.take(calibration, bench.seed)
    seen = calibrate(blocks, as_reals(chosen.images.to(bench.device)))
    for remark in remarks(seen, chosen.labels, images.classes):
        bench.warn(remark)

    few = len(images.test) if bench.device == "cuda" else min(CPU_IMAGES, len(images.test))
    part = images.test.take(few, bench.seed)
    test, labels = as_reals(part.images.to(bench.device)), part.labels.to(bench.device)
    before = accuracy(trained.network, trained.test, trained.test_labels)
    metrics: dict[str, float] = {"float_accuracy": before, "epochs": trained.epochs}
    rows: list[tuple[int, str, str, str, float]] = [
        (32, "float32", "–", "float", accuracy(trained.network, test, labels))
    ]
    cases = list(itertools.product(BITS, GRANULARITIES, RANGES))
    networks = {}
    floating: dict[str, set[str]] = {}
    for number, (bits, granularity, kind) in enumerate(cases):
        bench.progress(f"{bits} bits, a scale a {granularity}, {kind}", 0.5 + 0.5 * number / len(cases))
        network = quantized.quantize(blocks, seen.profiles, bits=bits, granularity=granularity, kind=kind)
        networks[bits, granularity, kind] = network
        for step, predicted in _predictions(network, test, floating).items():
            rows.append((bits, granularity, kind, step, _share(predicted == labels)))
        if (bits, granularity, kind) == CHOSEN:
            all_of_it = _predictions(network, trained.test, floating)
            metrics |= {f"{step}_accuracy": _share(found == trained.test_labels) for step, found in all_of_it.items()}
            differing = bench.result(_share(all_of_it["integer"] != all_of_it["biases"]))
            bench.check(differing <= MAY_DIFFER, "integer-only predictions differ from the simulated ones")
            integers = quantized.to_integers(network, test[:EXACT_IMAGES])
            exact = quantized.infer(network, integers, quantized.exact_product)
            here = bench.result(quantized.infer(network, integers))
            bench.check(torch.equal(here, exact), "int8 products differ from those of 64-bit integers")
    if not left:
        bench.check(
            not floating, "integer-only inference has floating-point tensors" + (f": {floating}" if floating else "")
        )
    names = ("bits", "granularity", "range", "step", "accuracy")
    columns = {name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
    bench.series("accuracy", columns, {"bits": "1", "accuracy": "1"})
    of_width = {bits: networks[bits, *CHOSEN[1:]] for bits in BITS}
    histograms.attach(bench, of_width, seen.values)
    return {**metrics, "loss": before - metrics["integer_accuracy"]}


def _share(right: Any) -> float:
    return float(right.double().mean())


def _predictions(network: Any, images: Any, floating: dict[str, set[str]]) -> dict[str, Any]:
    """Step → the class of each image."""
    import torch

    from hpml_plugins.plugins.quantization.network import in_batches, threads_for
    from hpml_plugins.plugins.quantization.quantized import STEPS, simulate

    with threads_for(images):
        predicted = {
            step: torch.cat([simulate(network, part, step).argmax(1) for (part,) in in_batches(images)])
            for step in STEPS[:-1]
        }
        return {**predicted, "integer": _integer(network, images, floating)}


def _integer(network: Any, images: Any, floating: dict[str, set[str]]) -> Any:
    """Predictions by integers alone. floating: is told what operations had floating-point tensors."""
    import torch

    from hpml_plugins.plugins.quantization.integers_only import Tensors
    from hpml_plugins.plugins.quantization.network import in_batches
    from hpml_plugins.plugins.quantization.quantized import infer, to_integers

    predicted = []
    for (part,) in in_batches(images):
        integers = to_integers(network, part)
        with torch.no_grad(), Tensors() as tensors:
            predicted.append(infer(network, integers).argmax(1))
        floating |= tensors.floating
    return torch.cat(predicted)


STEPS = Benchmark(
    "quantization_steps",
    measure,
    metrics=[
        Metric("float_accuracy", "1", "higher", "of the trained network, float32"),
        Metric("weights_accuracy", "1", "higher", "weights of 8 bits"),
        Metric("activations_accuracy", "1", "higher", "and activations of 8 bits"),
        Metric("biases_accuracy", "1", "higher", "and biases of 32 bits"),
        Metric("integer_accuracy", "1", "higher", "all of it computed with integers alone"),
        Metric("loss", "1", "lower", "float_accuracy less integer_accuracy"),
        Metric("epochs", "1", None, "that the network was trained"),
    ],
    grid={"data": ("digits", "fashion-mnist", "cifar10", "cifar10-jpeg"), "calibration": (512,)},
    requires=Requires(gpus=1, cpu_fallback=True, data="data", modules=("torch",)),
    version="1",
    timeout=900,
    description="Accuracy of a small convolutional network after quantizing weights, activations, biases, all of it.",
    rounds=1,
)
