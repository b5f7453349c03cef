"""Timing a step that several ranks make together: rank 0 decides how often, all do as much.

A collective that one rank calls once more than the others waits for ever. So the deciding code (warm-up, batch, sleep,
when to stop) runs on rank 0 alone, and is the same as for a step of one process. Each order of rank 0 goes to all, all
carry it out, and all their times come back to it.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from hpml_plugins.measure.cpu_timer import affinity
from hpml_plugins.measure.gpu_timer import LEAST_SAMPLING, LEAST_WARM_UP, LOOKS_ELSEWHERE, Cache, GpuTimer, Launch
from hpml_plugins.measure.sampling import Plan, sample, warm_up
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


def time_together(
    rank: Rank, step: Callable[[], object], plan: Plan, *, on_gpu: bool, cache: Cache, launch: RankLaunch, over: Over
) -> Samples:
    """Samples of the time of one call of `step`, s, the same on every rank; see Rank.time."""
    if not on_gpu:
        return _by_wall_clock(rank, step, plan, over, affinity=affinity())
    timer = _TogetherOnGpu(rank, step, cache, launch, over)
    timer.first_call()
    # Always as often, for the step may hold a collective; and everywhere, for all must agree.
    elsewhere = [timer.leaves_work() for _ in range(LOOKS_ELSEWHERE)]
    if any(rank.gather(all(elsewhere))):
        why = "perf_counter with device synchronisation: the step works on other streams than the current one"
        return _by_wall_clock(rank, step, plan, over, timer=why, launch="visible")
    try:
        return _led(rank, timer.obey, lambda: timer.decide(plan))
    finally:
        timer.drop_graph()


def _led(rank: Rank, obey: Callable[[list[float]], None], decide: Callable[[], Samples]) -> Samples:
    """On rank 0 decide, on the others obey until it has; then the same samples everywhere."""
    if rank.index == 0:
        samples = decide()
        rank.share_numbers(_STOP)
        return rank.share(samples)  # type: ignore[no-any-return]
    while (order := rank.share_numbers(_STOP)) != _STOP:
        obey(order)
    return rank.share()  # type: ignore[no-any-return]


def _by_wall_clock(
    rank: Rank, step: Callable[[], object], plan: Plan, over: Over, *, timer: str = "perf_counter", **info: Any
) -> Samples:
    """On each rank a batch between two looks at the clock, from a barrier on, as nccl-tests does."""
    combine = _COMBINE[over]

    def run(batch: int) -> float:
        rank.barrier()
        started = time.perf_counter()
        for _ in range(batch):
            step()
        rank._synchronize()
        seconds = (time.perf_counter() - started) / batch
        return combine([numbers[0] for numbers in rank.gather_numbers([seconds])])

    def order(batch: int) -> float:
        return run(int(rank.share_numbers([1.0, float(batch), 0.0, 0.0, 0.0, 0.0])[1]))

    def decide() -> Samples:
        batch = 1
        while order(batch) * batch < SHORTEST_SAMPLE and batch < LARGEST_BATCH:
            batch *= 2
        warmed, stable = warm_up(lambda: order(batch), plan)
        return sample(
            lambda: (order(batch),),
            plan,
            batch=batch,
            timer=timer,
            warm_up=warmed,
            warm="stable" if stable else "not stable",
            **_about(rank, over),
            **info,
        )

    step()  # first call: lazy imports, connections, first touch
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        return _led(rank, lambda told: void(run(int(told[1]))), decide)
    finally:
        if was_enabled:
            gc.enable()


def void(_: object) -> None:
    """Nothing, of anything."""


class _TogetherOnGpu(GpuTimer):
    """On rank 0 the timer of one process, whose every enqueueing is an order to all; on the others it takes orders."""

    def __init__(self, rank: Rank, step: Callable[[], object], cache: Cache, launch: RankLaunch, over: Over) -> None:
        hidden: Launch = "visible" if launch == "visible" else "hidden"
        super().__init__(step, cache, hidden)
        self._rank = rank
        self._combine = _COMBINE[over]
        self._over = over
        self._wants_graph = launch == "graph"
        self._uses_graph = False
        self._graph: Any = None
        self._graph_batch = 0
        # Ranks wake from their sleeps at different times: a small collective lets all pass the first event together.
        self._signal = self.torch.zeros(1, device=rank.device)

    def decide(self, plan: Plan) -> Samples:
        """On rank 0: the samples."""
        self.choose_batch()
        warmed, stable = warm_up(self.round, plan, least=LEAST_WARM_UP)
        self._uses_graph = self._wants_graph
        self.fit()
        samples = sample(
            self.take,
            plan,
            least=LEAST_SAMPLING,
            batch=self.batch,
            timer="cuda events",
            cache=self.cache,
            warm_up=warmed,
            warm="stable" if stable else "not stable",
            **_about(self._rank, self._over),
        )
        launch = f"{self.launch}, in a CUDA graph" if self._uses_graph else self.launch
        return replace(samples, info={**samples.info, "launch": launch})

    def obey(self, order: list[float]) -> None:
        """On the others: do what rank 0 does."""
        self._carry_out(order)

    def drop_graph(self) -> None:
        """Let go of the captured collectives: NCCL's communicator cannot be taken down while a graph holds it."""
        if self._graph is not None:
            self.torch.cuda.synchronize()
            self._graph.reset()
            self._graph, self._graph_batch = None, 0

    def _enqueue(self, count: int, *, wait: bool = True) -> list[tuple[float, bool]]:
        order = [1.0, float(self.batch), self._sleep, float(count), float(wait), float(self._uses_graph)]
        return self._carry_out(self._rank.share_numbers(order))

    def _carry_out(self, order: list[float]) -> list[tuple[float, bool]]:
        _, batch, self._sleep, count, wait, graph = order
        self.batch, self._uses_graph = int(batch), bool(graph)
        if self._uses_graph:
            self._capture()
        taken = super()._enqueue(int(count), wait=bool(wait))
        if not wait:
            return []
        told = self._rank.gather_numbers([float(part) for pair in taken for part in pair])
        return [
            (self._combine([numbers[2 * i] for numbers in told]), all(numbers[2 * i + 1] for numbers in told))
            for i in range(int(count))
        ]

    def _fit_sleep(self) -> bool:
        self._sleep = 0.0
        self._enqueue(1)  # captures the batch, which must not count as enqueueing it
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
        torch = self.torch
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            # "thread_local": NCCL's watchdog thread may look at its events meanwhile.
            graph.capture_begin(capture_error_mode="thread_local")
            for _ in range(self.batch):
                self.step()
            graph.capture_end()
        torch.cuda.current_stream().wait_stream(stream)
        self._graph, self._graph_batch = graph, self.batch
        graph.replay()  # the first one uploads the graph
        torch.cuda.synchronize()


def _about(rank: Rank, over: Over) -> dict[str, Any]:
    return {"ranks": rank.count, "over_ranks": over, "backend": rank.backend}
