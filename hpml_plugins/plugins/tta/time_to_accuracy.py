"""The benchmarks `tta`, `tta_cpu`, `tta_ddp` and `tta_ddp_cpu`: a set of runs, and the metrics
computed from it."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from hpml_plugins import Bench, Benchmark, HpmlError, Metric, Rank, Requires, Samples
from hpml_plugins.plugins.tta.recipes import Recipe, read_recipe, recipe_names
from hpml_plugins.registry import PluginSource

if TYPE_CHECKING:
    from hpml_plugins import DataSet
    from hpml_plugins.plugins.tta.runs import Run

#: torch's optimizers import torch._dynamo at their first use, which takes seconds in every process.
TORCH = ("torch", "torch._dynamo", "torchvision", "torchvision.transforms.v2", "msgspec", "yaml")
RECIPES = recipe_names()
#: Summaries of recipes.yaml.
TERMS = {
    "recipe=lab": (
        "the coursework's training script unchanged: ResNet-50, batch 128, SGD, float32, torch's"
        " DataLoader"
    ),
    "recipe=lab_stem3": (
        "lab with a 3×3 first layer (stem) without stride and pooling, as is usual for small images"
    ),
    "recipe=modern": (
        "lab in bfloat16, channels-last, compiled, as CUDA graphs, with all images on the GPU"
    ),
    "recipe=modern_stem3": "modern with a 3×3 first layer (stem) without stride and pooling",
    "recipe=fast": (
        "a small convolutional network, trained by Muon for 8.4 epochs, as in speed records on"
        " CIFAR-10"
    ),
    "data=cifar10-jpeg": "a lossy copy of CIFAR-10",
    "runs": "trainings from different seeds, of which the time is the mean",
}
SHARED_RECIPES = ("lab", "lab_stem3", "modern", "modern_stem3")
CIFARS = ("cifar10", "cifar10-jpeg")
DATA = (*CIFARS, "fashion-mnist", "digits")
METRICS = (
    Metric("time", "s", "lower", "to the target accuracy, a sample a run that counts"),
    Metric("mean_time", "s", "lower", "mean of these"),
    Metric("deviation", "s", "lower", "standard deviation of these (n − 1)"),
    Metric("variation", "1", "lower", "coefficient of variation: deviation over mean"),
    Metric("success", "1", "higher", "share of the runs that reached the target"),
    Metric("accuracy", "1", "higher", "when a run ended, on the test images", (0, 1)),
    Metric("epochs", "1", "lower", "until the target was reached"),
    Metric("epoch_time", "s", "lower", "loading and training of one epoch, without evaluation"),
    Metric("evaluation", "s", "lower", "of a run's time"),
    Metric(
        "setup",
        "s",
        "lower",
        "compiling, warming up and capturing, before all runs, not in the time",
    ),
    Metric(
        "energy",
        "J",
        "lower",
        "of a run that counts: the whole cards, or all CPU packages, with the idle part",
    ),
)
#: Confidence level of the interval of the variation.
METHOD = "Vangel's modification of McKay's chi-square interval, 95 %, times taken for normal"
#: Largest difference of accuracy between a compiled or captured evaluation and a plain one:
#: rounding decides near ties.
AGREE = 0.005
#: Another run starts only if this multiple of the longest run so far is left of the point's time.
ROOM = 1.3


def measure_tta(
    bench: Bench, *, recipe: str, data: str, runs: int
) -> Mapping[str, Samples | float | None]:
    """Train `runs` times by the recipe, each from another seed, until the target accuracy."""
    wanted = read_recipe(recipe, data).on(bench.device)
    return metrics_of(bench, wanted, *train_set(bench, wanted, runs))


def measure_ddp(
    bench: Bench, *, recipe: str, data: str, runs: int, gpus: int
) -> Mapping[str, Samples | float | None]:
    """Train by the recipe on `gpus` GPUs: its batch on each, the learning rate times their number
    (Goyal et al.)."""
    # Not compiled: that would need extra work for DistributedDataParallel's buckets; the graph
    # contains the reductions.
    wanted = msgspec.structs.replace(read_recipe(recipe, data).on(bench.device), compile="")
    if wanted.muon:
        raise HpmlError(
            f"recipe {recipe!r} cannot run on several ranks: Muon's update is computed on one"
        )
    # The ranks load the images: a process that has used torch could not fork the ranks.
    return metrics_of(bench, wanted, *bench.ranks(_train_on_rank, gpus, wanted, runs)[0])


def measure_ddp_cpu(
    bench: Bench, *, recipe: str, data: str, runs: int, ranks: int
) -> Mapping[str, Samples | float | None]:
    """The same over gloo, small networks in processes on the CPU."""
    return measure_ddp(bench, recipe=recipe, data=data, runs=runs, gpus=ranks)


def _train_on_rank(rank: Rank, recipe: Recipe, count: int) -> tuple[list[Run], dict[str, float]]:
    return train_set(rank.bench, recipe, count, rank)


def train_set(
    bench: Bench, recipe: Recipe, count: int, rank: Rank | None = None
) -> tuple[list[Run], dict[str, float]]:
    """Train all runs of the set that are missing after an interrupted measurement, and store each
    when it is done.

    Returns the runs, how many `images` an epoch has, and the time of `loading` them and of the
    `setup`, s.
    """
    from hpml_plugins.plugins.tta import runs
    from hpml_plugins.plugins.tta.out_of_distribution import other_images
    from hpml_plugins.plugins.tta.training import training

    bench.progress(f"{recipe.name}: loading, compiling and warming up", 0.0)
    images = bench.data(recipe.data)
    kept = runs.RunSet(about_of(bench, recipe, images, count, rank.count if rank else 1))
    if rank:
        # Rank 0's view counts: another rank may have read a moment later, or on another node.
        kept.runs = rank.share(kept.runs)
    if done := len(kept.runs):
        bench.warn(
            f"resumed: {done} of {count} runs are from an interrupted measurement of the same set"
        )
    longest, problem = 0.0, ""
    with training(recipe, images, bench.device, rank) as trainer:
        others = {} if rank else other_images(bench, images)
        for number in range(done, count):
            begun = time.monotonic()
            if bench.remaining < ROOM * longest:
                raise HpmlError(
                    f"{number} of {count} runs are done and time is over; measure again to resume"
                    " the set"
                )

            def progress(
                epoch: int, epochs: int, accuracy: float, seconds: float, number: int = number
            ) -> None:
                left = seconds / epoch * (epochs * (count - number) - epoch)
                bench.progress(
                    f"run {number + 1} of {count}, epoch {epoch} of {epochs}, accuracy"
                    f" {accuracy:.4f}, at most {left:.0f} s left",
                    (number + epoch / epochs) / count,
                )

            if rank:
                rank.barrier()
            # different for every seed of the bench and every run
            seed = bench.seed * 1000 + number + 1
            trainer.start(seed)
            with bench.meter() as meter:
                found = runs.run(trainer, seed, progress)
            found.energy, problem = meter.energy, meter.problem
            found.plain_accuracy = trainer.plain_accuracy()
            found.out_of_distribution = {
                name: trainer.plain_accuracy(*other) for name, other in others.items()
            }
            if rank:
                check_same_parameters(rank, trainer.network)
            kept.add(found, write=not rank or rank.index == 0)
            longest = max(longest, time.monotonic() - begun)
    if kept.problem:
        bench.warn(kept.problem)
    if problem and bench.gpus:
        bench.warn(f"energy is not known: {problem}")
    # Removed in any case: a set that fails its checks must not be resumed.
    kept.finish()
    return kept.runs, {
        "images": float(len(images.train)),
        "loading": trainer.load,
        "setup": trainer.setup,
    }


def about_of(
    bench: Bench, recipe: Recipe, images: DataSet, count: int, ranks: int
) -> dict[str, str]:
    """The facts that runs of one set must have in common."""
    import torch

    from hpml_plugins.host import locate

    return {
        "recipe": recipe.fingerprint(),
        "data": images.fingerprint,
        "part": images.part,
        "code": locate(PluginSource("tta", module=__package__), Path()).sha256,
        "torch": str(torch.__version__),
        "device": bench.node.gpus[0].name if bench.gpus else bench.node.cpu,
        "runs": str(count),
        "seed": str(bench.seed),
        "ranks": str(ranks),
    }


def check_same_parameters(rank: Rank, network: Any) -> None:
    """After any number of steps all ranks must have the same parameters, to the bit."""
    import torch

    with torch.no_grad():
        sums = [float(parameter.double().sum()) for parameter in network.parameters()]
    rank.bench.check(
        all(other == sums for other in rank.gather(sums)), "all ranks have the same parameters"
    )


def counting(recipe: Recipe, runs: Sequence[Run]) -> list[Run]:
    """The runs whose times count: those that reached the accuracy, or all if only the mean must
    reach it.

    If the mean reaches the target, so does at least one run.
    """
    reached = [run for run in runs if run.reached]
    return list(runs) if reached and recipe.target_of == "mean" else reached


def metrics_of(
    bench: Bench, recipe: Recipe, runs: Sequence[Run], facts: Mapping[str, float]
) -> Mapping[str, Samples | float | None]:
    """Attach the series of a set, and return its metrics.  facts: see `train_set`.

    Raises CheckFailed if an accuracy differs from a plain evaluation, and HpmlError if no run
    reached the target, because there is no time then.
    """
    attach(bench, recipe, runs, facts["loading"])
    for run in runs:
        bench.check(
            abs(bench.result(run.accuracy) - run.plain_accuracy) <= AGREE,
            "the accuracy is that of a plain evaluation, neither compiled nor captured",
        )
        bench.check(
            min(run.load, run.train, run.evaluate) >= 0
            and run.curve == sorted(run.curve, key=lambda point: point[1]),
            "the clock went forward, and no more was waited and evaluated than time passed",
        )
    accuracies = Samples.of([run.accuracy for run in runs], "1")
    accuracies = accuracies.note(mean=accuracies.mean)
    counted = counting(recipe, runs)
    if not counted:
        raise HpmlError(
            f"recipe {recipe.name!r}: none of {len(runs)} runs reached {recipe.target:.4g} on"
            f" {recipe.data} in {runs[0].epochs:g} epochs; the best has"
            f" {max(accuracies.values):.4f}"
        )
    reached = sum(run.reached for run in runs)
    if recipe.target_of == "mean" and accuracies.mean < recipe.target:
        bench.warn(
            f"the mean accuracy {accuracies.mean:.4f} is below the target {recipe.target:.4g}"
        )
    if recipe.target_of == "each" and reached < len(runs):
        bench.warn(
            f"{len(runs) - reached} of {len(runs)} runs missed the target; times are of the others"
        )
    times = Samples.of([run.time for run in counted], "s")
    variation = Samples.of(
        [times.coefficient_of_variation], "1", method=METHOD, runs=float(len(times))
    )
    if len(times) > 1:
        low, high = variation_interval(times.values)
        variation = variation.note(low=low, high=high if high < float("inf") else -1.0)
    low, high = success_interval(reached, len(runs))
    energies = [run.energy for run in counted if run.energy is not None]
    known = len(energies) == len(counted)
    epoch_times = Samples.of([(run.load + run.train) / run.epochs for run in runs], "s")
    return {
        "time": times.note(target=recipe.target, target_of=recipe.target_of, data=recipe.data),
        "mean_time": times.mean,
        "deviation": statistics.stdev(times.values) if len(times) > 1 else 0.0,
        "variation": variation,
        "success": Samples.of(
            [reached / len(runs)], "1", low=low, high=high, runs=float(len(runs))
        ),
        "accuracy": accuracies,
        "epochs": Samples.of([run.epochs for run in counted], "1"),
        "epoch_time": epoch_times.note(images=facts["images"], batch=float(recipe.batch)),
        "evaluation": Samples.of([run.evaluate for run in runs], "s"),
        "setup": facts["setup"],
        "energy": (
            Samples.of(energies, "J", power=sum(energies) / sum(times.values)) if known else None
        ),
    }


def attach(bench: Bench, recipe: Recipe, runs: Sequence[Run], loading: float) -> None:
    """The series of a set: its runs, their curves, accuracies on other images, and the recipe
    used."""
    units = {
        **dict.fromkeys(("time", "load", "train", "evaluate"), "s"),
        **dict.fromkeys(("epochs", "accuracy"), "1"),
    }
    names = ("seed", "reached", "time", "epochs", "accuracy", "load", "train", "evaluate")
    columns: dict[str, list[Any]] = {
        name: [float(getattr(run, name)) for run in runs] for name in names
    }
    if None not in (energies := [run.energy for run in runs]):
        powers = [energy / time for energy, time in zip(energies, columns["time"], strict=True)]
        columns, units = (
            {**columns, "energy": energies, "power": powers},
            {**units, "energy": "J", "power": "W"},
        )
    bench.series("runs", columns, units)
    curves = [(number, *point) for number, run in enumerate(runs) for point in run.curve]
    curve_units = {"time": "s", "accuracy": "1", "epoch": "1"}
    bench.series("curves", _columns(curves, "run", "epoch", "time", "accuracy"), curve_units)
    others = [
        (number, *item)
        for number, run in enumerate(runs)
        for item in run.out_of_distribution.items()
    ]
    if others:
        bench.series("elsewhere", _columns(others, "run", "images", "accuracy"), {"accuracy": "1"})
    facts = {
        "network": recipe.network.name,
        "precision": recipe.precision,
        "compile": recipe.compile or "no",
        "graph": "yes" if recipe.graph else "no",
        "fingerprint": recipe.fingerprint(),
        "about": recipe.about,
        "loading": loading,
    }
    bench.series("recipe", {name: [fact] for name, fact in facts.items()}, {"loading": "s"})


def _columns(rows: Sequence[tuple[Any, ...]], *names: str) -> dict[str, list[Any]]:
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}


def variation_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Interval of the coefficient of variation of the distribution of these values.

    k / sqrt(((u + 2) / n − 1) k² + u / (n − 1)) with u the chi-square quantiles of n − 1 degrees of
    freedom, for k up to about 0.33 and normal values. The upper end is infinite if the root's
    argument is not positive. Raises ValueError for fewer than two values. Source: Vangel,
    Confidence Intervals for a Normal Coefficient of Variation, The American Statistician 50 (1996).
    """
    from scipy.special import chdtri

    n = len(values)
    if n < 2:
        raise ValueError("one value has no spread")
    k = Samples.of(values, "s").coefficient_of_variation

    def bound(above: float) -> float:
        u = float(chdtri(n - 1, above))
        under = ((u + 2) / n - 1) * k * k + u / (n - 1)
        return k / math.sqrt(under) if under > 0 else math.inf

    tail = (1 - confidence) / 2
    return bound(tail), bound(1 - tail)


def success_interval(reached: int, runs: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's interval of a share, here of runs that reach the target.

    Source: Wilson, Probable Inference, the Law of Succession, and Statistical Inference, JASA 22
    (1927).
    """
    z = statistics.NormalDist().inv_cdf(0.5 + confidence / 2)
    share = reached / runs
    middle = (share + z * z / (2 * runs)) / (1 + z * z / runs)
    reach = (
        z / (1 + z * z / runs) * math.sqrt(share * (1 - share) / runs + z * z / (4 * runs * runs))
    )
    return max(0.0, middle - reach), min(1.0, middle + reach)


TTA = Benchmark(
    "tta",
    measure_tta,
    METRICS,
    {"recipe": RECIPES, "data": DATA, "runs": (5, 10, 20)},
    Requires(gpus=1, data="data", modules=(*TORCH, "scipy.special")),
    timeout=7200,
    rounds=1,
    terms=TERMS,
    description="Training until the target accuracy, several times, on one GPU.",
)
TTA_CPU = replace(
    TTA,
    name="tta_cpu",
    grid={"recipe": ("fast", "modern", "lab"), "data": ("digits",), "runs": (5,)},
    requires=replace(TTA.requires, gpus=0),
    timeout=600,
    description="The same code on the CPU, with small networks on the digits.",
)
DDP = replace(
    TTA,
    name="tta_ddp",
    measure=measure_ddp,
    grid={"recipe": SHARED_RECIPES, "data": DATA, "runs": (5, 10), "gpus": (2, 4, 8)},
    requires=replace(TTA.requires, gpus="gpus"),
    description=(
        "Training until the target accuracy on several GPUs, by DistributedDataParallel, the batch"
        " on each."
    ),
)
DDP_CPU = replace(
    TTA_CPU,
    name="tta_ddp_cpu",
    measure=measure_ddp_cpu,
    grid={"recipe": ("modern",), "data": ("digits",), "runs": (5,), "ranks": (2,)},
    description=(
        "The same over gloo between processes on the CPU, with a small network on the digits."
    ),
)
