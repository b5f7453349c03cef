"""Tuning a recipe: `python -m hpml_plugins.plugins.tta fast --data cifar10-jpeg --runs 5 --set epochs=7.5 …`.

Set up once for each variant (`--vary KEY=A,B`), a line a run, a line at the end of each: mean accuracy and its standard
error, mean time, set-up. For finding values that are then written into recipes.yaml; nothing is recorded.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Sequence
from typing import Any

import yaml

from hpml_plugins import HpmlError, load_data
from hpml_plugins.plugins.tta.recipes import Recipe, read_recipe


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 for a recipe that cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m hpml_plugins.plugins.tta", description=__doc__)
    parser.add_argument("recipe")
    parser.add_argument("--data", default="digits")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="dotted key, YAML value")
    parser.add_argument("--vary", action="append", default=[], metavar="KEY=A,B", help="one variant each")
    parser.add_argument("--profile", type=int, default=0, metavar="STEPS", help="the kernels of so many steps, by time")
    parser.add_argument("--device", default="")
    told = parser.parse_args(arguments)
    import torch

    device = told.device or ("cuda" if torch.cuda.is_available() else "cpu")
    data = load_data(told.data)
    fixed = dict(_value(text) for text in told.set)
    varied = [[(key, yaml.safe_load(part)) for part in values.split(",")] for key, values in map(_split, told.vary)]
    for variant in itertools.product(*varied):
        try:
            recipe = read_recipe(told.recipe, told.data, {**fixed, **dict(variant)}).on(device)
        except HpmlError as error:
            print(error.what)
            return 1
        print(f"== {told.recipe} {told.data} {({**fixed, **dict(variant)}) or ''}", flush=True)
        _try(recipe, data, device, told.runs, told.profile)
    return 0


def _try(recipe: Recipe, data: Any, device: str, runs: int, profiled: int) -> None:
    from hpml_plugins.plugins.tta.energy import Counter
    from hpml_plugins.plugins.tta.replaying import own_stream
    from hpml_plugins.plugins.tta.running import run
    from hpml_plugins.plugins.tta.training import Trainer

    with own_stream(device):
        trainer = Trainer(recipe, data, device)
        print(f"load {trainer.load:.2f} s, set-up {trainer.setup:.1f} s, {trainer.steps} steps", flush=True)
        if profiled:
            _profile(trainer, profiled)
        found = []
        for number in range(runs):
            one = run(trainer, 1000 + number, Counter([]))
            found.append(one)
            curve = " ".join(f"{value:.3f}" for value in one.curve_accuracies[-12:])
            print(
                f"run {number + 1}: {one.time:.4f} s  accuracy {one.accuracy:.4f} (apart {one.apart:.4f})  epochs "
                f"{one.epochs:g}  epoch {(one.load + one.train) / one.epochs:.4f} s  evaluate {one.evaluate:.4f} s"
                f"  waited {one.load:.3f} s  [{curve}]",
                flush=True,
            )
        if not found:
            trainer.close()
            return
        times, accuracies = [one.time for one in found], [one.accuracy for one in found]
        error = statistics.stdev(accuracies) / len(found) ** 0.5 if len(found) > 1 else 0.0
        print(
            f"-- accuracy {statistics.fmean(accuracies):.5f} ± {error:.5f}, time {statistics.fmean(times):.4f} s "
            f"(shortest {min(times):.4f}, longest {max(times):.4f}), reached {sum(one.reached for one in found)}"
            f" of {len(found)}",
            flush=True,
        )
        trainer.close()


def _profile(trainer: Any, steps: int) -> None:
    """A table of the kernels of some steps, after one epoch."""
    from torch.profiler import ProfilerActivity, profile

    from hpml_plugins.plugins.tta.replaying import synchronise

    trainer.start(0)
    trainer.train_epoch(0, 0)
    synchronise(trainer.device)
    kinds = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * trainer.device.startswith("cuda")
    with profile(activities=kinds) as profiler:
        trainer.run_steps(trainer.steps_an_epoch, steps)
        synchronise(trainer.device)
    by = "self_device_time_total" if trainer.device.startswith("cuda") else "self_cpu_time_total"
    print(profiler.key_averages().table(sort_by=by, row_limit=40, max_name_column_width=90))
    started = time.perf_counter()
    trainer.run_steps(trainer.steps_an_epoch, steps)
    synchronise(trainer.device)
    print(f"{steps} steps in {time.perf_counter() - started:.5f} s", flush=True)


def _split(text: str) -> tuple[str, str]:
    key, equals, values = text.partition("=")
    if not equals:
        raise SystemExit(f"{text!r} is not KEY=VALUE")
    return key, values


def _value(text: str) -> tuple[str, Any]:
    key, value = _split(text)
    return key, yaml.safe_load(value)


if __name__ == "__main__":
    raise SystemExit(main())
