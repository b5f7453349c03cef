"""Timing a step that several ranks make jointly: rank 0 decides how often, all do as much.

A collective that one rank calls once more than the others waits for ever. So the deciding code (warm-up, batch, sleep,
when to stop) runs on rank 0 alone, and is the same as for a step of one process. Each order of rank 0 goes to all, all
carry it out, and all their times come back to it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from hpml_plugins.measure.cpu_timer import affinity, no_garbage_collection, sample_wall_clock
from hpml_plugins.measure.gpu_timer import STREAM_CHECKS, Cache, GpuTimer
from hpml_plugins.measure.regimes import Regulator
from hpml_plugins.measure.sampling import OTHER_STREAMS, SamplingPlan
from hpml_plugins.model.samples import Samples

if TYPE_CHECKING:
    from hpml_plugins.measure.ranks.rank import Rank

RankLaunch = Literal["hidden", "visible", "graph"]
Over = Literal["mean", "max"]

#: A sample on the CPU lasts at least this long, s: ranks leave a barrier some tens of microseconds apart.
SHORTEST_SAMPLE = 5e-3
LARGEST_BATCH = 1 << 16
_COMBINE: dict[Over, Callable[[list[float]], float]] = {"mean": statistics.fmean, "max": max}
_STOP = [0.0] * 6


def time_collective(
    rank: Rank,
    step: Callable[[], object],
    plan: SamplingPlan,
    *,
    on_gpu: bool,
    cache: Cache,
    launch: RankLaunch,
    over: Over,
) -> Samples:
    """Samples of the time of one call of `step`, s, the same on every rank; see Rank.time."""
    info: dict[str, Any] = {"ranks": rank.count, "over_ranks": over, "backend": rank.backend}
    if not on_gpu:
        return _by_wall_clock(rank, step, plan, over, timer="perf_counter", affinity=affinity(), **info)
    timer = CollectiveGpuTimer(rank, step, cache, launch, over)
    timer.first_call()
    # Always as often, for the step may hold a collective; and on every rank, for all must agree.
    leaves_work = [timer.leaves_work() for _ in range(STREAM_CHECKS)]
    if any(rank.gather(all(leaves_work))):
        return _by_wall_clock(rank, step, plan, over, timer=OTHER_STREAMS, launch="visible", **info)
    try:
        return _lead_or_follow(rank, timer.carry_out, lambda: timer.measure(plan, **info))
    finally:
        timer.drop_graph()


def _lead_or_follow(rank: Rank, carry_out: Callable[[list[float]], object], measure: Callable[[], Samples]) -> Samples:
    """On rank 0 measure, on the others carry out its orders until it has; then the same samples everywhere."""
    if rank.index == 0:
        samples = measure()
        rank.share_numbers(_STOP)
        return rank.share(samples)  # type: ignore[no-any-return]
    while (order := rank.share_numbers(_STOP)) != _STOP:
        carry_out(order)
    return rank.share()  # type: ignore[no-any-return]


def _by_wall_clock(rank: Rank, step: Callable[[], object], plan: SamplingPlan, over: Over, **info: Any) -> Samples:
    """On each rank a batch between two looks at the clock, from a barrier on, as nccl-tests does."""

    def carry_out(order: list[float]) -> float:
        batch = int(order[1])
        rank.barrier()
        started = time.perf_counter()
        for _ in range(batch):
            step()
        rank.synchronize()
        seconds = (time.perf_counter() - started) / batch
        return _COMBINE[over]([numbers[0] for numbers in rank.gather_numbers([seconds])])

    def run(batch: int) -> float:
        return carry_out(rank.share_numbers([1.0, float(batch), 0.0, 0.0, 0.0, 0.0]))

    step()  # first call: lazy imports, connections, first touch
    with no_garbage_collection():
        return _lead_or_follow(
            rank,
            carry_out,
            lambda: sample_wall_clock(run, plan, shortest=SHORTEST_SAMPLE, largest=LARGEST_BATCH, **info),
        )


class CollectiveGpuTimer(GpuTimer):
    """On rank 0 the timer of one process, whose every enqueueing is an order to all; the others carry orders out."""

    def __init__(self, rank: Rank, step: Callable[[], object], cache: Cache, launch: RankLaunch, over: Over) -> None:
        regulator = Regulator(rank.telemetry, rank.local)
        super().__init__(step, cache, "visible" if launch == "visible" else "hidden", regulator)
        self._rank = rank
        self._combine = _COMBINE[over]
        self._wants_graph = launch == "graph"
        self._uses_graph = False
        self._graph: Any = None
        self._graph_batch = 0
        # Ranks wake from their sleeps at different times: a small collective lets all pass the first event at once.
        self._signal = self.torch.zeros(1, device=rank.device)

    def measure(self, plan: SamplingPlan, **info: str | float) -> Samples:
        """On rank 0: the samples; the info says whether they are of a graph."""
        samples = super().measure(plan, **info)
        if not self._uses_graph:
            return samples
        return replace(samples, info={**samples.info, "launch": f"{self.launch}, in a CUDA graph"})

    def fit(self) -> None:
        """From here on the batch is one graph, where that is wanted."""
        self._uses_graph = self._wants_graph
        super().fit()

    def carry_out(self, order: list[float]) -> list[tuple[float, bool]]:
        """Do what rank 0 ordered; the samples, each of all ranks, and whether its launch was hidden on all."""
        _, batch, self._sleep, count, wait, graph = order
        self.batch, self._uses_graph = int(batch), bool(graph)
        if self._uses_graph:
            self._capture()
        taken = super().enqueue(int(count), wait=bool(wait))
        if not wait:
            return []
        of_ranks = self._rank.gather_numbers([float(part) for pair in taken for part in pair])
        return [
            (self._combine([numbers[2 * i] for numbers in of_ranks]), all(numbers[2 * i + 1] for numbers in of_ranks))
            for i in range(int(count))
        ]

    def drop_graph(self) -> None:
        """Let go of the captured collectives: NCCL's communicator cannot be taken down while a graph holds it."""
        if self._graph is not None:
            self.torch.cuda.synchronize()
            self._graph.reset()
            self._graph, self._graph_batch = None, 0

    def enqueue(self, count: int, *, wait: bool = True) -> list[tuple[float, bool]]:
        order = [1.0, float(self.batch), self._sleep, float(count), float(wait), float(self._uses_graph)]
        return self.carry_out(self._rank.share_numbers(order))

    def _fit_sleep(self) -> bool:
        self._sleep = 0.0
        self.enqueue(1)  # captures the batch, which must not count as enqueueing it
        return super()._fit_sleep()

    def _line_up(self) -> None:
        self.torch.distributed.all_reduce(self._signal)

    def _run_batch(self) -> None:
        if self._uses_graph:
            self._graph.replay()
        else:
            super()._run_batch()

    def _capture(self) -> None:
        """Capture the batch, unless it is what was captured last."""
        if self._graph_batch == self.batch:
            return
        self.drop_graph()
        graph = self.torch.cuda.CUDAGraph()
        # "thread_local": NCCL's watchdog thread may look at its events meanwhile.
        with self.torch.cuda.graph(graph, capture_error_mode="thread_local"):
            for _ in range(self.batch):
                self.step()
        self._graph, self._graph_batch = graph, self.batch
        graph.replay()  # the first one uploads the graph
        self.torch.cuda.synchronize()
