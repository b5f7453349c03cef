"""The times of a batch: phase by phase, by CUDA's events or the host's clock, and whole. Imports torch."""

from __future__ import annotations

import contextlib
import importlib
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import torch

from hpml_plugins import Rank
from hpml_plugins.plugins.mlp.formulas import LAUNCHING, ORDER

if TYPE_CHECKING:
    from hpml_plugins.plugins.mlp.training import Trainer

#: The GPU is held back for at most so long, s, by a sleeping kernel that counts cycles; no card has more per second.
LONGEST_SLEEP, CYCLES = 0.02, 2.2e9
_NOTHING = contextlib.nullcontext()


class Phases:
    """Sums the time of every phase entered, by name, while it is `active`: whole batches are timed without it.

    Each phase is an NVTX range of the same name, by the package nvtx, else by torch.
    """

    def __init__(self, device: str, *, active: bool = False) -> None:
        self.active = active
        self._on_gpu = device.startswith("cuda")
        self._push: Callable[[str], object] = lambda name: None
        self._pop: Callable[[], object] = lambda: None
        try:
            nvtx = importlib.import_module("nvtx")
            self._push, self._pop = nvtx.push_range, nvtx.pop_range
        except ImportError:
            if self._on_gpu:
                self._push, self._pop = torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop
        self._events: list[tuple[str, Any, Any]] = []
        self._times: dict[str, float] = {}

    def __call__(self, name: str, *, on_host: bool = False) -> AbstractContextManager[None]:
        """Time what is inside: on a GPU what the current stream does in it, unless on_host: by the host's clock."""
        return self._timed(name, on_host) if self.active else _NOTHING

    @contextmanager
    def _timed(self, name: str, on_host: bool) -> Iterator[None]:
        self._push(name)
        if self._on_gpu and not on_host:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            yield
            end.record()
            self._events.append((name, start, end))
        else:
            started = time.perf_counter()
            yield
            self._add(name, time.perf_counter() - started)
        self._pop()

    def _add(self, name: str, seconds: float) -> None:
        self._times[name] = self._times.get(name, 0.0) + seconds

    def taken(self) -> dict[str, float]:
        """Seconds by name since the last call; waits for the device."""
        if self._on_gpu:
            torch.cuda.synchronize()
        for name, start, end in self._events:
            self._add(name, 1e-3 * float(start.elapsed_time(end)))
        times, self._events, self._times = self._times, [], {}
        return times


def profile_phases(trainer: Trainer, count: int) -> dict[str, float]:
    """The median time of each phase of a batch over `count` batches, mean over ranks, s; 0 for one that it lacks.

    Ranks wait for one another before gradients are reduced, as in the coursework document, so that waiting does not
    count as reducing. The launching is hidden: a phase is what the GPU does; the host's time to launch is LAUNCHING.
    """
    rank, phases = trainer.rank, trainer.phases
    taken: list[dict[str, float]] = []
    launching = statistics.median(_seconds_to_launch(trainer) for _ in range(5))
    phases.active = True
    for _ in range(count + 2):
        rank.barrier()
        with phases("batch iteration", on_host=True):
            _batch_in_step(trainer, launching)
        taken.append({**phases.taken(), LAUNCHING: launching})
    phases.active = False
    names = (*ORDER, LAUNCHING)
    everyone = rank.gather_numbers([statistics.median(each.get(name, 0.0) for each in taken[2:]) for name in names])
    return {name: statistics.fmean(numbers[i] for numbers in everyone) for i, name in enumerate(names)}


def _batch_in_step(trainer: Trainer, launching: float) -> None:
    """A batch in step with the other ranks.  launching: how long the host takes to launch the computation, s."""
    rank, network = trainer.rank, trainer.network
    trainer.copy_images()
    rank.synchronize()
    if rank.device.startswith("cuda"):
        torch.cuda._sleep(int(min(LONGEST_SLEEP, 2 * launching + 5e-4) * CYCLES))
    with trainer.phases("forward", on_host=True):
        network.forward()
    with trainer.phases("backward", on_host=True):
        network.backward()
    rank.barrier()
    trainer.exchange.reduce(network.gradient)
    rank.synchronize()
    network.step()


def _seconds_to_launch(trainer: Trainer) -> float:
    """How long the host takes to launch one forward and backward pass, s."""
    trainer.rank.synchronize()
    started = time.perf_counter()
    trainer.network.forward()
    trainer.network.backward()
    taken = time.perf_counter() - started
    trainer.rank.synchronize()
    return taken


def median_phases(profiles: list[dict[str, float]]) -> dict[str, float]:
    """Each phase's median over several profiles of a batch, s."""
    return {name: statistics.median(profile[name] for profile in profiles) for name in profiles[0]}


def time_whole(rank: Rank, run: Callable[[], object], count: int) -> list[float]:
    """The times of a batch, each of the slowest rank, s: `count` of them, after two that do not count.

    Ranks begin together, as in `profile_phases`: the two can be compared.
    """
    times = []
    run()
    for _ in range(count + 1):
        rank.barrier()
        started = time.perf_counter()
        run()
        rank.synchronize()
        times.append(time.perf_counter() - started)
    return [max(column) for column in zip(*rank.gather_numbers(times[1:]), strict=True)]
