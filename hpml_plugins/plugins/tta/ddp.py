"""The benchmarks `tta_ddp` and `tta_ddp_cpu`: the same on several ranks, by DistributedDataParallel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from hpml_plugins import Bench, HpmlError, Rank, Samples
from hpml_plugins.plugins.tta.measuring import about_of, attach, metrics_of, progress_text, seed_of

if TYPE_CHECKING:
    from hpml_plugins.plugins.tta.recipes import Recipe
    from hpml_plugins.plugins.tta.running import Run


def measure_ddp(bench: Bench, *, recipe: str, data: str, runs: int, gpus: int) -> Mapping[str, Samples | float]:
    """Train by the recipe on so many GPUs: its batch on each of them, the rate times their number (Goyal et al.)."""
    return _measure(bench, recipe, data, runs, gpus)


def measure_ddp_cpu(bench: Bench, *, recipe: str, data: str, runs: int, ranks: int) -> Mapping[str, Samples | float]:
    """The same over gloo, small networks in processes on the CPU."""
    return _measure(bench, recipe, data, runs, ranks)


def _measure(bench: Bench, name: str, data: str, count: int, ranks: int) -> Mapping[str, Samples | float]:
    # Compiled functions and buckets do not go together without more ado; the graph holds the reductions.
    from hpml_plugins.plugins.tta.recipes import read_recipe
    from hpml_plugins.plugins.tta.runset import RunSet

    recipe = msgspec.structs.replace(read_recipe(name, data).on(bench.device), compile="")
    if recipe.muon:
        raise HpmlError(f"recipe {name!r} cannot be shared out: Muon's step is not")
    # Images are loaded by the ranks: a process that has used torch could not fork them.
    found = bench.ranks(_on_rank, ranks, recipe, count)[0]
    bench.used_data |= found.data
    # Whole, whatever is made of it: a set that fails its checks must not be found again.
    RunSet(found.about).finish()
    if found.resumed:
        bench.warn(f"resumed: {found.resumed} of {count} runs are from an interrupted measurement of the same set")
    attach(bench, recipe, found.runs, None, found.load)
    return metrics_of(bench, recipe, found.runs, found.setup, found.images)


@dataclass
class _Found:
    """What rank 0 brings back. images: that an epoch has.  load, setup: s."""

    runs: list[Run]
    about: dict[str, str]
    data: dict[str, Any]
    resumed: int
    images: int
    load: float
    setup: float


def _on_rank(rank: Rank, recipe: Recipe, count: int) -> _Found:
    """All runs that are left, on this rank; rank 0 keeps them."""
    from hpml_plugins.plugins.tta.energy import Counter
    from hpml_plugins.plugins.tta.replaying import own_stream
    from hpml_plugins.plugins.tta.running import run
    from hpml_plugins.plugins.tta.runset import RunSet
    from hpml_plugins.plugins.tta.training import Trainer
    from hpml_plugins.plugins.tta.workers import Crew

    images = rank.bench.data(recipe.data)
    about = about_of(rank.bench, recipe, images, count, rank.count)
    kept = RunSet(about)
    # What rank 0 has read counts: another may have looked a moment later, or on another node.
    kept.runs = rank.share(kept.runs)
    resumed = len(kept.runs)

    def wrap(network: Any) -> Any:
        from torch.nn.parallel import DistributedDataParallel

        cards = [rank.device] if rank.backend == "nccl" else None
        return DistributedDataParallel(network, device_ids=cards, gradient_as_bucket_view=True)

    def total(numbers: list[float]) -> list[float]:
        return [sum(column) for column in zip(*rank.gather_numbers(numbers), strict=True)]

    # NVML is asked by rank 0 alone, for all cards.
    gpus = rank.bench.node.gpus[: rank.count if rank.backend == "nccl" and not rank.index else 0]
    cards = [gpu.uuid for gpu in gpus]
    counter = Counter(cards)
    with own_stream(rank.device):
        trainer = Trainer(recipe, images, rank.device, Crew(rank.index, rank.count, wrap, total))
        for number in range(resumed, count):

            def say(epoch: int, epochs: int, accuracy: float | None, seconds: float, at: int = number) -> None:
                left = seconds / epoch * (epochs * (count - at) - epoch)
                rank.bench.progress(
                    progress_text(at, count, epoch, epochs, accuracy, left), (at + epoch / epochs) / count
                )

            rank.barrier()
            found = run(trainer, seed_of(rank.bench.seed, number), counter, say)
            check_same_everywhere(rank, trainer.network)
            if rank.index == 0:
                kept.add(found)
            else:
                kept.runs.append(found)
        trainer.close()
    return _Found(kept.runs, about, rank.bench.used_data, resumed, len(images.train), trainer.load, trainer.setup)


def check_same_everywhere(rank: Rank, network: Any) -> None:
    """After any number of steps all ranks must have the same parameters, to the bit."""
    import torch

    with torch.no_grad():
        sums = [float(parameter.double().sum()) for parameter in network.parameters()]
    rank.bench.check(all(other == sums for other in rank.gather(sums)), "all ranks have the same parameters")
