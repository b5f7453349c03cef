"""The benchmark `mlp_overlap`: what pinned memory, pieces and streams bring, and what the phases say they should."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from hpml_plugins import Bench, Metric, Rank, Samples
from hpml_plugins.plugins.mlp.phases import IMAGES, ORDER, PRODUCTS, REDUCE, TO_DEVICE, TO_HOST

if TYPE_CHECKING:
    from hpml_plugins.plugins.mlp.job import Job, Product, Way
    from hpml_plugins.plugins.mlp.training import Trainer

LAST = PRODUCTS[-1]
METRICS = (
    Metric("plain", "s", "lower", "a batch as the exercise has it: pageable memory, one thing after the other"),
    Metric("best", "s", "lower", "the fastest of the other ways"),
    Metric("gain", "1", "higher", "plain over the fastest of the other ways"),
    Metric("predicted_gain", "1", None, "the same by the phases of both"),
)
#: Which of `predictions` is each way's.
PREDICTED_BY = {
    "plain": "one after the other", "pinned": "one after the other", "pieces": "pieces", "pinned, pieces": "pieces",
    "pinned, pieces, waiting": "pieces", "pinned, images ahead": "ahead", "all together": "both",
}  # fmt: skip
#: Batches of each way that are timed in a turn, and of those that are looked at phase by phase; and turns of them all:
#: for what else the host does, and what its caches hold, must not differ between the ways, nor from their phases.
COUNT = {"cuda": 12, "cpu": 4}
TURNS = 5


def measure_overlap(
    bench: Bench, *, ranks: int, way: Way, hidden: int, batch: int, product: Product
) -> Mapping[str, Samples | float]:
    """The same batch plain, from pinned memory, with gradients in pieces, with images ahead, and all together."""
    from hpml_plugins.plugins.mlp.formulas import share
    from hpml_plugins.plugins.mlp.job import Job

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
    for name, samples in found.items():
        if samples.relative_precision > bench.plan.precision:
            bench.warn(f"{name}: the median is known to ±{samples.relative_precision:.1%} after {len(samples)} batches")
    best = min(names[1:], key=lambda name: found[name].median)
    return {
        "plain": found["plain"],
        "best": found[best],
        "gain": found["plain"].median / found[best].median,
        "predicted_gain": predicted["plain"] / predicted[best],
    }


def on_rank(rank: Rank, job: Job) -> tuple[dict[str, Samples], dict[str, float]]:
    """Time the ways in turns, after the weights of each were checked; predict each from the phases."""
    from hpml_plugins.plugins.mlp.overlap import PIECES, in_pieces
    from hpml_plugins.plugins.mlp.phases import Phases
    from hpml_plugins.plugins.mlp.profiling import medians, profiled, whole
    from hpml_plugins.plugins.mlp.training import Trainer, checked_error, multiplier

    on_gpu = rank.device.startswith("cuda")
    multiply = multiplier(job.product, rank.device)
    phases = Phases(rank.device)
    count = COUNT["cuda" if on_gpu else "cpu"]
    plain = Trainer(rank, job, multiply, phase=phases)
    # On a CPU there is no other memory to copy to, and no stream.
    pinned = Trainer(rank, replace(job, pinned=True), multiply, phase=phases) if on_gpu else plain
    ways: dict[str, tuple[Trainer, Callable[[], None]]] = {"plain": (plain, plain.batch)}
    ways |= pinned_ways(rank, pinned) if on_gpu else {"pieces": (plain, partial(in_pieces, plain))}
    for name, (trainer, run) in ways.items():
        checked_error(rank, trainer, run, name)
    taken: dict[str, list[float]] = {name: [] for name in ways}
    looks: dict[Trainer, list[dict[str, float]]] = {plain: [], pinned: []}
    for turn in range(TURNS):
        rank.bench.progress(f"turn {turn + 1} of {TURNS}", turn / TURNS)
        for name, (_, run) in ways.items():
            taken[name] += whole(rank, run, count)
        for trainer, look in looks.items():
            look.append(profiled(rank, trainer, phases, count))
    of_plain, of_pinned = (predictions(medians(looks[trainer]), PIECES) for trainer in (plain, pinned))
    told = {name: (of_plain if name == "plain" else of_pinned)[PREDICTED_BY[name]] for name in ways}
    return {name: Samples.of(times, "s", turns=TURNS) for name, times in taken.items()}, told


def pinned_ways(rank: Rank, pinned: Trainer) -> dict[str, tuple[Trainer, Callable[[], None]]]:
    """The ways that a GPU has beside the exercise's, by name, each with whose weights it trains."""
    from hpml_plugins.plugins.mlp.overlap import Ahead, in_pieces
    from hpml_plugins.plugins.mlp.training import Trainer

    ways: dict[str, tuple[Trainer, Callable[[], None]]] = {
        "pinned": (pinned, pinned.batch),
        "pinned, pieces": (pinned, partial(in_pieces, pinned)),
        "pinned, images ahead": (pinned, Ahead(pinned, pieces=False).batch),
    }
    last = pinned
    if pinned.job.through_host:
        # Non-blocking sums are made by whoever waits for them, and by another algorithm: waiting at once can be faster.
        last = Trainer(rank, replace(pinned.job, waiting=True), pinned.network.multiply, phase=pinned.phase)
        ways["pinned, pieces, waiting"] = (last, partial(in_pieces, last))
    return {**ways, "all together": (last, Ahead(last, pieces=True).batch)}


def predictions(times: Mapping[str, float], pieces: int) -> dict[str, float]:
    """A batch's time in each way from its phases, s: as they are, in pieces, with images ahead, with both.

    Pieces: the last product, the copies and the adding up are a pipeline. Ahead: copying images takes only what the
    rest of the batch leaves of it.
    """
    from hpml_plugins.plugins.mlp.formulas import pipeline_seconds

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
