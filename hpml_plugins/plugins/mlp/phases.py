"""`mlp_phases`: one batch of data-parallel training, whole and phase by phase, with each method to
reduce gradients."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from hpml_plugins import Bench, Benchmark, Metric, Rank, Requires, Samples, Table
from hpml_plugins.plugins.mlp import formulas
from hpml_plugins.plugins.mlp.cuda_aware import takes_gpu_memory
from hpml_plugins.plugins.mlp.formulas import TERMS, Job, Product, Way, total
from hpml_plugins.plugins.mlp.tiles import Dtype

Result = Mapping[str, Samples | float]
#: The number of batches that are timed phase by phase.
PROFILED = {"cuda": 20, "cpu": 7}
#: The values of parameters in benchmarks of the CPU.
ON_CPU: Mapping[str, Any] = {
    "ranks": (2, 4),
    "way": ("mpi", "gloo"),
    "hidden": (128,),
    "batch": (800,),
    "product": ("torch",),
}


def on_ranks(function: Callable[[Rank, Job], Result]) -> Callable[..., Result]:
    """The `measure` of a batch of random images over all ranks, of the network 784 – hidden – 10.

    function: called on every rank; rank 0 attaches the series and returns the metrics.
    """

    def measure(
        bench: Bench,
        *,
        ranks: int,
        way: Way,
        hidden: int,
        batch: int,
        product: Product,
        dtype: Dtype = "float32",
    ) -> Result:
        job = Job(hidden, batch, ranks, dtype, product, way)
        metrics: Result = bench.ranks(function, ranks, job, launcher=job.launcher)[0]
        return metrics

    return measure


def on_rank(rank: Rank, job: Job) -> Result:
    """Set up, check the weights, time the batch whole, then phase by phase."""
    setup: dict[str, float] = {}
    last = time.perf_counter()

    def lap(name: str) -> None:
        nonlocal last
        now = time.perf_counter()
        setup[name], last = now - last, now

    if job.launcher == "mpi":
        from mpi4py import MPI  # noqa: F401  # MPI_Init

        lap("MPI_Init")
    from hpml_plugins.plugins.mlp.training import Trainer

    lap("imports")
    trainer = Trainer(rank, job)
    rank.barrier()
    lap("train setup")
    rank.bench.progress("checking", 0.2)
    error = trainer.check(trainer.batch, f"{job.way}, {job.product}'s products")
    lap("three batches and NumPy's")
    rank.bench.progress("timing", 0.5)
    samples = rank.time(trainer.batch, launch="visible", over="max", name="batch")
    rank.bench.progress("profiling", 0.9)
    on_gpu = rank.device != "cpu"
    times = trainer.profile(PROFILED["cuda" if on_gpu else "cpu"])
    rates = job.rates(times)
    if rank.index == 0:
        rank.bench.series(
            "phases", {"phase": list(times), "time": list(times.values())}, {"time": "s"}
        )
        rank.bench.series(
            "setup", {"part": list(setup), "time": list(setup.values())}, {"time": "s"}
        )
        attach_rows(rank.bench, "rates", [rates], formulas.RATE_UNITS)
        if chosen := getattr(trainer.network.multiply, "chosen", {}):
            products = [f"{variant} {m}x{n}x{k}" for variant, _, m, n, k in chosen]
            rank.bench.series(
                "tiles", {"product": products, "tile": [str(tile) for tile in chosen.values()]}
            )
    return {
        "batch": samples.note(
            images="random, copied from the host", launching=times[formulas.LAUNCHING]
        ),
        "compute": total(times, formulas.COMPUTED),
        "exchange": total(times, formulas.EXCHANGE),
        "compute_rate": rates["flops"],
        "explained": formulas.sum_of_phases(times, on_gpu=on_gpu) / samples.median,
        "error": error,
    }


def attach_rows(
    bench: Bench, name: str, rows: list[dict[str, float]], units: Mapping[str, str]
) -> None:
    """Attach rows of numbers as a series.  units: of columns; default: 1."""
    columns: Mapping[str, Any] = Table.of(rows).columns
    bench.series(name, columns, {column: units.get(column, "1") for column in columns})


def on_cpu(benchmark: Benchmark, description: str, timeout: float) -> Benchmark:
    """The CPU twin of a GPU benchmark, with numbers that are not comparable: the grid is that of
    ON_CPU."""
    grid = {name: ON_CPU.get(name, values) for name, values in benchmark.grid.items()}
    # the GPU's programs in numba have a twin in NumPy
    modules = tuple(each for each in benchmark.requires.modules if each != "numba.cuda")
    requires = Requires(modules=modules)
    name = f"{benchmark.name}_cpu"
    return replace(
        benchmark, name=name, grid=grid, requires=requires, timeout=timeout, description=description
    )


PHASES = Benchmark(
    "mlp_phases",
    on_ranks(on_rank),
    (
        Metric(
            "batch",
            "s",
            "lower",
            "a batch: copy images, forward, backward, add up, step; the slowest rank's",
        ),
        Metric("compute", "s", "lower", "of it: forward and backward"),
        Metric(
            "exchange", "s", "lower", "of it: gradients copied to the host, added up, copied back"
        ),
        Metric(
            "compute_rate",
            "FLOP/s",
            "higher",
            "P_flops: FLOP of the four products that the coursework counts, in their time",
        ),
        Metric("explained", "1", None, "the phases' sum over the whole batch"),
        Metric("error", "1", "lower", "of weights after three batches, against NumPy in float64"),
    ),
    {
        "ranks": (1, 2, 4, 8),
        "way": tuple(formulas.WAYS),
        "hidden": (512,),
        "batch": (3000, 12000),
        "dtype": ("float32", "float64"),
        "product": ("own", "torch"),
    },
    Requires(gpus="ranks", modules=("numba.cuda", "torch"), also=(takes_gpu_memory,)),
    timeout=180,
    terms=TERMS,
    description=(
        "A batch of data-parallel training on GPUs, whole and phase by phase, gradients added up in"
        " five ways."
    ),
)
PHASES_CPU = on_cpu(
    PHASES,
    "A batch of data-parallel training between processes on the CPU, whole and phase by phase.",
    timeout=120,
)
