"""The benchmark `mlp_overlap`: what pinned memory, pieces and streams bring, and what the phases say they should."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from hpml_plugins import Bench, Metric, Rank, Samples
from hpml_plugins.plugins.mlp.formulas import pipeline_seconds, share
from hpml_plugins.plugins.mlp.job import Job, Product, Way
from hpml_plugins.plugins.mlp.phases import IMAGES, ORDER, PRODUCTS, REDUCE, TO_DEVICE, TO_HOST

if TYPE_CHECKING:
    from hpml_plugins.plugins.mlp.training import Trainer

LAST = PRODUCTS[-1]
METRICS = (
    Metric("plain", "s", "lower", "a batch as the exercise has it: pageable memory, one thing after the other"),
    Metric("best", "s", "lower", "the fastest of the other ways"),
    Metric("gain", "1", "higher", "plain over the fastest of the other ways"),
    Metric("predicted_gain", "1", "higher", "the same by the phases of both"),
)
#: Batches looked at phase by phase.
COUNT = {"cuda": 20, "cpu": 7}


def measure_overlap(
    bench: Bench, *, ranks: int, way: Way, hidden: int, batch: int, product: Product
) -> Mapping[str, Samples | float]:
    """The same batch plain, from pinned memory, with gradients in pieces, with images ahead, and all together."""

    share(batch, ranks)
    job = Job(hidden, batch, "float32", product, way)
    found: dict[str, Samples]
    predicted: dict[str, float]
    found, predicted = bench.ranks(on_rank, ranks, job, launcher=job.launcher)[0]
    names = list(found)
    medians = [found[name].median for name in names]
    bench.series(
        "ways",
        {"variant": names, "time": medians, "predicted": [predicted[name] for name in names]},
        {"time": "s", "predicted": "s"},
    )
    best = min(names[1:], key=lambda name: found[name].median)
    return {
        "plain": found["plain"],
        "best": found[best],
        "gain": found["plain"].median / found[best].median,
        "predicted_gain": predicted["plain"] / predicted[best],
    }


def on_rank(rank: Rank, job: Job) -> tuple[dict[str, Samples], dict[str, float]]:
    """Time each variant, after its weights were checked; predict each from the phases."""
    from hpml_plugins.plugins.mlp.overlap import PIECES, Ahead, in_pieces
    from hpml_plugins.plugins.mlp.phases import Phases
    from hpml_plugins.plugins.mlp.profiling import profiled
    from hpml_plugins.plugins.mlp.training import Trainer, checked_error, multiplier

    on_gpu = rank.device.startswith("cuda")
    multiply = multiplier(job.product, rank.device)
    phases = Phases(rank.device)
    count = COUNT["cuda" if on_gpu else "cpu"]
    found: dict[str, Samples] = {}

    def take(name: str, trainer: Trainer, run: Callable[[], None]) -> None:
        rank.progress(name, len(found) / 6)
        checked_error(rank, trainer, run, name)
        found[name] = rank.time(run, launch="visible", over="max", name=name)

    plain = Trainer(rank, job, multiply, phase=phases)
    take("plain", plain, plain.batch)
    predicted = predictions(profiled(rank, plain, phases, count), PIECES)
    told = {"plain": predicted["one after the other"], "pieces": predicted["pieces"]}
    if not on_gpu:  # there is no other memory to copy to, and no stream
        take("pieces", plain, lambda: in_pieces(plain))
        return found, told
    pinned = Trainer(rank, replace(job, pinned=True), multiply, phase=phases)
    take("pinned", pinned, pinned.batch)
    predicted = predictions(profiled(rank, pinned, phases, count), PIECES)
    told |= {"pinned": predicted["one after the other"], "pinned, pieces": predicted["pieces"]}
    told |= {"pinned, images ahead": predicted["ahead"], "all together": predicted["both"]}
    take("pinned, pieces", pinned, lambda: in_pieces(pinned))
    take("pinned, images ahead", pinned, Ahead(pinned, pieces=False).batch)
    if job.through_host:
        # Non-blocking sums are made by whoever waits for them, and by another algorithm: waiting at once can be faster.
        waiting = Trainer(rank, replace(job, pinned=True, waiting=True), multiply, phase=phases)
        told["pinned, pieces, waiting"] = told["pinned, pieces"]
        take("pinned, pieces, waiting", waiting, lambda: in_pieces(waiting))
        take("all together", waiting, Ahead(waiting, pieces=True).batch)
    else:
        take("all together", pinned, Ahead(pinned, pieces=True).batch)
    return found, told


def predictions(times: Mapping[str, float], pieces: int) -> dict[str, float]:
    """A batch's time in each way from its phases, s: as they are, in pieces, with images ahead, with both.

    Pieces: the last product, the copies and the adding up are a pipeline. Ahead: copying images takes only what the
    rest of the batch leaves of it.
    """
    whole = sum(times[name] for name in ORDER)
    stages = [times[name] for name in (LAST, TO_HOST, REDUCE, TO_DEVICE)]
    saved = sum(stages) - pipeline_seconds(stages, pieces)
    images = times[IMAGES]
    return {
        "one after the other": whole,
        "pieces": whole - saved,
        "ahead": max(whole - images, images),
        "both": max(whole - saved - images, images),
    }
