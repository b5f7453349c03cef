"""The benchmark `mlp_model`: a grid of hidden sizes and batches, against the exercise's model and against lines."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import log
from typing import TYPE_CHECKING

from hpml_plugins import Bench, Metric, Rank
from hpml_plugins.plugins.mlp.phase_benchmark import RATE_UNITS, rates_of
from hpml_plugins.plugins.mlp.phases import (
    ELEMENTWISE,
    IMAGES,
    LAUNCHING,
    ORDER,
    REDUCE,
    STEP,
    TO_DEVICE,
    TO_HOST,
    added_up,
)

if TYPE_CHECKING:
    from hpml_plugins.plugins.mlp.formulas import Sizes
    from hpml_plugins.plugins.mlp.job import Job, Product, Way

METRICS = (
    Metric("compute_rate", "FLOP/s", "higher", "P_flops at the exercise's hidden size and batch"),
    Metric("copy_rate", "B/s", "higher", "P_pci: gradients from the device and back"),
    Metric("reduce_rate", "B/s", "higher", "P_mpi: gradients added up"),
    Metric("roofline_error", "1", "lower", "worst |predicted / measured − 1|, images apart, the exercise's model"),
    Metric("line_error", "1", "lower", "the same of whole batches, by lines laid through the other points"),
    Metric("curve_error", "1", "lower", "the same by rates that depend on size, interpolated between the other points"),
)  # fmt: skip


@dataclass(frozen=True)
class Grid:
    """Hidden sizes and batches (over all ranks), and the point at which the exercise's model is calibrated."""

    hidden: tuple[int, ...]
    batches: tuple[int, ...]
    calibrated: tuple[int, int]

    @property
    def points(self) -> list[tuple[int, int]]:
        """The calibrated one first."""
        every = [(hidden, batch) for hidden in self.hidden for batch in self.batches]
        return sorted(every, key=lambda point: point != self.calibrated)


ON_GPU = Grid((128, 512, 2048, 8192), (800, 3000, 12000, 48000), (512, 3000))
ON_CPU = Grid((32, 128, 512), (200, 800, 3200), (128, 800))
#: Batches of each point that are timed whole, and phase by phase: in so many turns each, for what else the host does,
#: and what its caches hold, must not differ between the two.
COUNT = {"cuda": 5, "cpu": 2}
TURNS = 3


@dataclass(frozen=True)
class Point:
    """What was measured at one hidden size and batch. whole: s.  times: phase → s."""

    hidden: int
    batch: int
    whole: float
    times: Mapping[str, float]


def measure_model(bench: Bench, *, ranks: int, way: Way, product: Product) -> Mapping[str, float]:
    """Measure the grid in float32, and hold predictions against it. way: "mpi" or "gloo", both through the host."""
    from hpml_plugins.plugins.mlp.job import Job

    on_gpu = bench.device == "cuda"
    grid = ON_GPU if on_gpu else ON_CPU
    hidden, batch = grid.calibrated
    job = Job(hidden, batch, "float32", product, way)
    points: list[Point] = bench.ranks(on_rank, ranks, job, grid, launcher=job.launcher)[0]
    rates = rates_of(job, ranks, points[0].times)
    bench.series("rates", {name: [value] for name, value in rates.items()}, RATE_UNITS)
    rows = predicted_rows(points, ranks, job, rates, on_gpu=on_gpu)
    columns = {name: [row[name] for row in rows] for name in UNITS}
    phases = {name: [point.times[name] for point in points] for name in (*ORDER, LAUNCHING)}
    bench.series("grid", {**columns, **phases}, {**UNITS, **dict.fromkeys(phases, "s")})
    return {
        "compute_rate": rates["flops"],
        "copy_rate": rates["pci"],
        "reduce_rate": rates["mpi"],
        "roofline_error": max(abs(row["roofline"] / row["without_images"] - 1) for row in rows),
        "line_error": max(abs(row["lines"] / row["whole"] - 1) for row in rows),
        "curve_error": max(abs(row["curves"] / row["whole"] - 1) for row in rows),
    }


#: Columns of the series `grid`. without_images: the batch less copying images, which the exercise's model leaves out.
#: roofline, lines, curves: seconds by the three models.  rate: FLOP/s of the whole.
UNITS = {
    "hidden": "1", "batch": "1", "flops": "FLOP", "intensity": "FLOP/B", "whole": "s", "without_images": "s",
    "added_up": "s", "roofline": "s", "lines": "s",
    "curves": "s",
}  # fmt: skip


def predicted_rows(
    points: list[Point], ranks: int, job: Job, rates: Mapping[str, float], *, on_gpu: bool
) -> list[dict[str, float]]:
    """Each point with its counts, and what the models say of it."""
    from hpml_plugins.plugins.mlp.formulas import (
        Sizes,
        counted_flops,
        intensity,
        left_out,
        on_curve,
        on_line,
        seconds_of_batch,
        share,
    )

    works = [work_of(Sizes(job.inputs, p.hidden, job.classes), share(p.batch, ranks), job.item, ranks) for p in points]
    taken = [point.times for point in points]
    lines, curves = left_out(works, taken, on_line), left_out(works, taken, on_curve)
    for index, curve in enumerate(curves):
        curve |= by_neighbours(points, index)
    sums = [added_up(point.times, on_gpu=on_gpu) for point in points]
    rows = []
    for index, (point, line, curve) in enumerate(zip(points, lines, curves, strict=True)):
        sizes, images = Sizes(job.inputs, point.hidden, job.classes), share(point.batch, ranks)
        # What no phase holds: the host between them, ranks that wait for one another. Waiting grows with what is waited
        # for, so the other points say what share it is.
        more = statistics.median(
            other.whole / total for i, (other, total) in enumerate(zip(points, sums, strict=True)) if i != index
        )
        rows.append({
            "hidden": point.hidden,
            "batch": point.batch,
            "flops": counted_flops(sizes, images),
            "intensity": intensity(sizes, images, job.item, ranks),
            "whole": point.whole,
            "without_images": point.whole - point.times[IMAGES],
            "added_up": sums[index],
            "roofline": seconds_of_batch(sizes, images, job.item, ranks, rates["flops"], rates["pci"], rates["mpi"]),
            "lines": max(0.0, added_up(line, on_gpu=on_gpu) * more),
            "curves": max(0.0, added_up(curve, on_gpu=on_gpu) * more),
        })  # fmt: skip
    return rows


#: Phases whose work is set by the hidden size alone.
OF_GRADIENTS = (TO_HOST, REDUCE, TO_DEVICE, STEP, LAUNCHING)


def by_neighbours(points: list[Point], index: int) -> dict[str, float]:
    """What a point's phases on the host should take, s, by those measured that differ in one thing only.

    Images by the same batch at other hidden sizes: the larger the gradients that go through the host between two
    batches, the less of the images is still in its caches when they are copied again; on an H200's host 18.8 MB took
    1.6 ms with 128 hidden units, 3.4 ms with 8192. Gradients, for the same reason, by the next smaller and
    larger batch of the same hidden size. A phase without such points is left out.
    """
    from hpml_plugins.plugins.mlp.formulas import on_curve

    point = points[index]
    others = [each for i, each in enumerate(points) if i != index]
    told = {}
    if same_batch := [each for each in others if each.batch == point.batch]:
        times = [each.times[IMAGES] for each in same_batch]
        told[IMAGES] = on_curve([float(each.hidden) for each in same_batch], times, float(point.hidden))
    if near := next_batches([each for each in others if each.hidden == point.hidden], point.batch):
        # On a straight line over the logarithm of the batch; beyond the ends the nearest one's.
        far = [abs(log(each.batch / point.batch)) for each in reversed(near)]
        told |= {name: statistics.fmean([each.times[name] for each in near], weights=far) for name in OF_GRADIENTS}
    return told


def next_batches(points: list[Point], batch: int) -> list[Point]:
    """Of these the one with the next smaller batch and the one with the next larger, as far as there are such."""
    ordered = sorted(points, key=lambda each: each.batch)
    return [each for each in ordered if each.batch < batch][-1:] + [each for each in ordered if each.batch > batch][:1]


def work_of(sizes: Sizes, images: int, item: int, ranks: int) -> dict[str, float]:
    """What each phase's time should be in proportion to: FLOP of products, B of all else; 0 for the launching."""
    from hpml_plugins.plugins.mlp.formulas import copied_bytes, image_bytes, product_flops, reduced_bytes

    hidden_layer = float(images * sizes.hidden * item)
    return {
        **product_flops(sizes, images),
        # Seven passes read or write the hidden layer or its gradient; what is 10 wide does not count beside it.
        ELEMENTWISE: 7 * hidden_layer,
        IMAGES: image_bytes(sizes, images, item),
        TO_HOST: copied_bytes(sizes, item) / 2,
        TO_DEVICE: copied_bytes(sizes, item) / 2,
        REDUCE: reduced_bytes(sizes, item, ranks),
        STEP: 3.0 * sizes.parameters * item,
        LAUNCHING: 0.0,
    }


def on_rank(rank: Rank, job: Job, grid: Grid) -> list[Point]:
    """Time every point of the grid, whole and phase by phase. The first one's weights are checked."""
    from hpml_plugins.plugins.mlp.phases import Phases
    from hpml_plugins.plugins.mlp.profiling import medians, profiled, whole
    from hpml_plugins.plugins.mlp.training import Trainer, checked_error, multiplier

    multiply = multiplier(job.product, rank.device)
    phases = Phases(rank.device)
    count = COUNT["cuda" if rank.device.startswith("cuda") else "cpu"]
    points = []
    for number, (hidden, batch) in enumerate(grid.points):
        rank.bench.progress(f"{hidden} hidden, batch {batch}", number / len(grid.points))
        trainer = Trainer(rank, replace(job, hidden=hidden, batch=batch), multiply, phase=phases)
        if number == 0:
            checked_error(rank, trainer, trainer.batch, f"{job.way}, {job.product}'s products")
        turns = [(whole(rank, trainer.batch, count), profiled(rank, trainer, phases, count)) for _ in range(TURNS)]
        seconds = statistics.median(each for batches, _ in turns for each in batches)
        points.append(Point(hidden, batch, seconds, medians([taken for _, taken in turns])))
    return points
