"""`mlp_overlap`: the gains of pinned memory, pieces and streams, and predictions from the
phases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from hpml_plugins import Benchmark, Metric, Rank, Requires, Samples
from hpml_plugins.plugins.mlp.cuda_aware import takes_gpu_memory
from hpml_plugins.plugins.mlp.formulas import EXCHANGE, IMAGES, ORDER, PRODUCTS, TERMS, Job, total
from hpml_plugins.plugins.mlp.phases import Result, on_cpu, on_ranks

#: The number of pieces in which W1's gradient is computed, copied and reduced.
PIECES = 8
#: Batches of each variant that are timed, and of those that are profiled, alternately in each of
#: TURNS.
COUNT = {"cuda": 12, "cpu": 4}
TURNS = 5


def on_rank(rank: Rank, job: Job) -> Result:
    """The same batch plain, from pinned memory, with gradients in pieces, with images ahead, and
    all together.

    Times the variants alternately, after checking the weights of each; predicts each from the
    phases.
    """
    from hpml_plugins.plugins.mlp.training import Prefetcher, Trainer, time_in_turns

    plain = Trainer(rank, job)
    #: Name → trainer, number of pieces, whether images are copied ahead.
    variants: dict[str, tuple[Trainer, int, bool]] = {"plain": (plain, 1, False)}
    if rank.device == "cpu":  # there is no other memory to copy to, and there are no streams
        trainers = [plain]
        variants["pieces"] = plain, PIECES, False
    else:
        pinned = last = Trainer(rank, replace(job, pinned=True), plain.network.multiply)
        trainers = [plain, pinned]
        variants["pinned"] = pinned, 1, False
        variants["pinned, pieces"] = pinned, PIECES, False
        variants["pinned, images ahead"] = pinned, 1, True
        if job.through_host:
            # The waiting process computes non-blocking sums, by another algorithm: blocking ones
            # can be faster.
            last = Trainer(rank, replace(job, pinned=True, waiting=True), plain.network.multiply)
            variants["pinned, pieces, waiting"] = last, PIECES, False
        variants["all together"] = last, PIECES, True
    runs: dict[str, Callable[[], None]] = {}
    for name, (trainer, pieces, ahead) in variants.items():
        runs[name] = Prefetcher(trainer, pieces).batch if ahead else partial(trainer.batch, pieces)
        trainer.check(runs[name], name)
    rank.bench.progress("timing in turns", 0.3)
    times, phases = time_in_turns(
        runs, trainers, COUNT["cpu" if rank.device == "cpu" else "cuda"], TURNS
    )
    predicted = {
        name: predict_batch(phases[0 if name == "plain" else -1], pieces, ahead=ahead)
        for name, (_, pieces, ahead) in variants.items()
    }
    found = {name: Samples.of(values, "s", turns=TURNS) for name, values in times.items()}
    if rank.index == 0:
        numbers = {
            "time": [each.median for each in found.values()],
            "predicted": list(predicted.values()),
        }
        rank.bench.series(
            "ways", {"variant": list(found), **numbers}, {"time": "s", "predicted": "s"}
        )
        for name, samples in found.items():
            rank.bench.warn_if_imprecise(samples, name)
    best = min((name for name in found if name != "plain"), key=lambda name: found[name].median)
    return {
        "plain": found["plain"],
        "best": found[best],
        "gain": found["plain"].median / found[best].median,
        "predicted_gain": predicted["plain"] / predicted[best],
    }


def predict_batch(times: Mapping[str, float], pieces: int, *, ahead: bool) -> float:
    """A batch's time from its phases, s.

    pieces: the last product, the copies and the reduction are a pipeline of q pieces, Σ t / q + (q
    − 1) max t / q, each of which costs its exact share.  ahead: copying images only costs the part
    that the rest does not hide.
    """
    stages = [times[name] for name in (PRODUCTS[-1], *EXCHANGE)]
    batch = total(times, ORDER) - sum(stages) + (sum(stages) + (pieces - 1) * max(stages)) / pieces
    return max(batch - times[IMAGES], times[IMAGES]) if ahead else batch


OVERLAP = Benchmark(
    "mlp_overlap",
    on_ranks(on_rank),
    (
        Metric(
            "plain",
            "s",
            "lower",
            "a batch as the coursework has it: pageable memory, one thing after the other",
        ),
        Metric("best", "s", "lower", "the fastest of the other ways"),
        Metric("gain", "1", "higher", "plain over the fastest of the other ways"),
        Metric("predicted_gain", "1", None, "the same by the phases of both"),
    ),
    {
        "ranks": (2, 4, 8),
        "way": ("mpi", "cuda_mpi", "nccl", "gloo"),
        "hidden": (512, 2048),
        "batch": (12000,),
        "product": ("own", "torch"),
    },
    Requires(gpus="ranks", modules=("numba.cuda", "torch"), also=(takes_gpu_memory,)),
    timeout=180,
    version="3",
    terms=TERMS,
    description=(
        "A batch with pinned memory, gradients in pieces and images ahead of time, against the"
        " plain one."
    ),
)
OVERLAP_CPU = on_cpu(
    OVERLAP,
    "A batch between processes on the CPU with gradients in pieces, against the plain one.",
    timeout=120,
)
