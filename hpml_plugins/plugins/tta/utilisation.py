"""The benchmarks `tta_utilisation`, `tta_tricks` and their `_cpu` twins: the utilisation of the
processor, and how to raise it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hpml_plugins import Bench, Benchmark, HpmlError, Metric, Requires, Table
from hpml_plugins.plugins.tta.recipes import (
    BASE,
    Recipe,
    read_recipe,
    read_tricks,
    trick_names,
    with_tricks,
)
from hpml_plugins.plugins.tta.time_to_accuracy import CIFARS, TORCH

if TYPE_CHECKING:
    from hpml_plugins import DataSet
    from hpml_plugins.plugins.tta.training import Trainer

THROUGHPUT = Metric("throughput", "1/s", "higher", "images trained on")
CORE = Metric("utilisation", "1", "higher", "mean share of time in which the processor computed")
METRICS = (
    THROUGHPUT,
    CORE,
    Metric(
        "memory_utilisation",
        "1",
        "higher",
        "mean share of time in which the GPU's memory was read or written",
    ),
)
TRICK_METRICS = (
    Metric("throughput_before", "1/s", "higher", "images trained on, by the baseline recipe"),
    Metric("throughput_after", "1/s", "higher", "of the fastest variant with the same batch"),
    Metric("speedup", "1", "higher", "after over before"),
    Metric(
        "utilisation_before", "1", "higher", "mean share of time in which the processor computed"
    ),
    Metric("utilisation_after", "1", "higher", "of the fastest variant with the same batch"),
)
TRICK_UNITS = {
    "batch": "1",
    "throughput": "1/s",
    "setup": "s",
    "power": "W",
    "energy_per_image": "J",
}
TRICK_UNITS |= {"utilisation": "1", "memory_utilisation": "1"}
#: Column of the series → column of the meter.
COLUMNS = {"time": "time", "core": "utilization", "memory": "memory_utilization", "power": "power"}
#: s of training before the observation, so that loaders and clocks are in steady state.
SETTLE = 2.0
#: The first epoch that is observed; its images are in another order than those before.
LATER = 1000
#: s between two rows of the series: NVML's figures are means over the last sixth of a second to
#: second.
INTERVAL = 0.2
#: Rows of the series, for any length of observation.
MOST_ROWS = 300


def measure_utilisation(
    bench: Bench, *, trick: str, data: str, seconds: float
) -> Mapping[str, float]:
    """Train ResNet-50, batch 128, for `seconds` s by the coursework's recipe with one trick, and
    watch the GPU."""
    recipe = with_tricks(read_recipe(BASE, data), trick).on(bench.device)
    images = bench.data(data)
    bench.progress(f"{trick}: setting up", 0.0)
    row, meter = watch(bench, recipe, images, seconds)
    columns = {name: column for name, column in COLUMNS.items() if column in meter.columns}
    series = {name: meter.columns[column] for name, column in columns.items()}
    bench.series(
        "utilisation", series, {name: meter.units[column] for name, column in columns.items()}
    )
    bench.series("work", {name: [value] for name, value in row.items()})
    return {metric.name: row[metric.name] for metric in METRICS if metric.name in row}


def watch(
    bench: Bench, recipe: Recipe, images: DataSet, seconds: float
) -> tuple[dict[str, float], Any]:
    """Train by the recipe for `seconds` s: rate, mean utilisation and power, energy per image; and
    the meter."""
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
    """Continue training for about this time, from this epoch on, beyond the schedule if necessary;
    returns the number of steps and the time, s."""
    started = time.perf_counter()
    steps = 0
    while time.perf_counter() - started < seconds:
        for _ in trainer.train(seed, epoch, range(trainer.steps_an_epoch)):
            steps += 1
            if time.perf_counter() - started >= seconds:
                break
        epoch += 1
        # Once per epoch: the host must not run ahead of the clock that ends this.
        trainer.synchronise()
    return steps, time.perf_counter() - started


def measure_tricks(
    bench: Bench, *, data: str, seconds: float, compiled: bool
) -> Mapping[str, float]:
    """Train each trick alone and together with those before it for `seconds` s each, in one
    process."""
    images = bench.data(data)
    variants = list(rows(read_recipe(BASE, data), bench.device, compiled=compiled))
    found: list[dict[str, Any]] = []
    for number, (name, kind, recipe) in enumerate(variants):
        bench.progress(f"{name}, {kind}", number / len(variants))
        try:
            row, _ = watch(bench, recipe, images, seconds)
        except HpmlError:
            raise
        except Exception as error:
            # A trick that fails on this node (for example without a compiler) must not affect the
            # others.
            bench.warn(
                f"{name}, {kind}: not measured: {type(error).__name__}:"
                f" {str(error).splitlines()[0][:200]}"
            )
        else:
            found.append({"trick": name, "kind": kind, "batch": float(recipe.batch), **row})
        _free_memory(bench.device)
    if not found or found[0]["trick"] != BASE:
        raise HpmlError(
            "the baseline recipe could not be measured; there is nothing to compare with"
        )
    table: Any = Table.of(found, TRICK_UNITS).select(
        *(name for name in found[0] if all(name in row for row in found))
    )
    bench.series("tricks", table.columns, table.units)
    before = found[0]
    after = max(
        (row for row in found if row["batch"] == before["batch"]),
        key=lambda row: float(row["throughput"]),
    )
    return {
        "throughput_before": before["throughput"],
        "throughput_after": after["throughput"],
        "speedup": after["throughput"] / before["throughput"],
        "utilisation_before": before["utilisation"],
        "utilisation_after": after["utilisation"],
    }


def rows(recipe: Recipe, device: str, *, compiled: bool) -> Iterator[tuple[str, str, Recipe]]:
    """(trick, "alone" or "together", recipe) of each variant to be measured on this device, without
    duplicates.

    compiled: whether to include tricks that compile. Tricks without effect on the device are left
    out.
    """
    tricks = list(read_tricks())
    variants = [
        (BASE, "alone", recipe),
        *((name, "alone", with_tricks(recipe, name)) for name in tricks),
    ]
    for last in range(2, len(tricks) + 1):
        chosen = [name for name in tricks[:last] if compiled or name != "compile"]
        variants.append((f"+ {chosen[-1]}", "together", with_tricks(recipe, *chosen)))
    seen: set[str] = set()
    for name, kind, changed in variants:
        runs_as = changed.on(device)
        if runs_as.fingerprint() not in seen and (compiled or not runs_as.compile):
            seen.add(runs_as.fingerprint())
            yield name, kind, runs_as


def _free_memory(device: str) -> None:
    """Free the memory of a variant, and dynamo's state of a failed one."""
    if device.startswith("cuda"):
        import gc

        import torch

        gc.collect()
        torch._dynamo.reset()
        torch.cuda.empty_cache()


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
    "tta_utilisation",
    measure_utilisation,
    METRICS,
    {"trick": trick_names(), "data": CIFARS, "seconds": (20, 180)},
    Requires(gpus=1, data="data", modules=TORCH),
    timeout=600,
    rounds=1,
    terms=TERMS,
    description=(
        "ResNet-50, batch 128, trained for some seconds: GPU core and memory utilisation, power."
    ),
)
UTILISATION_CPU = replace(
    UTILISATION,
    name="tta_utilisation_cpu",
    metrics=(THROUGHPUT, CORE),
    grid={"trick": ("lab", "on_device"), "data": ("digits",), "seconds": (2,)},
    requires=Requires(data="data", modules=TORCH),
    timeout=120,
    description=(
        "The same code on the CPU: a small network on the digits, and the CPUs' utilisation."
    ),
)
TRICKS = replace(
    UTILISATION,
    name="tta_tricks",
    measure=measure_tricks,
    metrics=TRICK_METRICS,
    grid={"data": CIFARS, "seconds": (3, 10), "compiled": (False, True)},
    timeout=1200,
    terms={},
    description=(
        "What drives the GPU's utilisation up, one trick at a time and together, each with its"
        " effect."
    ),
)
TRICKS_CPU = replace(
    UTILISATION_CPU,
    name="tta_tricks_cpu",
    measure=measure_tricks,
    metrics=TRICK_METRICS,
    grid={"data": ("digits",), "seconds": (0.5,), "compiled": (False,)},
    timeout=300,
    terms={},
    description="The same code on the CPU, as far as the tricks mean anything there.",
)
