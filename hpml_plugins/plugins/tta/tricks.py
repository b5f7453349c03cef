"""The benchmarks `tta_tricks` and `tta_tricks_cpu`: what raises the processor's utilisation, one trick at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from hpml_plugins import Bench, HpmlError, Metric
from hpml_plugins.plugins.tta.recipes import BASE, Recipe, read_recipe, read_tricks, with_trick, with_tricks
from hpml_plugins.plugins.tta.time_to_accuracy import CIFARS
from hpml_plugins.plugins.tta.utilisation import UTILISATION, UTILISATION_CPU, watch

METRICS = (
    Metric("throughput_before", "1/s", "higher", "images trained on, by the baseline recipe"),
    Metric("throughput_after", "1/s", "higher", "of the fastest variant with the same batch"),
    Metric("speedup", "1", "higher", "after over before"),
    Metric("utilisation_before", "1", "higher", "mean share of time in which the processor computed"),
    Metric("utilisation_after", "1", "higher", "of the fastest variant with the same batch"),
)


def measure_tricks(bench: Bench, *, data: str, seconds: float, compiled: bool) -> Mapping[str, float]:
    """Each trick alone and added to those before it, trained for `seconds` s each, in one process."""
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
            # What one trick cannot do on this node (no compiler, say) must not cost the others.
            bench.warn(f"{name}, {kind}: not measured: {type(error).__name__}: {str(error).splitlines()[0][:200]}")
        else:
            found.append({"trick": name, "kind": kind, "batch": float(recipe.batch), **row})
        _free_memory(bench.device)
    if not found or found[0]["trick"] != BASE:
        raise HpmlError("the baseline recipe could not be measured; there is nothing to compare with")
    names = [name for name in found[0] if all(name in row for row in found)]
    units = {"batch": "1", "throughput": "1/s", "setup": "s", "power": "W", "energy_per_image": "J"}
    units |= {"utilisation": "1", "memory_utilisation": "1"}
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


def rows(recipe: Recipe, device: str, *, compiled: bool) -> Iterator[tuple[str, str, Recipe]]:
    """(trick, "alone" or "together", recipe) of each variant to be measured on this device, none of them twice.

    compiled: whether those that compile are among them. Those that change nothing there are left out.
    """
    tricks = list(read_tricks())
    variants = [(BASE, "alone", recipe), *((name, "alone", with_trick(recipe, name)) for name in tricks)]
    for last in range(2, len(tricks) + 1):
        chosen = [name for name in tricks[:last] if compiled or name != "compile"]
        variants.append((f"+ {chosen[-1]}", "together", with_tricks(recipe, chosen)))
    seen: set[str] = set()
    for name, kind, changed in variants:
        runs_as = changed.on(device)
        if runs_as.fingerprint() not in seen and (compiled or not runs_as.compile):
            seen.add(runs_as.fingerprint())
            yield name, kind, runs_as


def _free_memory(device: str) -> None:
    """Of a variant, and what dynamo keeps of one that failed."""
    if device.startswith("cuda"):
        import gc

        import torch

        gc.collect()
        torch._dynamo.reset()
        torch.cuda.empty_cache()


TRICKS = replace(
    UTILISATION, name="tta_tricks", measure=measure_tricks, metrics=METRICS,
    grid={"data": CIFARS, "seconds": (3, 10), "compiled": (False, True)}, timeout=1200, terms={},
    description="What drives the GPU's utilisation up, one trick at a time and together, each with its effect.",
)  # fmt: skip
TRICKS_CPU = replace(
    UTILISATION_CPU, name="tta_tricks_cpu", measure=measure_tricks, metrics=METRICS,
    grid={"data": ("digits",), "seconds": (0.5,), "compiled": (False,)}, timeout=300, terms={},
    description="The same code on the CPU, as far as the tricks mean anything there.",
)  # fmt: skip
