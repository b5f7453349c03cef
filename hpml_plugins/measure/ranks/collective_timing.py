"""Time a step that several ranks make together: rank 0 decides how often, and all follow.

If one rank called a collective more often than the others, it would wait forever. So the deciding
code (warm-up, batch, sleep, when to stop) runs on rank 0 only, and is the same as for a step of one
process. Rank 0 sends each order to all ranks, all carry it out, and all send their times back.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

from hpml_plugins import clocks
from hpml_plugins.measure.cpu_timer import (
    affinity,
    no_garbage_collection,
    sample_wall_clock,
)
from hpml_plugins.measure.gpu_timer import STREAM_CHECKS, GpuTimer
from hpml_plugins.measure.ranks.group import Member
from hpml_plugins.measure.regimes import Regulator
from hpml_plugins.measure.sampling import OTHER_STREAMS, Cache, Launch, SamplingPlan
from hpml_plugins.model.samples import Samples

Over = Literal["mean", "max"]

#: A sample on the CPU lasts at least this long, s: ranks leave a barrier some tens of
#: microseconds apart.
SHORTEST_SAMPLE = 5e-3
LARGEST_BATCH = 1 << 16
_COMBINE: dict[Over, Callable[[list[float]], float]] = {
    "mean": statistics.fmean,
    "max": max,
}
_STOP = [0.0] * 5
#: The first number of an order: enqueue samples, or do so while those before run.
ENQUEUE, AHEAD = 1.0, 2.0


def time_collective(
    rank: Member,
    step: Callable[[], object],
    plan: SamplingPlan,
    *,
    on_gpu: bool,
    cache: Cache,
    launch: Launch,
    over: Over,
) -> Samples:
    """Samples of the time of one call of `step`, s, the same on every rank; see Rank.time."""
    info: dict[str, Any] = {
        "ranks": rank.count,
        "over_ranks": over,
        "backend": rank.backend,
    }
    if not on_gpu:
        return _by_wall_clock(
            rank, step, plan, over, timer="perf_counter", affinity=affinity(), **info
        )
    timer = _CollectiveGpuTimer(rank, step, cache, launch, over)
    timer.first_call()
    # The same number of calls on every rank, since the step may contain a collective; all ranks
    # must agree.
    leaves_work = [timer.leaves_work() for _ in range(STREAM_CHECKS)]
    if any(rank.gather(all(leaves_work))):
        return _by_wall_clock(
            rank, step, plan, over, timer=OTHER_STREAMS, launch="visible", **info
        )
    return _lead_or_follow(rank, timer.carry_out, lambda: timer.measure(plan, **info))


def _lead_or_follow(
    rank: Member, carry_out: Callable[[list[float]], object], measure: Callable[[], Samples]
) -> Samples:
    """On rank 0, measure; on the others, carry out its orders until it is done. Then return the
    same samples everywhere."""
    if rank.index == 0:
        samples = measure()
        rank.share_numbers(_STOP)
        return rank.share(samples)  # type: ignore[no-any-return]
    while (order := rank.share_numbers(_STOP)) != _STOP:
        carry_out(order)
    return rank.share()  # type: ignore[no-any-return]


def _by_wall_clock(
    rank: Member, step: Callable[[], object], plan: SamplingPlan, over: Over, **info: Any
) -> Samples:
    """On each rank, time a batch with the wall clock, starting at a barrier, as nccl-tests does."""

    def carry_out(order: list[float]) -> float:
        batch = int(order[1])
        rank.barrier()
        started = clocks.perf_counter()
        for _ in range(batch):
            step()
        rank.synchronize()
        seconds = (clocks.perf_counter() - started) / batch
        return _COMBINE[over]([numbers[0] for numbers in rank.gather_numbers([seconds])])

    def run(batch: int) -> float:
        return carry_out(rank.share_numbers([ENQUEUE, float(batch), 0.0, 0.0, 0.0]))

    step()  # first call: lazy imports, connections, first touch
    with no_garbage_collection():
        return _lead_or_follow(
            rank,
            carry_out,
            lambda: sample_wall_clock(
                run, plan, shortest=SHORTEST_SAMPLE, largest=LARGEST_BATCH, **info
            ),
        )


class _CollectiveGpuTimer(GpuTimer):
    """On rank 0, the timer of one process, which sends each enqueueing as an order to all ranks;
    the others carry it out."""

    def __init__(
        self,
        rank: Member,
        step: Callable[[], object],
        cache: Cache,
        launch: Launch,
        over: Over,
    ) -> None:
        regulator = Regulator(rank.bench.telemetry, rank.local)
        super().__init__(step, cache, launch, regulator)
        self._rank = rank
        self._combine = _COMBINE[over]
        # Ranks wake from their sleeps at different times: after a small collective all pass the
        # first event together.
        self._signal = self.torch.zeros(1, device=rank.device)

    def carry_out(self, order: list[float]) -> list[tuple[float, bool]]:
        """Carry out an order of rank 0. Returns the samples, each over all ranks, and whether its
        launch was hidden on all."""
        way, batch, sleep, count, wait = order
        self.batch = int(batch)
        if way == AHEAD:
            taken = super().enqueue_ahead(int(count), sleep)
        else:
            self._sleep = sleep
            taken = super().enqueue(int(count), wait=bool(wait))
        if not taken:
            return []
        flat = [float(number) for number in itertools.chain.from_iterable(taken)]
        of_ranks = map(_pairs, self._rank.gather_numbers(flat))
        return [self._joined(sample) for sample in zip(*of_ranks, strict=True)]

    def _joined(self, sample: Sequence[tuple[float, float]]) -> tuple[float, bool]:
        """Combine one sample of all ranks."""
        seconds, hidden = zip(*sample, strict=True)
        return self._combine(list(seconds)), all(hidden)

    def enqueue(self, count: int, *, wait: bool = True) -> list[tuple[float, bool]]:
        order = [ENQUEUE, float(self.batch), self._sleep, float(count), float(wait)]
        return self.carry_out(self._rank.share_numbers(order))

    def enqueue_ahead(self, count: int, sleep: float) -> list[tuple[float, bool]]:
        order = [AHEAD, float(self.batch), sleep, float(count), 1.0]
        return self.carry_out(self._rank.share_numbers(order))

    def _line_up(self) -> None:
        self.torch.distributed.all_reduce(self._signal)


def _pairs(numbers: list[float]) -> Iterator[tuple[float, float]]:
    return zip(numbers[::2], numbers[1::2], strict=True)
