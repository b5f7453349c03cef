"""`mlp_model`: a grid of hidden sizes and batches, against the document's roofline and against
predictions of ours."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from math import log
from operator import itemgetter

from hpml_plugins import Bench, Benchmark, Metric, Rank, Requires
from hpml_plugins.plugins.mlp import formulas
from hpml_plugins.plugins.mlp.formulas import (
    EXCHANGE,
    IMAGES,
    LAUNCHING,
    STEP,
    TERMS,
    Job,
    Product,
    Way,
    on_curve,
)
from hpml_plugins.plugins.mlp.phases import attach_rows, on_cpu

Size = tuple[int, int]


def calibrated_first(
    calibrated: Size, hidden: tuple[int, ...], batches: tuple[int, ...]
) -> list[Size]:
    """Every hidden size and batch (over all ranks); first the point at which the document's model
    is calibrated."""
    return [
        calibrated,
        *(size for size in itertools.product(hidden, batches) if size != calibrated),
    ]


ON_GPU = calibrated_first((512, 3000), (128, 512, 2048, 8192), (800, 3000, 12000, 48000))
ON_CPU = calibrated_first((128, 800), (32, 128, 512), (200, 800, 3200))
#: Batches of each point that are timed whole, and profiled, alternately in each of TURNS.
COUNT = {"cuda": 5, "cpu": 2}
TURNS = 3
#: Units of columns of the series `grid` that are not seconds.
UNITS = {"hidden": "1", "batch": "1", "flops": "FLOP", "intensity": "FLOP/B"}


#: A measurement at one hidden size and batch: both, `whole`, s, and the phases' times, s.
Point = dict[str, float]


def measure_model(bench: Bench, *, ranks: int, way: Way, product: Product) -> Mapping[str, float]:
    """Measure the grid in float32, and compare predictions with it. way: "mpi" or "gloo", both
    through the host."""
    on_gpu = bench.device == "cuda"
    sizes = ON_GPU if on_gpu else ON_CPU
    job = Job(*sizes[0], ranks, product=product, way=way)
    points: list[Point] = bench.ranks(on_rank, ranks, job, sizes, launcher=job.launcher)[0]
    rates = job.rates(points[0])
    attach_rows(bench, "rates", [rates], formulas.RATE_UNITS)
    rows = predict_points(points, job, on_gpu=on_gpu)
    attach_rows(bench, "grid", rows, {**dict.fromkeys(rows[0], "s"), **UNITS})
    return {
        "compute_rate": rates["flops"],
        "copy_rate": rates["pci"],
        "reduce_rate": rates["mpi"],
        "roofline_error": max(abs(row["roofline"] / row["without_images"] - 1) for row in rows),
        "line_error": max(abs(row["lines"] / row["whole"] - 1) for row in rows),
        "curve_error": max(abs(row["curves"] / row["whole"] - 1) for row in rows),
    }


def on_rank(rank: Rank, job: Job, sizes: list[Size]) -> list[Point]:
    """Time every point, whole and phase by phase. The first one's weights are checked."""
    from hpml_plugins.plugins.mlp.training import Trainer, time_in_turns

    count = COUNT["cpu" if rank.device == "cpu" else "cuda"]
    points: list[Point] = []
    multiply = None
    for hidden, batch in sizes:
        rank.bench.progress(f"{hidden} hidden, batch {batch}", len(points) / len(sizes))
        trainer = Trainer(rank, replace(job, hidden=hidden, batch=batch), multiply)
        multiply = trainer.network.multiply
        if not points:
            trainer.check(trainer.batch, f"{job.way}, {job.product}'s products")
        times, [phases] = time_in_turns({"whole": trainer.batch}, [trainer], count, TURNS)
        points.append(
            {"hidden": hidden, "batch": batch, "whole": statistics.median(times["whole"]), **phases}
        )
    return points


def predict_points(points: list[Point], job: Job, *, on_gpu: bool) -> list[dict[str, float]]:
    """Each point with its counts and the models' predictions: the columns of the series `grid`."""
    jobs = [
        replace(job, hidden=int(point["hidden"]), batch=int(point["batch"])) for point in points
    ]
    works = [each.work for each in jobs]
    lines, curves = (
        formulas.leave_one_out(works, points, each) for each in (formulas.on_line, on_curve)
    )
    sum_of_phases = partial(formulas.sum_of_phases, on_gpu=on_gpu)
    sums = [sum_of_phases(point) for point in points]
    rows = []
    for index, point in enumerate(points):
        # Time outside all phases: the host between them, and ranks that wait for one another.
        # Waiting grows with the awaited work, so its share is taken from the other points.
        shares = [other["whole"] / total for other, total in zip(points, sums, strict=True)]
        more = statistics.median(shares[:index] + shares[index + 1 :])
        curve = curves[index] | predict_by_neighbours(points, index)
        rows.append(
            {
                **point,
                "flops": jobs[index].counted_flops,
                "intensity": jobs[index].intensity,
                # The document's model excludes images.
                "without_images": point["whole"] - point[IMAGES],
                "added_up": sums[index],
                "roofline": jobs[index].roofline_seconds(**job.rates(points[0])),
                "lines": sum_of_phases(lines[index]) * more,
                "curves": sum_of_phases(curve) * more,
            }
        )
    return rows


#: Phases whose work only depends on the hidden size.
OF_GRADIENTS = (*EXCHANGE, STEP, LAUNCHING)


def predict_by_neighbours(points: list[Point], index: int) -> dict[str, float]:
    """Predicted times of a point's phases on the host, s, from measured points that differ in one
    parameter, if any.

    Images by the same batch at other hidden sizes: the larger the gradients that go through the
    host between two batches, the less of the images is still in its caches when they are copied
    again; on an H200's host 18.8 MB took 1.6 ms with 128 hidden units, 3.4 ms with 8192. Gradients,
    for the same reason, by other batches of the hidden size.
    """
    import numpy as np

    point, others = points[index], points[:index] + points[index + 1 :]
    predicted = {}
    if same_batch := [each for each in others if each["batch"] == point["batch"]]:
        hidden, times = zip(*((each["hidden"], each[IMAGES]) for each in same_batch), strict=True)
        predicted[IMAGES] = on_curve(hidden, times, point["hidden"])
    if same_hidden := sorted(
        (each for each in others if each["hidden"] == point["hidden"]), key=itemgetter("batch")
    ):
        # On a straight line over the logarithm of the batch; beyond the ends the nearest one's.
        batches = [log(each["batch"]) for each in same_hidden]
        for name in OF_GRADIENTS:
            predicted[name] = float(
                np.interp(log(point["batch"]), batches, [each[name] for each in same_hidden])
            )
    return predicted


MODEL = Benchmark(
    "mlp_model",
    measure_model,
    (
        Metric(
            "compute_rate", "FLOP/s", "higher", "P_flops at the coursework's hidden size and batch"
        ),
        Metric("copy_rate", "B/s", "higher", "P_pci: gradients from the device and back"),
        Metric("reduce_rate", "B/s", "higher", "P_mpi: gradients added up"),
        Metric(
            "roofline_error",
            "1",
            "lower",
            "worst |predicted / measured − 1|, images apart, the coursework's model",
        ),
        Metric(
            "line_error",
            "1",
            "lower",
            "the same of whole batches, by lines laid through the other points",
        ),
        Metric(
            "curve_error",
            "1",
            "lower",
            "the same by rates that depend on size, interpolated between the other points",
        ),
    ),
    {"ranks": (2, 4, 8), "way": ("mpi", "gloo"), "product": ("own", "torch")},
    Requires(gpus="ranks", modules=("numba.cuda", "torch", "scipy.optimize")),
    timeout=240,
    version="3",
    terms=TERMS,
    description=(
        "Batches over hidden sizes and batch sizes on GPUs, against the coursework's roofline and"
        " lines."
    ),
    rounds=1,
)
MODEL_CPU = on_cpu(MODEL, "The same between processes on the CPU, smaller.", timeout=180)
