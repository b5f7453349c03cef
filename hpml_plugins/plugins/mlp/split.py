"""`mlp_split`: data parallel against model parallel, bytes and time, predicted and measured."""

from __future__ import annotations

from collections.abc import Mapping

from hpml_plugins import Benchmark, Metric, Rank
from hpml_plugins.plugins.mlp.formulas import (
    COMPUTED,
    EXCHANGE,
    RATE_UNITS,
    STEP,
    TERMS,
    Job,
    total,
)
from hpml_plugins.plugins.mlp.overlap import OVERLAP
from hpml_plugins.plugins.mlp.phases import PROFILED, Result, attach_rows, on_cpu, on_ranks


def on_rank(rank: Rank, job: Job) -> Result:
    """Train a batch both ways: check the weights, count the transferred bytes, time it, and time
    the data-parallel phases."""
    from hpml_plugins.plugins.mlp.training import CHECKED, SplitTrainer, Trainer

    trainer = Trainer(rank, job)
    trainer.check(trainer.batch, "data parallel")
    handed = [trainer.exchange.handed / CHECKED]
    data = rank.time(trainer.compute, launch="visible", over="max", name="data parallel")
    times = trainer.profile(PROFILED["cpu" if rank.device == "cpu" else "cuda"])

    rank.bench.progress("model parallel", 0.5)
    split = SplitTrainer(rank, job, trainer.network.multiply)
    split.check(split.compute_split, "model parallel")
    handed.append(split.exchange.handed / CHECKED)
    model = rank.time(split.compute_split, launch="visible", over="max", name="model parallel")

    predicted = predict_both(job, times)
    if rank.index == 0:
        attach_rows(rank.bench, "rates", [job.rates(times)], RATE_UNITS)
        counted: list[float] = [job.parameters * job.item, job.batch * job.classes * job.item]
        numbers = {
            "time": [data.median, model.median],
            "predicted": predicted,
            "handed": handed,
            "counted": counted,
        }
        units = {"time": "s", "predicted": "s", "handed": "B", "counted": "B"}
        rank.bench.series("predicted", {"how": ["data", "model"], **numbers}, units)
    return {
        "data": data,
        "model": model,
        "data_bytes": handed[0],
        "model_bytes": handed[1],
        "gain": data.median / model.median,
        "predicted_gain": predicted[0] / predicted[1],
    }


def predict_both(job: Job, times: Mapping[str, float]) -> list[float]:
    """Seconds of a batch, data and model parallel, excluding images, from the data-parallel phases.

    Both do the same work: H / p rows for all images equal H rows for 1 / p of the images. A rank
    does 1 / p of it. B C outputs are copied and reduced instead of the gradients; the time is
    assumed to be proportional.
    """
    compute, exchange, step = total(times, COMPUTED), total(times, EXCHANGE), times[STEP]
    fewer = job.batch * job.classes / job.parameters
    return [compute + exchange + step, compute + fewer * exchange + step / job.ranks]


SPLIT = Benchmark(
    "mlp_split",
    on_ranks(on_rank),
    (
        Metric("data", "s", "lower", "a batch, data parallel; images lie on the device in both"),
        Metric("model", "s", "lower", "a batch, model parallel"),
        Metric(
            "data_bytes",
            "B",
            "lower",
            "handed over to be added up by each rank in a batch, data parallel, counted",
        ),
        Metric("model_bytes", "B", "lower", "the same, model parallel"),
        Metric("gain", "1", None, "data over model"),
        Metric("predicted_gain", "1", None, "the same by the rates of the data-parallel phases"),
    ),
    {**OVERLAP.grid, "batch": (3000,)},
    OVERLAP.requires,
    timeout=180,
    terms=TERMS,
    description=(
        "Model parallel (W1 by rows, W2 by columns) against data parallel on GPUs: bytes and time."
    ),
)
SPLIT_CPU = on_cpu(
    SPLIT, "Model parallel against data parallel between processes on the CPU.", timeout=120
)
