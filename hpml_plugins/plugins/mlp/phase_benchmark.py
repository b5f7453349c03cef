"""The benchmark `mlp_phases`: one batch of data-parallel training, whole and phase by phase, by each way to add up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hpml_plugins import Bench, Metric, Rank, Samples
from hpml_plugins.plugins.mlp.phases import COMPUTED, COUNTED, LAUNCHING, REDUCE, SETUP, TO_DEVICE, TO_HOST, added_up
from hpml_plugins.plugins.mlp.tiles import Dtype

if TYPE_CHECKING:
    from hpml_plugins.plugins.mlp.job import Job, Product, Way

METRICS = (
    Metric("batch", "s", "lower", "a batch: copy images, forward, backward, add up, step; the slowest rank's"),
    Metric("compute", "s", "lower", "of it: forward and backward"),
    Metric("exchange", "s", "lower", "of it: gradients copied to the host, added up, copied back"),
    Metric(
        "compute_rate", "FLOP/s", "higher", "P_flops: FLOP of the four products that the exercise counts, in their time"
    ),
    Metric("explained", "1", None, "the phases' sum over the whole batch"),
    Metric("error", "1", "lower", "of weights after three batches, against NumPy in float64"),
)
#: How many batches are looked at phase by phase.
PROFILED = {"cuda": 20, "cpu": 7}


@dataclass(frozen=True)
class Found:
    """What the ranks found. times: phase → s.  setup: part of the set-up → s.  tiles: product → tile, for ours."""

    batch: Samples
    times: Mapping[str, float]
    setup: Mapping[str, float]
    error: float
    tiles: Mapping[str, str]


def measure_phases(
    bench: Bench, *, ranks: int, way: Way, hidden: int, batch: int, dtype: Dtype, product: Product
) -> Mapping[str, Samples | float]:
    """A batch of `batch` images over all ranks of the network 784 – hidden – 10, on random images.

    way: who adds gradients up: "mpi" (through the host, as the exercise does), "cuda_mpi" (an MPI that takes GPU
    memory), "nccl" or "gloo".  product: "own" (the tiled kernel) or "torch".
    """
    from hpml_plugins.plugins.mlp.formulas import counted_flops, share
    from hpml_plugins.plugins.mlp.job import Job

    share(batch, ranks)
    job = Job(hidden, batch, dtype, product, way)
    found: Found = bench.ranks(on_rank, ranks, job, launcher=job.launcher)[0]
    times, sizes = found.times, job.sizes
    bench.series("phases", {"phase": list(times), "time": list(times.values())}, {"time": "s"})
    bench.series("setup", {"part": list(found.setup), "time": list(found.setup.values())}, {"time": "s"})
    rates = rates_of(job, ranks, times)
    bench.series("rates", {name: [value] for name, value in rates.items()}, RATE_UNITS)
    if found.tiles:
        bench.series("tiles", {"product": list(found.tiles), "tile": list(found.tiles.values())})

    compute = sum(times[name] for name in COMPUTED)
    images = share(batch, ranks)
    return {
        "batch": found.batch,
        "compute": compute,
        "exchange": times[TO_HOST] + times[REDUCE] + times[TO_DEVICE],
        "compute_rate": counted_flops(sizes, images) / sum(times[name] for name in COUNTED),
        "explained": added_up(times, on_gpu=bench.device == "cuda") / found.batch.median,
        "error": found.error,
    }


RATE_UNITS = {"flops": "FLOP/s", "pci": "B/s", "mpi": "B/s"}


def rates_of(job: Job, ranks: int, times: Mapping[str, float]) -> dict[str, float]:
    """P_flops, P_pci and P_mpi from a batch's phases; what a way does not do is left out."""
    from hpml_plugins.plugins.mlp.formulas import copied_bytes, counted_flops, reduced_bytes, share

    rates = {"flops": counted_flops(job.sizes, share(job.batch, ranks)) / sum(times[name] for name in COUNTED)}
    if copies := times[TO_HOST] + times[TO_DEVICE]:
        rates["pci"] = copied_bytes(job.sizes, job.item) / copies
    if ranks > 1:
        rates["mpi"] = reduced_bytes(job.sizes, job.item, ranks) / times[REDUCE]
    return rates


def on_rank(rank: Rank, job: Job) -> Found:
    """Set up, check the weights, time the batch whole, then phase by phase."""
    setup: dict[str, float] = {}
    started = _Laps(setup)
    if job.launcher == "mpi":
        from mpi4py import MPI  # noqa: F401  # MPI_Init

        started.lap("MPI_Init")
    from hpml_plugins.plugins.mlp.phases import Phases
    from hpml_plugins.plugins.mlp.profiling import profiled
    from hpml_plugins.plugins.mlp.training import Trainer, checked_error, multiplier

    started.lap("imports")
    multiply = multiplier(job.product, rank.device)
    phases = Phases(rank.device)
    phases.active = True
    with phases(SETUP, on_host=True):
        trainer = Trainer(rank, job, multiply, phase=phases)
    phases.active = False
    rank.barrier()
    started.lap(SETUP)
    rank.bench.progress("checking", 0.2)
    error = checked_error(rank, trainer, trainer.batch, f"{job.way}, {job.product}'s products")
    started.lap("three batches and NumPy's")
    rank.bench.progress("timing", 0.5)
    samples = rank.time(trainer.batch, launch="visible", over="max", name="batch")
    rank.bench.progress("profiling", 0.9)
    times = profiled(rank, trainer, phases, PROFILED["cuda" if rank.device.startswith("cuda") else "cpu"])
    chosen = getattr(multiply, "chosen", {})
    tiles = {f"{variant} {m}x{n}x{k}": str(tile) for (variant, _, m, n, k), tile in chosen.items()}
    about: dict[str, str | float] = {"images": "random, copied from the host", "launching": times[LAUNCHING]}
    return Found(replace(samples, info={**samples.info, **about}), times, setup, error, tiles)


class _Laps:
    """Splits the set-up into laps by the host's clock."""

    def __init__(self, into: dict[str, float]) -> None:
        import time

        self._clock, self._into, self._last = time.perf_counter, into, time.perf_counter()

    def lap(self, name: str) -> None:
        """End the lap of this name."""
        now = self._clock()
        self._into[name], self._last = now - self._last, now
