"""The benchmarks `tta_utilisation` and `tta_tricks`: what the processor does while a network is trained."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hpml_plugins import Bench, HpmlError, Metric
from hpml_plugins.plugins.tta.tricks import BASE, rows, with_trick

if TYPE_CHECKING:
    from hpml_plugins import DataSet
    from hpml_plugins.plugins.tta.meter import Meter
    from hpml_plugins.plugins.tta.recipes import Recipe
    from hpml_plugins.plugins.tta.training import Trainer

THROUGHPUT = Metric("throughput", "1/s", "higher", "images trained on")
CORE = Metric("utilisation", "1", "higher", "mean share of time in which the processor computed")
UTILISATION_METRICS = (
    THROUGHPUT,
    CORE,
    Metric("memory_utilisation", "1", "higher", "mean share of time in which the GPU's memory was read or written"),
)
TRICKS_METRICS = (
    Metric("throughput_before", "1/s", "higher", "images trained on, by the exercise's own recipe"),
    Metric("throughput_after", "1/s", "higher", "of the fastest variant with the same batch"),
    Metric("speedup", "1", "higher", "after over before"),
    Metric("utilisation_before", "1", "higher", "mean share of time in which the processor computed"),
    Metric("utilisation_after", "1", "higher", "of the fastest variant with the same batch"),
)
#: s of training before the watch, so that loaders and clocks are at their pace.
SETTLE = 2.0
#: The first epoch that is watched: whose images are in another order than those before.
LATER = 1000
#: Rows of the series, however long the watch.
MOST_LOOKS = 300


def measure_utilisation(bench: Bench, *, trick: str, data: str, seconds: float) -> Mapping[str, float]:
    """Train ResNet-50, batch 128, for so many seconds by the exercise's recipe with one trick, and watch the GPU."""
    from hpml_plugins.plugins.tta.meter import UNITS
    from hpml_plugins.plugins.tta.recipes import read_recipe
    from hpml_plugins.plugins.tta.replaying import own_stream

    recipe = with_trick(read_recipe(BASE, data), trick).on(bench.device)
    images = bench.data(data)
    bench.progress(f"{trick}: setting up", 0.0)
    with own_stream(bench.device):
        row, meter = watch(bench, recipe, images, seconds, settle=min(SETTLE, seconds / 2))
    if meter.problem:
        raise HpmlError(meter.problem)
    columns = dict(meter.columns)
    bench.series("utilisation", columns, {name: UNITS[name] for name in columns})
    bench.series("work", {name: [value] for name, value in row.items()})
    result = {"throughput": row["throughput"], "utilisation": row["utilisation"]}
    return {**result, "memory_utilisation": row["memory_utilisation"]} if bench.gpus else result


def measure_tricks(bench: Bench, *, data: str, seconds: float, compiled: bool) -> Mapping[str, float]:
    """Each trick alone and added to those before it, trained for so many seconds each, in one process."""
    from hpml_plugins.plugins.tta.recipes import read_recipe
    from hpml_plugins.plugins.tta.replaying import own_stream

    base = read_recipe(BASE, data)
    images = bench.data(data)
    variants = list(rows(base, bench.device, compiled=compiled))
    found: list[dict[str, Any]] = []
    with own_stream(bench.device):
        for number, (name, kind, recipe) in enumerate(variants):
            bench.progress(f"{name}, {kind}", number / len(variants))
            try:
                row, meter = watch(bench, recipe, images, seconds, settle=min(SETTLE, seconds / 2))
            except HpmlError:
                raise
            except Exception as error:
                # What one trick cannot do on this node (no compiler, say) must not cost the others.
                bench.warn(f"{name}, {kind}: not measured: {type(error).__name__}: {str(error).splitlines()[0][:200]}")
                continue
            finally:
                _let_go(bench.device)
            if meter.problem:
                raise HpmlError(meter.problem)
            found.append({"trick": name, "kind": kind, "batch": float(recipe.batch), **row})
    if not found or found[0]["trick"] != BASE:
        raise HpmlError("the exercise's own recipe could not be measured; there is nothing to compare with")
    shared = set.intersection(*(set(row) for row in found))
    names = [name for name in found[0] if name in shared]
    units = {"throughput": "1/s", "utilisation": "1", "memory_utilisation": "1", "power": "W", "setup": "s"}
    units |= {"energy_per_image": "J", "batch": "1"}
    bench.series(
        "tricks",
        {name: [row[name] for row in found] for name in names},
        {name: units[name] for name in names if name in units},
    )
    before = found[0]
    after = max((row for row in found if row["batch"] == before["batch"]), key=lambda row: float(row["throughput"]))
    return {
        "throughput_before": before["throughput"],
        "throughput_after": after["throughput"],
        "speedup": after["throughput"] / before["throughput"],
        "utilisation_before": before["utilisation"],
        "utilisation_after": after["utilisation"],
    }


def watch(
    bench: Bench, recipe: Recipe, images: DataSet, seconds: float, *, settle: float
) -> tuple[dict[str, float], Meter]:
    """Train for so long by the recipe: rate, mean utilisation, power, energy an image, and the meter."""
    from hpml_plugins.plugins.tta.energy import Counter
    from hpml_plugins.plugins.tta.meter import INTERVAL, Meter
    from hpml_plugins.plugins.tta.training import Trainer

    trainer = Trainer(recipe, images, bench.device, evaluates=False)
    try:
        trainer.start(bench.seed)
        before, _ = train_for(trainer, bench.seed, settle)
        counter = Counter([gpu.uuid for gpu in bench.node.gpus[:1]] if bench.gpus else [])
        meter = Meter(bench, max(INTERVAL, seconds / MOST_LOOKS))
        joules = counter.read()
        with meter:
            steps, spent = train_for(trainer, bench.seed, seconds, LATER)
        after = counter.read()
        bench.check(
            int(bench.result(trainer.number).item()) == before + steps,
            "the device counted as many steps as were launched",
        )
    finally:
        trainer.close()
    row = {"throughput": steps * recipe.batch / spent, "setup": trainer.setup}
    for name, column in (("utilisation", "core"), ("memory_utilisation", "memory"), ("power", "power")):
        if (mean := meter.mean(column)) is not None:
            row[name] = mean
    if joules is not None and after is not None:
        row["energy_per_image"] = (after - joules) / (steps * recipe.batch)
    return row, meter


def train_for(trainer: Trainer, seed: int, seconds: float, epoch: int = 0) -> tuple[int, float]:
    """Train on for about so long, from this epoch on, whatever the schedule: how many steps, in how many s."""
    from hpml_plugins.plugins.tta.replaying import synchronise

    started = time.perf_counter()
    steps = 0
    while (spent := time.perf_counter() - started) < seconds:
        if trainer.loaded:
            for images, labels in trainer.loaded.epoch(seed, epoch):
                trainer.train_on(images, labels, 0)
                steps += 1
                if time.perf_counter() - started >= seconds:
                    break
        elif trainer.on_device:
            trainer.on_device.start_epoch(seed, epoch)
            trainer.run_steps(0, trainer.steps_an_epoch)
            steps += trainer.steps_an_epoch
        epoch += 1
        # Once an epoch: the host must not run ahead of the clock that ends this.
        synchronise(trainer.device)
    synchronise(trainer.device)
    spent = time.perf_counter() - started
    return steps, spent


def _let_go(device: str) -> None:
    if device.startswith("cuda"):
        import gc

        import torch

        gc.collect()
        torch.cuda.empty_cache()
