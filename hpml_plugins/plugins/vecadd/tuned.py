"""The benchmark `vecadd_tuned`: a kernel fitted to the card, and what libraries reach beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from hpml_plugins import Bench, Benchmark, HpmlError, Metric, Requires, Samples
from hpml_plugins.plugins.vecadd.vectors import FLOAT32, METRICS, MILLION, bandwidth, bytes_moved, is_sum, vectors

if TYPE_CHECKING:
    from hpml_plugins.plugins.vecadd.configurations import Configuration

IMPLEMENTATIONS = ("tuned", "torch", "cupy")
SIZES = (1, 10, 100, 400)
#: How often own and torch's additions take turns, in all rounds of a point together, and how long each samples, s.
ROUNDS = 5
TURN = 0.3

Step = Callable[[], object]
Info = dict[str, str | float]


def measure(bench: Bench, *, millions: int, implementation: str) -> Mapping[str, Samples]:
    """Time c = a + b of `millions` million float32 on the GPU, as fast as it goes.

    implementation: "tuned" (numba, the fastest of some configurations on this card and size), "torch" or "cupy". Its
    time is held against torch.add's in the same process, on the same memory, in turns. Raises HpmlError for another
    implementation.
    """
    if implementation not in IMPLEMENTATIONS:
        known = ", ".join(IMPLEMENTATIONS)
        raise HpmlError(f"vecadd_tuned has no implementation {implementation!r}; use one of {known}")
    elements = millions * MILLION

    import torch

    from hpml_plugins.plugins.vecadd.candidates import Candidates, add_with_cupy, add_with_torch, spoil

    free, _ = torch.cuda.mem_get_info()
    if bytes_moved(elements) > 0.9 * free:
        bench.skip(f"needs {bytes_moved(elements) / 2**30:.2f} GiB of GPU memory, {free / 2**30:.2f} GiB are free")
    bench.progress(f"making vectors of {millions} million", 0.0)
    a, b, c = vectors(elements, bench.seed)
    on_gpu = [torch.from_numpy(vector).cuda() for vector in (a, b, c)]

    with_torch = add_with_torch(bench, on_gpu)
    info: Info = {}
    if implementation == "tuned":
        step, info = _tuned(bench, Candidates(bench, on_gpu))
    elif implementation == "cupy":
        step = add_with_cupy(bench, on_gpu)
    else:
        step = with_torch

    bench.progress("checking", 0.85)
    spoil(on_gpu[2])
    step()
    torch.from_numpy(c).copy_(on_gpu[2])
    bench.check(is_sum(a, b, c), "sum differs from NumPy's")
    bench.progress("timing", 0.9)
    time = bench.time(step)
    time = replace(time, info={**time.info, **info})
    ratio = speed_against(step, with_torch, lambda each: _quick(bench, each, TURN), -(-ROUNDS // bench.plan.rounds))
    bench.progress("timing a copy", 0.97)
    copy = bench.time(lambda: on_gpu[2].copy_(on_gpu[0]), name="copy")
    return {
        "time": time,
        "bandwidth": bandwidth(elements, time),
        "vs_torch": ratio,
        "copy_bandwidth": 2 * FLOAT32 * elements / copy,
    }


def speed_against(own: Step, other: Step, seconds: Callable[[Step], float], rounds: int) -> Samples:
    """How many times as fast `own` is as `other`, one sample a round; both are timed in every round.

    seconds: the time of one call of a step. Who goes first changes from round to round, so that a card that warms up
    favours neither.
    """
    ratios = []
    for number in range(rounds):
        first, second = (own, other) if number % 2 == 0 else (other, own)
        taken = seconds(first), seconds(second)
        mine, theirs = taken if number % 2 == 0 else reversed(taken)
        ratios.append(theirs / mine)
    return Samples.of(ratios, "1", rounds=rounds)


def _tuned(bench: Bench, candidates: Any) -> tuple[Step, Info]:
    """The fastest configuration's step and what it is; every time that was tried becomes a series.

    The search is that of the point's first round.
    """
    from hpml_plugins.plugins.vecadd.configurations import Configuration, tune

    def seconds(configuration: Configuration, budget: float) -> float:
        return _quick(bench, candidates.step(configuration), budget)

    def search() -> list[tuple[dict[str, Any], float]]:
        found = tune(seconds, candidates.cachings(), bench.progress)
        return [(asdict(configuration), time) for configuration, time in found.items()]

    tried = {Configuration(**fields): time for fields, time in bench.once("tuning", search)}
    bench.series("tuning", columns(tried), dict.fromkeys(COLUMNS, "1") | {"time": "s"})
    best = next(iter(tried))
    return candidates.step(best), {
        "configuration": str(best),
        "width": best.width,
        "unroll": best.unroll,
        "threads": best.threads,
        "blocks": candidates.blocks(best),
        "grid": "resident" if best.resident else "one pass",
        "caching": best.caching,
        "configurations": len(tried),
    }


COLUMNS = ("width", "unroll", "threads", "resident", "streaming", "bypass")


def columns(tried: Mapping[Configuration, float]) -> dict[str, list[float]]:
    """Configurations and their times, s, as columns of numbers; what is a word becomes columns of 0 and 1."""
    rows = [
        (each.width, each.unroll, each.threads, each.resident, each.caching == "streaming", each.caching == "bypass")
        for each in tried
    ]
    found = {name: [float(row[i]) for row in rows] for i, name in enumerate(COLUMNS)}
    return {**found, "time": list(tried.values())}


def _quick(bench: Bench, step: Step, budget: float) -> float:
    """The median time of a step, s, sampled for `budget` s. What such a short look warns of is no news of the point."""
    return Bench(bench.node, bench.params, gpus=bench.gpus).time(step, budget=budget).median


VECADD_TUNED = Benchmark(
    "vecadd_tuned",
    measure,
    metrics=(
        *METRICS,
        Metric("vs_torch", "1", "higher", "torch.add's time over this one, in turns in one process; 1: as fast"),
        Metric("copy_bandwidth", "B/s", "higher", "of a copied into c by the driver, 8 B an element, in one process"),
    ),
    grid={"millions": SIZES, "implementation": IMPLEMENTATIONS},
    requires=Requires(gpus=1, modules=("numba.cuda", "torch")),
    version="1",
    timeout=300,
    description="c = a + b of float32 vectors, tuned for the card; torch.add and CuPy beside it.",
)
