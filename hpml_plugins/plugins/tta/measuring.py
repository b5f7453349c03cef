"""The benchmarks `tta` and its kin: a set of runs, and the numbers that are made of it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hpml_plugins import Bench, HpmlError, Metric, Samples

if TYPE_CHECKING:
    from hpml_plugins import DataSet
    from hpml_plugins.plugins.tta.recipes import Recipe
    from hpml_plugins.plugins.tta.running import Run
    from hpml_plugins.plugins.tta.training import Trainer

METRICS = (
    Metric("time", "s", "lower", "to the target accuracy, a sample a run that counts"),
    Metric("mean_time", "s", "lower", "mean of these"),
    Metric("deviation", "s", "lower", "standard deviation of these (n − 1)"),
    Metric("variation", "1", "lower", "coefficient of variation: deviation over mean"),
    Metric("success", "1", "higher", "share of the runs that reached the target"),
    Metric("accuracy", "1", "higher", "when a run ended, on the test images"),
    Metric("epochs", "1", "lower", "until the target was reached"),
    Metric("epoch_time", "s", "lower", "loading and training of one epoch, without evaluation"),
    Metric("evaluation", "s", "lower", "of a run's time"),
    Metric("setup", "s", "lower", "compiling, warming up and capturing, before all runs, not in the time"),
)
#: How far the accuracy of a compiled or captured evaluation may be from a plain one: roundings decide close calls.
AGREE = 0.005
#: So much of the longest run so far must be left of the point's time to start another.
ROOM = 1.3


def measure_tta(bench: Bench, *, recipe: str, data: str, runs: int) -> Mapping[str, Samples | float]:
    """Train `runs` times by the recipe, each from another seed, until the target accuracy."""
    from hpml_plugins.plugins.tta.recipes import read_recipe

    wanted = read_recipe(recipe, data).on(bench.device)
    images = bench.data(data)
    from hpml_plugins.plugins.tta.replaying import own_stream

    with own_stream(bench.device):
        return _measure(bench, wanted, images, runs)


def _measure(bench: Bench, recipe: Recipe, images: DataSet, count: int) -> Mapping[str, Samples | float]:
    from hpml_plugins.plugins.tta.energy import counter_of
    from hpml_plugins.plugins.tta.out_of_distribution import Elsewhere
    from hpml_plugins.plugins.tta.running import run
    from hpml_plugins.plugins.tta.runset import RunSet
    from hpml_plugins.plugins.tta.training import Trainer

    bench.progress(f"{recipe.name}: loading, compiling and warming up", 0.0)
    trainer = Trainer(recipe, images, bench.device)
    elsewhere = Elsewhere(bench, images)
    counter = counter_of(bench, 1)
    kept = RunSet(about_of(bench, recipe, images, count))
    if kept.resumed:
        bench.warn(f"resumed: {kept.resumed} of {count} runs are from an interrupted measurement of the same set")
    longest = 0.0
    for number in range(len(kept.runs), count):
        begun = time.monotonic()
        if bench.remaining < ROOM * longest:
            raise HpmlError(f"{number} of {count} runs are done and time is over; measure again to go on behind them")

        def say(epoch: int, epochs: int, accuracy: float | None, seconds: float, at: int = number) -> None:
            left = seconds / epoch * (epochs * (count - at) - epoch)
            bench.progress(progress_text(at, count, epoch, epochs, accuracy, left), (at + epoch / epochs) / count)

        found = run(trainer, seed_of(bench.seed, number), counter, say)
        kept.add(elsewhere.judge(trainer, found))
        longest = max(longest, time.monotonic() - begun)
        left = longest * (count - number - 1)
        bench.progress(
            f"run {number + 1} of {count}: {found.accuracy:.4f} in {found.time:.2f} s, at most {left:.0f} s left",
            (number + 1) / count,
        )
    if kept.problem:
        bench.warn(kept.problem)
    trainer.close()
    # Whole, whatever is made of it: a set that fails its checks must not be found again.
    kept.finish()
    attach(bench, recipe, kept.runs, trainer)
    return metrics_of(bench, recipe, kept.runs, trainer.setup, len(images.train))


def seed_of(seed: int, number: int) -> int:
    """Of a run: another for every seed of the bench and every number (below 1000)."""
    return seed * 1000 + number + 1


def progress_text(number: int, count: int, epoch: int, epochs: int, accuracy: float | None, left: float) -> str:
    """What a long point is doing.  left: s, if every run takes all its epochs."""
    told = "" if accuracy is None else f", accuracy {accuracy:.4f}"
    return f"run {number + 1} of {count}, epoch {epoch} of {epochs}{told}, at most {left:.0f} s left"


def about_of(bench: Bench, recipe: Recipe, images: DataSet, count: int, ranks: int = 1) -> dict[str, str]:
    """What runs must have in common to be of one set."""
    import torch

    from hpml_plugins.plugins.tta.runset import code_digest

    return {
        "recipe": recipe.fingerprint(),
        "data": images.fingerprint,
        "part": images.part,
        "code": code_digest(),
        "torch": str(torch.__version__),
        "device": bench.node.gpus[0].name if bench.gpus else bench.node.cpu,
        "runs": str(count),
        "seed": str(bench.seed),
        "ranks": str(ranks),
    }


def counting(recipe: Recipe, runs: Sequence[Run]) -> list[Run]:
    """The runs whose time is one to the accuracy: those that reached it, or all where the mean is what must."""
    if recipe.target_of == "each":
        return [run for run in runs if run.reached]
    mean = statistics.fmean(run.accuracy for run in runs)
    return list(runs) if mean >= recipe.target or any(run.reached for run in runs) else []


def metrics_of(
    bench: Bench, recipe: Recipe, runs: Sequence[Run], setup: float, images: int
) -> Mapping[str, Samples | float]:
    """All metrics of a set. Raises CheckFailed where an accuracy is not what a plain evaluation says, and HpmlError
    where no run reached the target: there is no time to it then.
    """
    from hpml_plugins.plugins.tta.spread import METHOD, coefficient_of_variation, success_interval, variation_interval

    for run in runs:
        bench.check(
            abs(bench.result(run.accuracy) - run.apart) <= AGREE,
            "the accuracy is that of a plain evaluation, neither compiled nor captured",
        )
        bench.check(
            min(run.load, run.train, run.evaluate) >= 0 and run.curve_times == sorted(run.curve_times),
            "the clock went forward, and no more was waited and evaluated than time passed",
        )
    counted = counting(recipe, runs)
    best = max(run.accuracy for run in runs)
    if not counted:
        raise HpmlError(
            f"recipe {recipe.name!r}: none of {len(runs)} runs reached {recipe.target:.4g} on {recipe.data} in "
            f"{runs[0].epochs:g} epochs; the best has {best:.4f}"
        )
    mean_accuracy = statistics.fmean(run.accuracy for run in runs)
    if recipe.target_of == "mean" and mean_accuracy < recipe.target:
        bench.warn(f"the mean accuracy {mean_accuracy:.4f} is below the target {recipe.target:.4g}")
    missed = len(runs) - sum(run.reached for run in runs)
    if recipe.target_of == "each" and missed:
        bench.warn(f"{missed} of {len(runs)} runs missed the target; times are of the others")
    times = [run.time for run in counted]
    spread: dict[str, str | float] = {"method": METHOD, "runs": float(len(times))}
    if len(times) > 1:
        low, high = variation_interval(times)
        spread |= {"low": low, "high": high if high < float("inf") else -1.0}
    share = sum(run.reached for run in runs)
    low, high = success_interval(share, len(runs))
    return {
        "time": Samples.of(times, "s", target=recipe.target, target_of=recipe.target_of, data=recipe.data),
        "mean_time": statistics.fmean(times),
        "deviation": statistics.stdev(times) if len(times) > 1 else 0.0,
        "variation": Samples.of([coefficient_of_variation(times)], "1", **spread),
        "success": Samples.of([share / len(runs)], "1", low=low, high=high, runs=float(len(runs))),
        "accuracy": Samples.of([run.accuracy for run in runs], "1", mean=mean_accuracy),
        "epochs": Samples.of([run.epochs for run in counted], "1"),
        "epoch_time": Samples.of(
            [(run.load + run.train) / run.epochs for run in runs], "s", images=float(images), batch=float(recipe.batch)
        ),
        "evaluation": Samples.of([run.evaluate for run in runs], "s"),
        "setup": setup,
    }


def attach(bench: Bench, recipe: Recipe, runs: Sequence[Run], trainer: Trainer | None, load: float = 0.0) -> None:
    """The series of a set: its runs, their curves, accuracies elsewhere, and the recipe as it was run."""
    columns: dict[str, list[Any]] = {
        name: [float(getattr(run, name)) for run in runs]
        for name in ("seed", "reached", "time", "epochs", "accuracy", "load", "train", "evaluate")
    }
    units = {**dict.fromkeys(("time", "load", "train", "evaluate"), "s"), **dict.fromkeys(("epochs", "accuracy"), "1")}
    joules = [run.energy for run in runs]
    if None not in joules:
        columns["energy"], units["energy"] = joules, "J"
        columns["power"] = [joule / run.time for joule, run in zip(joules, runs, strict=True)]  # type: ignore[operator]
        units["power"] = "W"
    bench.series("runs", columns, units)
    points = [
        (float(number), *point)
        for number, run in enumerate(runs)
        for point in zip(run.curve_epochs, run.curve_times, run.curve_accuracies, strict=True)
    ]
    names = ("run", "epoch", "time", "accuracy")
    curve = {name: [point[place] for point in points] for place, name in enumerate(names)}
    bench.series("curves", curve, {"time": "s", "accuracy": "1", "epoch": "1"})
    if elsewhere := [(number, *item) for number, run in enumerate(runs) for item in run.elsewhere.items()]:
        bench.series(
            "elsewhere",
            {
                "run": [float(row[0]) for row in elsewhere],
                "images": [row[1] for row in elsewhere],
                "accuracy": [row[2] for row in elsewhere],
            },
            {"accuracy": "1"},
        )
    loading = trainer.load if trainer else load
    facts = {
        "network": recipe.network.name, "precision": recipe.precision, "compile": recipe.compile or "no",
        "graph": "yes" if recipe.graph else "no", "fingerprint": recipe.fingerprint(), "about": recipe.about,
    }  # fmt: skip
    bench.series("recipe", {**{name: [text] for name, text in facts.items()}, "loading": [loading]}, {"loading": "s"})
