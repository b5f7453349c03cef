"""The benchmarks `mlp_weights` (are they right?) and `mlp_learning` (what is learned, and how fast?)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from hpml_plugins import Bench, Metric
from hpml_plugins.plugins.mlp.tiles import Dtype

if TYPE_CHECKING:
    from hpml_plugins.plugins.mlp.job import Product
    from hpml_plugins.plugins.mlp.learning import Images, Learner

DATA = ("made", "digits", "mnist", "fashion-mnist")
WEIGHT_METRICS = (
    Metric("error", "1", "lower", "of weights against NumPy in float64 after three steps at a rate of 0.01"),
    Metric("late_error", "1", "lower", "the largest over learning rates from 0.01 to 10, after the last step"),
)
#: Learning rates and steps at which weights are compared; images of a step; hidden size.
RATES, STEPS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0), (1, 3, 10, 30, 100)
COMPARED_BATCH, COMPARED_HIDDEN = 200, 128
#: A few hundred roundings: three steps at a small rate cannot be further away.
LIMIT = {"float32": 1.2e-5, "float64": 2.2e-14}

Sweep = Literal["rate", "hidden", "epochs"]
LEARNING_METRICS = (
    Metric("precision", "1", "higher", "test images whose label is predicted, of all: the best of the sweep"),
    Metric("time", "s", "lower", "training of the whole sweep"),
)
#: What each sweep goes over. The exercise's: five epochs, 512 hidden, a rate near 0.1.
SWEPT_RATES = (1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
SWEPT_HIDDEN = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
EPOCHS, HIDDEN, RATE, BATCH = 5, 512, 0.1, 32
#: Many epochs: at most so many, and so many images seen by each device, which takes seconds.
MANY_EPOCHS, MANY_IMAGES = 1000, {"cuda": 2_000_000, "cpu": 400_000}
#: Rates at which NumPy trains too, and the multiply-adds that this may cost.
ALSO_NUMPY, NUMPY_LIMIT = (1e-2, 0.1, 1.0), 3e10


def measure_weights(bench: Bench, *, data: str, dtype: Dtype, product: Product) -> Mapping[str, float]:
    """Train the same steps here and in NumPy; compare weights over learning rates and steps.

    product: "own" or "torch".  data: a data set of 28×28 or 8×8 images, or "made".
    """
    import torch

    from hpml_plugins.plugins.mlp.learning import Learner, errors_over, images_of
    from hpml_plugins.plugins.mlp.training import multiplier

    if product == "own" and bench.device != "cuda":
        bench.skip("the tiled product needs a GPU")
    torch.set_num_threads(1)  # products of a few MFLOP: threads would wait for one another
    images, multiply = images_of(bench, data), multiplier(product, bench.device)

    def learner_of(rate: float) -> Learner:
        bench.progress(f"rate {rate:g}", RATES.index(rate) / len(RATES))
        return Learner(
            images, COMPARED_HIDDEN, COMPARED_BATCH, rate, getattr(torch, dtype), bench.device, multiply, bench.seed
        )

    rows = errors_over(learner_of, RATES, STEPS)
    bench.series("errors", {name: [row[name] for row in rows] for name in rows[0]}, dict.fromkeys(rows[0], "1"))
    early = next(row["error"] for row in rows if (row["rate"], row["steps"]) == (0.01, 3))
    limit = LIMIT[dtype]
    bench.check(bench.result(early) <= limit, f"weights differ from NumPy's in float64 by more than {limit:g}")
    return {"error": early, "late_error": max(row["error"] for row in rows if row["steps"] == STEPS[-1])}


def measure_learning(bench: Bench, *, data: str, sweep: Sweep) -> Mapping[str, float]:
    """Train in float32 and look at precision and loss, over learning rates, hidden sizes, or epochs."""
    import torch

    from hpml_plugins.plugins.mlp.learning import Learner, images_of
    from hpml_plugins.plugins.mlp.training import multiplier

    torch.set_num_threads(1)  # products of a few MFLOP: threads would wait for one another
    images, multiply = images_of(bench, data), multiplier("torch", bench.device)

    def learner(hidden: int, rate: float) -> Learner:
        return Learner(images, hidden, BATCH, rate, torch.float32, bench.device, multiply, bench.seed)

    started = time.perf_counter()
    if sweep == "epochs":
        rows = _over_epochs(bench, learner(HIDDEN, 2 * RATE), len(images.labels))
    else:
        values: tuple[float, ...] = SWEPT_RATES if sweep == "rate" else SWEPT_HIDDEN
        rows = []
        for number, value in enumerate(values):
            bench.progress(f"{sweep} {value:g}", number / len(values))
            one = learner(HIDDEN, value) if sweep == "rate" else learner(int(value), RATE)
            one.epochs(EPOCHS)
            rows.append({sweep: float(value), "precision": one.precision(), "loss": one.loss()})
    taken = time.perf_counter() - started
    bench.check(all(0 <= row["precision"] <= 1 for row in rows), "precisions are shares")
    best = max(row["precision"] for row in rows)
    # Twice what guessing finds: a network that does not learn is a fault of ours.
    bench.check(bench.result(best) >= 2 / images.classes, "the network learns to tell classes apart")
    bench.series(sweep, {name: [row[name] for row in rows] for name in rows[0]}, dict.fromkeys(rows[0], "1"))
    if sweep == "rate":
        _numpy_too(bench, images)
    return {"precision": best, "time": taken}


def _over_epochs(bench: Bench, learner: Learner, count: int) -> list[dict[str, float]]:
    """Loss and precision after 1, 2, 4, … epochs, until MANY_IMAGES or two thirds of the point's time are over."""
    rows, done, most = [], 0, max(4, min(MANY_EPOCHS, MANY_IMAGES[bench.device] // count))
    until = time.monotonic() + 0.66 * bench.remaining
    while done < most and time.monotonic() < until:
        more = max(1, min(done // 4, most - done))
        learner.epochs(more)
        done += more
        bench.progress(f"{done} of {most} epochs", done / most)
        rows.append({"epochs": float(done), "precision": learner.precision(), "loss": learner.loss()})
    return rows


def _numpy_too(bench: Bench, images: Images) -> None:
    """What the reference predicts with the same weights, batches and rates, where that takes seconds only."""
    from hpml_plugins.plugins.mlp import reference
    from hpml_plugins.plugins.mlp.job import REG

    sizes = images.sizes(HIDDEN)
    work = 2.0 * EPOCHS * len(images.labels) * HIDDEN * (sizes.inputs + sizes.classes)
    rows: list[dict[str, Any]] = []
    for rate in ALSO_NUMPY:
        if work > NUMPY_LIMIT:
            bench.warn(f"NumPy's precision is left out: {work:.1e} multiply-adds for each learning rate")
            return
        bench.progress(f"NumPy, rate {rate:g}", 0.95)
        batches = reference.in_batches(len(images.labels), BATCH, EPOCHS)
        weights = reference.train(
            reference.first_weights(sizes, bench.seed), images.x, images.labels, batches, rate, REG
        )
        rows.append({"rate": rate, "precision": reference.precision(weights, images.test_x, images.test_labels)})
    bench.series("numpy", {name: [row[name] for row in rows] for name in rows[0]}, dict.fromkeys(rows[0], "1"))
