"""`mlp_overlap`: what pinned memory, pieces and streams gain, and what the phases predict."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from hpml_plugins import Bench, Benchmark, Metric, Rank, Requires, Samples
from hpml_plugins.plugins.mlp.formulas import (
    IMAGES,
    ORDER,
    PRODUCTS,
    REDUCE,
    TO_DEVICE,
    TO_HOST,
    Job,
    Product,
    Way,
    pipeline_seconds,
)

#: Variant → which of `predict_variants` is its.
PREDICTED_BY = {
    "plain": "one after the other", "pinned": "one after the other", "pieces": "pieces", "pinned, pieces": "pieces",
    "pinned, pieces, waiting": "pieces", "pinned, images ahead": "ahead", "all together": "both",
}  # fmt: skip
#: Batches of each variant that are timed, and of those that are profiled, alternately in each of TURNS, because the
#: load of the host, and what its caches hold, must not differ between the variants, nor from their phases.
COUNT = {"cuda": 12, "cpu": 4}
TURNS = 5


def measure_overlap(
    bench: Bench, *, ranks: int, way: Way, hidden: int, batch: int, product: Product
) -> Mapping[str, Samples | float]:
    """The same batch plain, from pinned memory, with gradients in pieces, with images ahead, and all together."""
    job = Job(hidden, batch, ranks, "float32", product, way)
    found: dict[str, Samples]
    found, predicted = bench.ranks(on_rank, ranks, job, launcher=job.launcher)[0]
    columns = {"time": [samples.median for samples in found.values()], "predicted": [predicted[name] for name in found]}
    bench.series("ways", {"variant": list(found), **columns}, {"time": "s", "predicted": "s"})
    for name, samples in found.items():
        bench.warn_if_imprecise(samples, name)
    plain = found.pop("plain")
    best = min(found, key=lambda name: found[name].median)
    return {
        "plain": plain,
        "best": found[best],
        "gain": plain.median / found[best].median,
        "predicted_gain": predicted["plain"] / predicted[best],
    }


def on_rank(rank: Rank, job: Job) -> tuple[dict[str, Samples], dict[str, float]]:
    """Time the variants in turns, after the weights of each were checked; predict each from the phases."""
    from hpml_plugins.plugins.mlp.network import make_multiply
    from hpml_plugins.plugins.mlp.profiling import median_phases, profile_phases, time_whole
    from hpml_plugins.plugins.mlp.training import PIECES, Prefetcher, Trainer, check_weights

    on_gpu = rank.device != "cpu"
    multiply = make_multiply(rank.bench, job.product)
    plain = Trainer(rank, job, multiply)
    # On a CPU there is no other memory to copy to, and no stream.
    pinned = Trainer(rank, replace(job, pinned=True), multiply) if on_gpu else plain
    variants: dict[str, tuple[Trainer, Callable[[], None]]] = {"plain": (plain, plain.batch)}
    if on_gpu:
        variants["pinned"] = pinned, pinned.batch
        variants["pinned, pieces"] = pinned, pinned.batch_in_pieces
        variants["pinned, images ahead"] = pinned, Prefetcher(pinned, pinned.compute).batch
        last = pinned
        if job.through_host:
            # Whoever waits for non-blocking sums makes them, by another algorithm: blocking ones can be faster.
            last = Trainer(rank, replace(job, pinned=True, waiting=True), multiply)
            variants["pinned, pieces, waiting"] = last, last.batch_in_pieces
        variants["all together"] = last, Prefetcher(last, last.compute_in_pieces).batch
    else:
        variants["pieces"] = plain, plain.batch_in_pieces
    for name, (trainer, run) in variants.items():
        check_weights(trainer, run, name)
    count = COUNT["cuda" if on_gpu else "cpu"]
    taken: dict[str, list[float]] = {name: [] for name in variants}
    profiles: dict[Trainer, list[dict[str, float]]] = {plain: [], pinned: []}
    for turn in range(TURNS):
        rank.bench.progress(f"turn {turn + 1} of {TURNS}", turn / TURNS)
        for name, (_, run) in variants.items():
            taken[name] += time_whole(rank, run, count)
        for trainer, found in profiles.items():
            found.append(profile_phases(trainer, count))
    by_plain, by_pinned = (predict_variants(median_phases(profiles[each]), PIECES) for each in (plain, pinned))
    predicted = {name: (by_plain if name == "plain" else by_pinned)[PREDICTED_BY[name]] for name in variants}
    return {name: Samples.of(times, "s", turns=TURNS) for name, times in taken.items()}, predicted


def predict_variants(times: Mapping[str, float], pieces: int) -> dict[str, float]:
    """A batch's time from its phases, s: as they are, in pieces, with images ahead, with both.

    Pieces: the last product, the copies and the reduction are a pipeline. Ahead: copying images takes only what the
    rest of the batch leaves of it.
    """
    whole = sum(times[name] for name in ORDER)
    stages = [times[name] for name in (PRODUCTS[-1], TO_HOST, REDUCE, TO_DEVICE)]
    saved = sum(stages) - pipeline_seconds(stages, pieces)
    images = times[IMAGES]
    return {
        "one after the other": whole,
        "pieces": whole - saved,
        "ahead": max(whole - images, images),
        "both": max(whole - saved - images, images),
    }


OVERLAP = Benchmark(
    "mlp_overlap", measure_overlap,
    (
        Metric("plain", "s", "lower", "a batch as the exercise has it: pageable memory, one thing after the other"),
        Metric("best", "s", "lower", "the fastest of the other ways"),
        Metric("gain", "1", "higher", "plain over the fastest of the other ways"),
        Metric("predicted_gain", "1", None, "the same by the phases of both"),
    ),
    {"ranks": (2, 4, 8), "way": ("mpi", "cuda_mpi", "nccl", "gloo"), "hidden": (512, 2048), "batch": (12000,),
     "product": ("own", "torch")},
    Requires(gpus="ranks", modules=("numba.cuda", "torch")), timeout=180, version="3",
    description="A batch with pinned memory, gradients in pieces and images ahead of time, against the plain one.",
)  # fmt: skip
OVERLAP_CPU = replace(
    OVERLAP, name="mlp_overlap_cpu",
    grid={"ranks": (2, 4), "way": ("mpi", "gloo"), "hidden": (128,), "batch": (800,), "product": ("torch",)},
    requires=Requires(modules=("torch",)), timeout=120,
    description="A batch between processes on the CPU with gradients in pieces, against the plain one.",
)  # fmt: skip
