"""The benchmark `quantization_steps`: accuracy after each step of quantizing a trained network, for
every width."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from hpml_plugins import Bench, Benchmark, Metric, Requires

BITS = (8, 6, 4, 2, 1)
#: Integer-only predictions and simulated ones may differ where two logits are a rounding apart, as
#: a share of images.
MAY_DIFFER = 0.02
#: Images for which the int8 product is compared with 64-bit integers.
EXACT_IMAGES = 32
#: The configuration of the metrics, over all test images; the series `accuracy` has all
#: configurations, on a CPU for some of the images.
CHOSEN = (8, "channel", "minmax")
CPU_IMAGES = 2000
#: Bits of the histograms, and their bins and largest number of values per layer, evenly taken.
SHOWN, BINS, MOST_VALUES = (8, 4, 2), 40, 200_000


def measure(bench: Bench, *, data: str, calibration: int) -> dict[str, float]:
    """Train the simple network, quantize it, and measure its accuracy on the test images.

    calibration: training images that the activations' ranges are taken from, classes balanced. The
    metrics are those of CHOSEN; the series `accuracy` has all widths, granularities and ranges,
    after each step. Fails if a tensor of integer-only inference is not of integers, or its
    predictions differ from those of the simulation.
    """
    import torch

    from hpml_plugins.plugins.quantization import integers
    from hpml_plugins.plugins.quantization.networks import as_reals, logits, share, train_simple

    # The simulation must differ only by its grids: TF32 would round every operand once more.
    torch.backends.cudnn.allow_tf32 = False
    images = bench.data(data).to(bench.device)
    trained, epochs = train_simple(bench, images)
    blocks = integers.blocks_of(trained)
    calibrating = images.train.take(calibration, bench.seed)
    profiles = integers.calibrate(blocks, as_reals(calibrating.images))
    for remark in integers.remarks(profiles, calibrating.labels, images.classes):
        bench.warn(remark)

    part = images.test
    if bench.device == "cpu":
        part = part.take(min(CPU_IMAGES, len(part)), bench.seed)
    some, everything = as_reals(part.images), as_reals(images.test.images)
    before = share(logits(trained, everything).argmax(1) == images.test.labels)
    metrics: dict[str, float] = {"float_accuracy": before, "epochs": epochs}
    rows: list[tuple[Any, ...]] = [
        (32, "float32", "–", "float", share(logits(trained, some).argmax(1) == part.labels)),
    ]
    cases = list(itertools.product(BITS, integers.GRANULARITIES, integers.RANGES))
    networks = {}
    detector = integers.FloatDetector()
    for number, (bits, granularity, kind) in enumerate(cases):
        bench.progress(
            f"{bits} bits, one scale per {granularity}, {kind}", 0.3 + 0.7 * number / len(cases)
        )
        network = integers.quantize(blocks, profiles, bits=bits, granularity=granularity, kind=kind)
        networks[bits, granularity, kind] = network
        for step, predicted in _predictions(network, some, detector).items():
            rows.append((bits, granularity, kind, step, share(predicted == part.labels)))
        if (bits, granularity, kind) == CHOSEN:
            found = _predictions(network, everything, detector)
            metrics |= {
                f"{step}_accuracy": share(found[step] == images.test.labels) for step in found
            }
            differing = bench.result(share(found["integer"] != found["biases"]))
            bench.check(
                differing <= MAY_DIFFER, "integer-only predictions differ from the simulated ones"
            )
            few = integers.to_integers(network, everything[:EXACT_IMAGES])
            exact = integers.infer(network, few, integers.exact_product)
            here = bench.result(integers.infer(network, few))
            bench.check(
                torch.equal(here, exact), "int8 products differ from those of 64-bit integers"
            )
    spelled = f": {detector.floating}" if detector.floating else ""
    bench.check(
        not detector.floating, f"integer-only inference has floating-point tensors{spelled}"
    )
    _attach(bench, "accuracy", ("bits", "granularity", "range", "step", "accuracy"), rows)
    _attach_histograms(bench, [networks[bits, *CHOSEN[1:]] for bits in SHOWN], profiles)
    return {**metrics, "loss": before - metrics["integer_accuracy"]}


def _predictions(network: Any, images: Any, detector: Any) -> dict[str, Any]:
    """Step → the class of each image. detector: inspects the tensors of integer-only inference."""
    import torch

    from hpml_plugins.plugins.quantization.integers import STEPS, infer, simulate, to_integers
    from hpml_plugins.plugins.quantization.networks import in_batches, threads_for

    predicted: dict[str, list[Any]] = {step: [] for step in STEPS}
    with threads_for(images), torch.no_grad():
        for part in in_batches(images):
            for step in STEPS[:-1]:
                predicted[step].append(simulate(network, part, step).argmax(1))
            values = to_integers(network, part)
            with detector:
                predicted["integer"].append(infer(network, values).argmax(1))
    return {step: torch.cat(parts) for step, parts in predicted.items()}


def _attach_histograms(bench: Bench, networks: Sequence[Any], profiles: Mapping[str, Any]) -> None:
    """The series `ranges`, and `weights` and `activations`: shares of the values in equal bins,
    before and after.

    networks: for each of SHOWN.  profiles: of the activations while calibrating.
    """
    import torch

    from hpml_plugins.plugins.quantization.integers import INPUT, Profile

    weights: list[tuple[str, Any, list[Any]]] = []
    activations = [(INPUT, profiles[INPUT], [network[0].given for network in networks])]
    for same in zip(*networks, strict=True):  # one block at each width
        name, module = same[0].name, same[0].module
        if same[0].weight is not None:
            weights.append((name, Profile.of(module.weight), [each.weight for each in same]))
        if name in profiles:
            activations.append((name, profiles[name], [each.result for each in same]))
    ranges: list[tuple[Any, ...]] = []
    for kind, tensors in (("weights", weights), ("activations", activations)):
        bins: list[tuple[Any, ...]] = []
        for name, seen, grids in tensors:
            low, high = seen.range("sigma3")
            outside = float(((seen.values < low) | (seen.values > high)).double().mean())
            ranges.append((name, kind, seen.low, seen.high, seen.mean, seen.deviation, outside))
            low, high = (
                (seen.low, seen.high) if seen.low < seen.high else (seen.low - 0.5, seen.high + 0.5)
            )
            edges = torch.linspace(low, high, BINS + 1).tolist()
            after = (grid.rounded(seen.values) for grid in grids)
            shares = (bin_shares(values, low, high) for values in (seen.values, *after))
            bins += zip([name] * BINS, edges[:-1], edges[1:], *shares, strict=True)
        _attach(
            bench, kind, ("layer", "from", "to", "float", *(f"bits{bits}" for bits in SHOWN)), bins
        )
    # outside_sigma3: the share of values that a range of three standard deviations clamps
    _attach(
        bench,
        "ranges",
        ("layer", "of", "low", "high", "mean", "deviation", "outside_sigma3"),
        ranges,
    )


def _attach(
    bench: Bench, series: str, names: Sequence[str], rows: Sequence[tuple[Any, ...]]
) -> None:
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    bench.series(
        series,
        columns,
        {name: "1" for name, cells in columns.items() if not isinstance(cells[0], str)},
    )


def bin_shares(values: Any, low: float, high: float) -> list[float]:
    """The share of the values in each of BINS equal bins from low to high; values outside count in
    the outermost.

    A regular subset is counted if there are more than MOST_VALUES values.
    """
    values = values.flatten()
    values = values[:: math.ceil(len(values) / MOST_VALUES)].float().cpu().clamp(low, high)
    found: list[float] = (values.histc(BINS, low, high) / len(values)).tolist()
    return found


STEPS = Benchmark(
    "quantization_steps",
    measure,
    metrics=[
        Metric("float_accuracy", "1", "higher", "of the trained network, float32", (0, 1)),
        Metric("weights_accuracy", "1", "higher", "weights of 8 bits", (0, 1)),
        Metric("activations_accuracy", "1", "higher", "and activations of 8 bits", (0, 1)),
        Metric("biases_accuracy", "1", "higher", "and biases of 32 bits", (0, 1)),
        Metric("integer_accuracy", "1", "higher", "all of it computed with integers alone", (0, 1)),
        Metric("loss", "1", "lower", "float_accuracy less integer_accuracy"),
        Metric("epochs", "1", None, "that the network was trained"),
    ],
    grid={"data": ("digits", "fashion-mnist", "cifar10", "cifar10-jpeg"), "calibration": (512,)},
    requires=Requires(gpus=1, cpu_fallback=True, data="data", modules=("torch",)),
    timeout=900,
    description=(
        "Accuracy of a small convolutional network after quantizing weights, activations, biases,"
        " all of it."
    ),
    rounds=1,
)
