"""The benchmark `tta_eager`: the time to accuracy of compiling recipes, run without compiling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import msgspec

from hpml_plugins import Bench, HpmlError, Samples
from hpml_plugins.plugins.tta.recipes import Recipe, read_recipe
from hpml_plugins.plugins.tta.time_to_accuracy import CIFARS, TTA, metrics_of, train_set


def measure(
    bench: Bench, *, recipe: str, data: str, runs: int
) -> Mapping[str, Samples | float | None]:
    """Train as `tta` does, but compile nothing. CUDA graphs and the rest of the recipe are kept, so
    that the difference is the gain of compiling, and that of `setup` its cost."""
    wanted = without_compiling(read_recipe(recipe, data)).on(bench.device)
    return metrics_of(bench, wanted, *train_set(bench, wanted, runs))


def without_compiling(recipe: Recipe) -> Recipe:
    """The recipe without compiling. Raises HpmlError for a recipe that compiles nothing."""
    if not recipe.compile:
        raise HpmlError(f"recipe {recipe.name!r} compiles nothing; measure it by the benchmark tta")
    return msgspec.structs.replace(recipe, compile="")


EAGER = replace(
    TTA,
    name="tta_eager",
    measure=measure,
    grid={"recipe": ("modern_stem3", "fast"), "data": CIFARS, "runs": (5, 20)},
    description="Training until the target accuracy without compiling, several times, on one GPU.",
)
