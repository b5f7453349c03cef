"""Tuning a recipe: `python -m hpml_plugins.plugins.tta fast --data cifar10-jpeg --runs 5 --set epochs=7.5 …`.

Set up once for each variant (`--vary KEY=A,B`), one line per run, one at the end of each variant: mean accuracy and its
standard error, mean time. For finding values that are then written into recipes.yaml; nothing is recorded.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from typing import Any

import yaml

from hpml_plugins import DataSet, HpmlError, load_data
from hpml_plugins.plugins.tta.recipes import Recipe, read_recipe


def main() -> int:
    """Exit status 1 for a recipe that cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m hpml_plugins.plugins.tta", description=__doc__)
    parser.add_argument("recipe")
    parser.add_argument("--data", default="digits")
    parser.add_argument("--runs", type=int, default=5)
    settings: dict[str, Any] = {"action": "append", "default": [], "type": _setting}
    parser.add_argument("--set", **settings, metavar="KEY=VALUE", help="dotted key, YAML value")
    parser.add_argument("--vary", **settings, metavar="KEY=A,B", help="one variant each")
    parser.add_argument("--profile", type=int, default=0, metavar="STEPS", help="show kernels of STEPS steps, by time")
    args = parser.parse_args()
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    data = load_data(args.data)
    for values in itertools.product(*(text.split(",") for _, text in args.vary)):
        texts = {**dict(args.set), **dict(zip((key for key, _ in args.vary), values, strict=True))}
        changes = {key: yaml.safe_load(text) for key, text in texts.items()}
        try:
            recipe = read_recipe(args.recipe, args.data, changes).on(device)
        except HpmlError as error:
            print(error.what)
            return 1
        print(f"== {args.recipe} {args.data} {changes or ''}", flush=True)
        _try(recipe, data, device, args.runs, args.profile)
    return 0


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def _try(recipe: Recipe, data: DataSet, device: str, runs: int, profiled: int) -> None:
    from hpml_plugins.plugins.tta.runs import run
    from hpml_plugins.plugins.tta.training import training

    with training(recipe, data, device) as trainer:
        print(f"load {trainer.load:.2f} s, set-up {trainer.setup:.1f} s, {trainer.steps} steps", flush=True)
        if profiled:
            _profile(trainer, profiled)
        found = []
        for seed in range(1000, 1000 + runs):
            trainer.start(seed)
            found.append(one := run(trainer, seed))
            curve = " ".join(f"{accuracy:.3f}" for *_, accuracy in one.curve[-12:])
            print(
                f"run {len(found)}: {one.time:.4f} s  accuracy {one.accuracy:.4f} "
                f"(plain {trainer.plain_accuracy():.4f})  epochs {one.epochs:g}  "
                f"epoch {(one.load + one.train) / one.epochs:.4f} s  evaluate {one.evaluate:.4f} s"
                f"  waited {one.load:.3f} s  [{curve}]",
                flush=True,
            )
    if found:
        times, accuracies = [one.time for one in found], [one.accuracy for one in found]
        error = statistics.stdev(accuracies) / runs**0.5 if runs > 1 else 0.0
        print(
            f"-- accuracy {statistics.fmean(accuracies):.5f} ± {error:.5f}, time {statistics.fmean(times):.4f} s "
            f"(shortest {min(times):.4f}, longest {max(times):.4f}), reached {sum(one.reached for one in found)}"
            f" of {runs}",
            flush=True,
        )


def _profile(trainer: Any, steps: int) -> None:
    """A table of the kernels of some steps, after one epoch."""
    from torch.profiler import ProfilerActivity, profile

    def train() -> float:
        started = time.perf_counter()
        for _ in trainer.train(0, 1, range(min(steps, trainer.steps_an_epoch))):
            pass
        trainer.synchronise()
        return time.perf_counter() - started

    trainer.start(0)
    trainer.train_epoch(0, 0)
    trainer.synchronise()
    on_gpu = trainer.device.startswith("cuda")
    with profile(activities=[ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * on_gpu) as profiler:
        train()
    by = "self_device_time_total" if on_gpu else "self_cpu_time_total"
    print(profiler.key_averages().table(sort_by=by, row_limit=40, max_name_column_width=90))
    print(f"{steps} steps in {train():.5f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
