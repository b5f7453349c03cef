"""The times of a batch: whole, and phase by phase. Imports torch: imported on ranks only."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from hpml_plugins import Rank
from hpml_plugins.plugins.mlp.holding import hold_back
from hpml_plugins.plugins.mlp.job import RATE, REG
from hpml_plugins.plugins.mlp.phases import BACKWARD, BATCH, FORWARD, LAUNCHING, ORDER, Phases
from hpml_plugins.plugins.mlp.training import Trainer


def profiled(rank: Rank, trainer: Trainer, phases: Phases, count: int) -> dict[str, float]:
    """The median time of each phase of a batch over `count` batches, mean over ranks, s; 0 for one that it lacks.

    As in the exercise, ranks wait for one another before gradients are added up, so that the waiting does not count as
    adding. The launching is hidden: a phase is what the GPU does, not how long Python takes to ask for it. How
    long that is, is LAUNCHING.
    """
    synchronize = synchronizer(rank.device)
    taken: list[dict[str, float]] = []
    launching = statistics.median(_launching(rank, trainer, synchronize) for _ in range(5))
    phases.active = True
    for _ in range(count + 2):
        rank.barrier()
        with phases(BATCH, on_host=True):
            _one(rank, trainer, phases, synchronize, launching)
        taken.append({**phases.taken(), LAUNCHING: launching})
    phases.active = False
    names = (*ORDER, LAUNCHING)
    mine = [statistics.median(each.get(name, 0.0) for each in taken[2:]) for name in names]
    everyone = rank.gather_numbers(mine)
    return {name: statistics.fmean(numbers[i] for numbers in everyone) for i, name in enumerate(names)}


def medians(looks: list[dict[str, float]]) -> dict[str, float]:
    """Each phase's median over several looks at a batch, s."""
    return {name: statistics.median(look[name] for look in looks) for name in looks[0]}


def _one(rank: Rank, trainer: Trainer, phases: Phases, synchronize: Callable[[], None], launching: float) -> None:
    """A batch in step with the others.  launching: how long the host takes to ask for the computation, s."""
    trainer.copy_images()
    synchronize()
    if rank.device.startswith("cuda"):
        hold_back(2 * launching + 5e-4)
    with phases(FORWARD, on_host=True):
        trainer.network.forward()
    with phases(BACKWARD, on_host=True):
        trainer.network.backward(trainer.job.batch)
    rank.barrier()
    trainer.exchange.reduce(trainer.network.gradient)
    synchronize()
    trainer.network.step(RATE, REG)


def _launching(rank: Rank, trainer: Trainer, synchronize: Callable[[], None]) -> float:
    """How long the host takes to ask for one forward and backward pass, s."""
    synchronize()
    started = time.perf_counter()
    trainer.network.forward()
    trainer.network.backward(trainer.job.batch)
    taken = time.perf_counter() - started
    synchronize()
    return taken


def whole(rank: Rank, run: Callable[[], object], count: int) -> list[float]:
    """The times of a batch, of the slowest rank each, s: `count` of them, after one that does not count.

    Ranks begin together, as `profiled` has them: what the two say of the same batch compares.
    """
    synchronize = synchronizer(rank.device)
    times = []
    run()
    for _ in range(count + 1):
        rank.barrier()
        started = time.perf_counter()
        run()
        synchronize()
        times.append(time.perf_counter() - started)
    return [max(column) for column in zip(*rank.gather_numbers(times[1:]), strict=True)]


def synchronizer(device: Any) -> Callable[[], None]:
    """What waits for the device."""
    return torch.cuda.synchronize if str(device).startswith("cuda") else lambda: None
