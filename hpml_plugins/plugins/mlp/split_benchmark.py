"""The benchmark `mlp_split`: data parallel against model parallel, bytes and time, predicted and measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from hpml_plugins import Bench, Metric, Rank, Samples
from hpml_plugins.plugins.mlp.phase_benchmark import RATE_UNITS, rates_of
from hpml_plugins.plugins.mlp.phases import COMPUTED, REDUCE, STEP, TO_DEVICE, TO_HOST

if TYPE_CHECKING:
    from hpml_plugins.plugins.mlp.job import Job, Product, Way

METRICS = (
    Metric("data", "s", "lower", "a batch, data parallel; images lie on the device in both"),
    Metric("model", "s", "lower", "a batch, model parallel"),
    Metric("data_bytes", "B", "lower", "handed over to be added up by each rank in a batch, data parallel, counted"),
    Metric("model_bytes", "B", "lower", "the same, model parallel"),
    Metric("gain", "1", None, "data over model"),
    Metric("predicted_gain", "1", None, "the same by the rates of the data-parallel phases"),
)
COUNT = {"cuda": 20, "cpu": 7}


def measure_split(
    bench: Bench, *, ranks: int, way: Way, hidden: int, batch: int, product: Product
) -> Mapping[str, Samples | float]:
    """A batch of the network 784 – hidden – 10 both ways, in float32; their weights are checked."""
    from hpml_plugins.plugins.mlp.formulas import share
    from hpml_plugins.plugins.mlp.job import Job

    share(batch, ranks)
    job = Job(hidden, batch, "float32", product, way)
    data, model, handed, times = bench.ranks(on_rank, ranks, job, launcher=job.launcher)[0]
    rates = rates_of(job, ranks, times)
    predicted = predictions(job, ranks, times, rates)
    bench.series("rates", {name: [value] for name, value in rates.items()}, RATE_UNITS)
    bench.series(
        "predicted",
        {
            "how": ["data", "model"],
            "time": [data.median, model.median],
            "predicted": [predicted["data"], predicted["model"]],
            "handed": [float(handed[0]), float(handed[1])],
            "counted": [float(job.sizes.parameters * job.item), float(batch * job.classes * job.item)],
        },
        {"time": "s", "predicted": "s", "handed": "B", "counted": "B"},
    )
    return {
        "data": data,
        "model": model,
        "data_bytes": float(handed[0]),
        "model_bytes": float(handed[1]),
        "gain": data.median / model.median,
        "predicted_gain": predicted["data"] / predicted["model"],
    }


def predictions(job: Job, ranks: int, times: Mapping[str, float], rates: Mapping[str, float]) -> dict[str, float]:
    """Seconds of a batch both ways, images apart.

    Both compute as much, for H / p rows of all images are as many as H rows of 1 / p of them; a rank's step is a p-th.
    """
    from hpml_plugins.plugins.mlp.formulas import copied_bytes, split_copied_bytes, split_reduced_bytes

    compute = sum(times[name] for name in COMPUTED)
    copies = times[TO_HOST] + times[TO_DEVICE]
    copied = split_copied_bytes(job.sizes, job.batch, job.item) / copied_bytes(job.sizes, job.item)
    reduced = split_reduced_bytes(job.sizes, job.batch, job.item, ranks) / rates.get("mpi", float("inf"))
    return {
        "data": compute + copies + times[REDUCE] + times[STEP],
        "model": compute + copied * copies + reduced + times[STEP] / ranks,
    }


def on_rank(rank: Rank, job: Job) -> tuple[Samples, Samples, tuple[int, int], dict[str, float]]:
    """Time both, count what they hand over, check their weights; the data-parallel phases too."""
    from hpml_plugins.plugins.mlp import reference
    from hpml_plugins.plugins.mlp.job import RATE, REG
    from hpml_plugins.plugins.mlp.phases import Phases
    from hpml_plugins.plugins.mlp.profiling import profiled
    from hpml_plugins.plugins.mlp.split import SplitTrainer
    from hpml_plugins.plugins.mlp.training import CHECKED, TOLERANCE, Trainer, checked_error, multiplier, wanted_weights

    multiply = multiplier(job.product, rank.device)
    phases = Phases(rank.device)
    trainer = Trainer(rank, job, multiply, phase=phases)
    checked_error(rank, trainer, trainer.batch, "data parallel")
    network, exchange = trainer.network, trainer.exchange
    handed = 0

    def batch() -> None:
        nonlocal handed
        network.forward()
        network.backward(job.batch)
        handed += network.gradient.nbytes
        exchange.reduce(network.gradient)
        network.step(RATE, REG)

    batch()
    handed_by_data = handed
    data = rank.time(batch, launch="visible", over="max", name="data parallel")
    times = profiled(rank, trainer, phases, COUNT["cuda" if rank.device.startswith("cuda") else "cpu"])

    rank.bench.progress("model parallel", 0.5)
    split = SplitTrainer(rank, job, multiply)
    split.reset()
    for _ in range(CHECKED):
        split.batch()
    handed_by_model = split.handed // CHECKED
    found = split.gathered(rank)
    if rank.index == 0:
        wanted = wanted_weights(job.sizes, job.batch, rank.bench.seed)
        error = rank.bench.result(reference.relative_error(found, wanted))
        rank.bench.check(error <= TOLERANCE[job.dtype], "model parallel: weights differ from NumPy's in float64")
    model = rank.time(split.batch, launch="visible", over="max", name="model parallel")
    return data, model, (handed_by_data, handed_by_model), times
