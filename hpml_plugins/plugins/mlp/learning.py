"""`mlp_weights` (correctness of the weights) and `mlp_learning` (results and speed of training), on
one device."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from hpml_plugins import Bench, Benchmark, Metric, Requires
from hpml_plugins.plugins.mlp.formulas import TOLERANCE, Job, Product
from hpml_plugins.plugins.mlp.phases import attach_rows, on_cpu
from hpml_plugins.plugins.mlp.tiles import Dtype

if TYPE_CHECKING:
    from hpml_plugins.plugins.mlp.network import Learner
    from hpml_plugins.plugins.mlp.reference import Images

#: Learning rates and steps at which weights are compared; images of a step; hidden size.
RATES, STEPS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0), (1, 3, 10, 30, 100)
COMPARED_BATCH, COMPARED_HIDDEN = 200, 128

Sweep = Literal["rate", "hidden", "epochs"]
#: The values of each sweep. The coursework's: five epochs, 512 hidden, a rate near 0.1.
SWEPT_RATES = (1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
SWEPT_HIDDEN = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
EPOCHS, HIDDEN, RATE, BATCH = 5, 512, 0.1, 32
#: Many epochs: the most epochs; the most images for each device, which takes seconds; and the
#: fewest epochs of a large data set, whose loss settles after more images than that.
MANY_EPOCHS, MANY_IMAGES, FEWEST_OF_MANY = 1000, {"cuda": 2_000_000, "cpu": 400_000}, 60
#: Rates at which NumPy trains too, and the limit of multiply-adds for it.
ALSO_NUMPY, NUMPY_LIMIT = (1e-2, 0.1, 1.0), 3e10


def measure_weights(
    bench: Bench, *, data: str, dtype: Dtype, product: Product
) -> Mapping[str, float]:
    """Train the same steps here and in NumPy; compare weights over learning rates and steps.

    NumPy trains twice, the second time from weights rounded to float32 (`perturbed`): if the two
    differ, training amplifies every rounding, and no two implementations could agree.
    """
    import numpy as np

    from hpml_plugins.plugins.mlp import reference

    images, make_learner = _prepare(bench, data, product)
    every = reference.in_batches(len(images.labels), COMPARED_BATCH)
    batches = list(itertools.islice(itertools.cycle(every), STEPS[-1]))
    rows: list[dict[str, float]] = []
    for number, rate in enumerate(RATES):
        bench.progress(f"rate {rate:g}", number / len(RATES))
        learner = make_learner(COMPARED_HIDDEN, COMPARED_BATCH, dtype, rate)
        weights = learner.first
        perturbed = [each.astype(np.float32).astype(np.float64) for each in weights]
        for done, count in itertools.pairwise((0, *STEPS)):
            learner.learn(batches[done:count])
            weights = reference.train(weights, images.x, images.labels, batches[done:count], rate)
            perturbed = reference.train(
                perturbed, images.x, images.labels, batches[done:count], rate
            )
            error = reference.relative_error(learner.network.weights(), weights)
            rows.append(
                {
                    "rate": rate,
                    "steps": float(count),
                    "error": error if math.isfinite(error) else 1.0,
                    "precision": learner.precision(),
                    "reference": reference.precision(weights, images),
                    "perturbed": reference.precision(perturbed, images),
                    "perturbed_error": reference.relative_error(perturbed, weights),
                }
            )
    attach_rows(bench, "errors", rows, {})
    early = next(row["error"] for row in rows if (row["rate"], row["steps"]) == (0.01, 3))
    limit = TOLERANCE[dtype]
    bench.check(
        bench.result(early) <= limit,
        f"weights differ from NumPy's in float64 by more than {limit:g}",
    )
    return {
        "error": early,
        "late_error": max(row["error"] for row in rows if row["steps"] == STEPS[-1]),
    }


def measure_learning(bench: Bench, *, data: str, sweep: Sweep) -> Mapping[str, float]:
    """Train in float32 and record precision and loss over learning rates, hidden sizes, or
    epochs."""
    images, make_learner = _prepare(bench, data, "torch")
    started = time.perf_counter()
    if sweep == "epochs":
        rows = _over_epochs(
            bench, make_learner(HIDDEN, BATCH, "float32", 2 * RATE), len(images.labels)
        )
    else:
        values: tuple[float, ...] = SWEPT_RATES if sweep == "rate" else SWEPT_HIDDEN
        rows = []
        for number, value in enumerate(values):
            bench.progress(f"{sweep} {value:g}", number / len(values))
            hidden, rate = (HIDDEN, value) if sweep == "rate" else (int(value), RATE)
            learner = make_learner(hidden, BATCH, "float32", rate)
            learner.epochs(EPOCHS)
            rows.append(
                {sweep: float(value), "precision": learner.precision(), "loss": learner.loss()}
            )
    taken = time.perf_counter() - started
    bench.check(all(0 <= row["precision"] <= 1 for row in rows), "precisions are shares")
    best = max(row["precision"] for row in rows)
    # Twice the accuracy of guessing: a network that does not learn is a bug here.
    bench.check(
        bench.result(best) >= 2 / images.classes, "the network learns to tell classes apart"
    )
    attach_rows(bench, sweep, rows, {})
    if sweep == "rate":
        _train_numpy(bench, images)
    return {"precision": best, "time": taken}


def _prepare(bench: Bench, data: str, product: Product) -> tuple[Images, Callable[..., Learner]]:
    """The images, and a function that creates a learner for them from a hidden size, batch, dtype
    and rate."""
    import torch

    from hpml_plugins.plugins.mlp.network import Learner, make_multiply
    from hpml_plugins.plugins.mlp.reference import load_images

    torch.set_num_threads(1)  # products of a few MFLOP: threads would wait for one another
    multiply, images = make_multiply(bench, product), load_images(bench, data)

    def make_learner(hidden: int, batch: int, dtype: Dtype, rate: float) -> Learner:
        job = Job(hidden, batch, dtype=dtype, inputs=images.x.shape[1], classes=images.classes)
        return Learner(bench, images, job, multiply, rate)

    return images, make_learner


def _over_epochs(bench: Bench, learner: Learner, count: int) -> list[dict[str, float]]:
    """Loss and precision after 1, 2, 4, … epochs, until MANY_IMAGES or two thirds of the point's
    time are used."""
    rows, done, most = (
        [],
        0,
        max(FEWEST_OF_MANY, min(MANY_EPOCHS, MANY_IMAGES[bench.device] // count)),
    )
    until = time.monotonic() + 0.66 * bench.remaining
    while done < most and time.monotonic() < until:
        more = max(1, min(done // 4, most - done))
        learner.epochs(more)
        done += more
        bench.progress(f"{done} of {most} epochs", done / most)
        rows.append(
            {"epochs": float(done), "precision": learner.precision(), "loss": learner.loss()}
        )
    return rows


def _train_numpy(bench: Bench, images: Images) -> None:
    """The predictions of the reference with the same weights, batches and rates, if that takes only
    seconds."""
    from hpml_plugins.plugins.mlp import reference

    job = Job(HIDDEN, BATCH, inputs=images.x.shape[1], classes=images.classes)
    work = 2.0 * EPOCHS * len(images.labels) * HIDDEN * (job.inputs + job.classes)
    if work > NUMPY_LIMIT:
        bench.warn(
            f"NumPy's precision is left out: {work:.1e} multiply-adds for each learning rate"
        )
        return
    rows: list[dict[str, Any]] = []
    for rate in ALSO_NUMPY:
        bench.progress(f"NumPy, rate {rate:g}", 0.95)
        batches = reference.in_batches(len(images.labels), BATCH, EPOCHS)
        weights = reference.train(
            reference.first_weights(job, bench.seed), images.x, images.labels, batches, rate
        )
        rows.append({"rate": rate, "precision": reference.precision(weights, images)})
    attach_rows(bench, "numpy", rows, {})


DATA = ("made", "digits", "mnist", "fashion-mnist")
WEIGHTS = Benchmark(
    "mlp_weights",
    measure_weights,
    (
        Metric(
            "error",
            "1",
            "lower",
            "of weights against NumPy in float64 after three steps at a rate of 0.01",
        ),
        Metric(
            "late_error",
            "1",
            "lower",
            "the largest over learning rates from 0.01 to 10, after the last step",
        ),
    ),
    {"data": DATA, "dtype": ("float32", "float64"), "product": ("own", "torch")},
    Requires(gpus=1, modules=("numba.cuda", "torch")),
    timeout=180,
    description=(
        "Weights of the two-layer network on a GPU against NumPy in float64, over learning rates"
        " and steps."
    ),
    rounds=1,
)
WEIGHTS_CPU = on_cpu(
    WEIGHTS,
    "Weights of the two-layer network in torch on the CPU against NumPy in float64.",
    timeout=180,
)
LEARNING = Benchmark(
    "mlp_learning",
    measure_learning,
    (
        Metric(
            "precision",
            "1",
            "higher",
            "test images whose label is predicted, of all: the best of the sweep",
        ),
        Metric("time", "s", "lower", "training of the whole sweep"),
    ),
    {"data": DATA, "sweep": ("rate", "hidden", "epochs")},
    WEIGHTS.requires,
    timeout=900,
    description=(
        "Precision of the two-layer network over learning rate, hidden size or epochs, trained on a"
        " GPU."
    ),
    rounds=1,
)
LEARNING_CPU = on_cpu(
    LEARNING,
    timeout=900,
    description=(
        "Precision of the two-layer network over learning rate, hidden size or epochs, trained on"
        " the CPU."
    ),
)
