"""The benchmarks `tta_utilisation` and `tta_utilisation_cpu`: what the processor does while a network is trained."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hpml_plugins import Bench, Benchmark, HpmlError, Metric, Requires
from hpml_plugins.plugins.tta.recipes import BASE, Recipe, read_recipe, trick_names, with_trick
from hpml_plugins.plugins.tta.time_to_accuracy import CIFARS, TORCH

if TYPE_CHECKING:
    from hpml_plugins import DataSet
    from hpml_plugins.plugins.tta.training import Trainer

THROUGHPUT = Metric("throughput", "1/s", "higher", "images trained on")
CORE = Metric("utilisation", "1", "higher", "mean share of time in which the processor computed")
METRICS = (
    THROUGHPUT,
    CORE,
    Metric("memory_utilisation", "1", "higher", "mean share of time in which the GPU's memory was read or written"),
)
#: Column of the series → column of the meter.
COLUMNS = {"time": "time", "core": "utilization", "memory": "memory_utilization", "power": "power"}
#: s of training before the watch, so that loaders and clocks are at their pace.
SETTLE = 2.0
#: The first epoch that is watched: whose images are in another order than those before.
LATER = 1000
#: s between two rows of the series: NVML's figures are means over the last sixth of a second to second.
INTERVAL = 0.2
#: Rows of the series, however long the watch.
MOST_ROWS = 300


def measure_utilisation(bench: Bench, *, trick: str, data: str, seconds: float) -> Mapping[str, float]:
    """Train ResNet-50, batch 128, for `seconds` s by the coursework's recipe with one trick, and watch the GPU."""
    recipe = with_trick(read_recipe(BASE, data), trick).on(bench.device)
    images = bench.data(data)
    bench.progress(f"{trick}: setting up", 0.0)
    row, meter = watch(bench, recipe, images, seconds)
    columns = {name: column for name, column in COLUMNS.items() if column in meter.columns}
    series = {name: meter.columns[column] for name, column in columns.items()}
    bench.series("utilisation", series, {name: meter.units[column] for name, column in columns.items()})
    bench.series("work", {name: [value] for name, value in row.items()})
    return {metric.name: row[metric.name] for metric in METRICS if metric.name in row}


def watch(bench: Bench, recipe: Recipe, images: DataSet, seconds: float) -> tuple[dict[str, float], Any]:
    """Train by the recipe for `seconds` s: rate, mean utilisation and power, energy per image; and the meter."""
    from hpml_plugins.plugins.tta.training import training

    with training(recipe, images, bench.device, evaluates=False) as trainer:
        trainer.start(bench.seed)
        before, _ = train_for(trainer, bench.seed, min(SETTLE, seconds / 2))
        with bench.meter(max(INTERVAL, seconds / MOST_ROWS)) as meter:
            steps, spent = train_for(trainer, bench.seed, seconds, LATER)
        bench.check(
            int(bench.result(trainer.number).item()) == before + steps,
            "the device counted as many steps as were launched",
        )
    if "utilization" not in meter.columns:
        raise HpmlError(f"the GPU's utilisation is not known: {meter.problem}")
    row = {
        "throughput": steps * recipe.batch / spent,
        "setup": trainer.setup,
        "utilisation": meter.mean("utilization"),
        "memory_utilisation": meter.mean("memory_utilization"),
        "power": meter.mean("power"),
        "energy_per_image": None if meter.energy is None else meter.energy / (steps * recipe.batch),
    }
    return {name: value for name, value in row.items() if value is not None}, meter


def train_for(trainer: Trainer, seed: int, seconds: float, epoch: int = 0) -> tuple[int, float]:
    """Train on for about so long, from this epoch on, whatever the schedule: how many steps, in how many s."""
    started = time.perf_counter()
    steps = 0
    while time.perf_counter() - started < seconds:
        for launched in trainer.train(seed, epoch, range(trainer.steps_an_epoch)):
            steps += launched
            if time.perf_counter() - started >= seconds:
                break
        epoch += 1
        # Once an epoch: the host must not run ahead of the clock that ends this.
        trainer.synchronise()
    return steps, time.perf_counter() - started


TERMS = {
    "trick=lab": "the coursework's training script unchanged",
    "trick=workers": "lab with eight loading processes and pinned memory",
    "trick=precision": "lab in bfloat16",
    "trick=on_device": "lab with all images on the GPU",
    "trick=graph": "lab with each step as one CUDA graph",
    "trick=compile": "lab with torch.compile",
    "trick=batch": "lab with a batch eight times as large",
    "trick=graphed": "all of these changes but compile and batch",
    "trick=all": "all of these changes but batch",
    "seconds": "how long the training is observed",
}
UTILISATION = Benchmark(
    "tta_utilisation", measure_utilisation, METRICS,
    {"trick": trick_names(), "data": CIFARS, "seconds": (20, 180)},
    Requires(gpus=1, data="data", modules=TORCH), timeout=600, rounds=1, terms=TERMS,
    description="ResNet-50, batch 128, trained for some seconds: GPU core and memory utilisation, power.",
)  # fmt: skip
UTILISATION_CPU = replace(
    UTILISATION, name="tta_utilisation_cpu", metrics=(THROUGHPUT, CORE),
    grid={"trick": ("lab", "on_device"), "data": ("digits",), "seconds": (2,)},
    requires=Requires(data="data", modules=TORCH), timeout=120,
    description="The same code on the CPU: a small network on the digits, and the CPUs' utilisation.",
)  # fmt: skip
