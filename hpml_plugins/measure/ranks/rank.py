"""Rank: what the function of a rank is handed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpml_plugins import clocks
from hpml_plugins.measure.bench import Bench, Progress
from hpml_plugins.measure.ranks.group import RankGroup
from hpml_plugins.measure.sampling import remarks
from hpml_plugins.model.samples import Samples

if TYPE_CHECKING:
    from hpml_plugins.measure.gpu_timer import Cache, Launch
    from hpml_plugins.measure.ranks.collective_timing import Over


class Rank:
    """A process of a torch.distributed group that is up, and its Bench.

    bench: checks, warnings, series and data sets of this rank, which go into the point's Record;
    its `ranks` raises UsageError, and its `time` is for a step without collectives.  index: 0 to
    count − 1.  local: the index among the ranks of its node.  count: how many ranks.  backend:
    "nccl" or "gloo".  device: "cpu", or "cuda:" and the local index.
    """

    def __init__(self, index: int, group: RankGroup, local: int, report: Progress) -> None:
        gpus = group.per_node if group.backend == "nccl" else 0
        self.bench = Bench(
            group.node,
            group.params,
            gpus=gpus,
            seed=group.seed,
            plan=group.plan,
            report=report,
            telemetry=group.telemetry,
            starts_ranks=False,
        )
        self.index = index
        self.local = local
        self.count = group.count
        self.backend = group.backend
        self.device = self.bench.device = f"cuda:{local}" if gpus else "cpu"
        self._group = group
        self._torch: Any = None  # once connected
        self._control: Any = None

    def time(
        self,
        step: Callable[[], object],
        *,
        cache: Cache = "hot",
        launch: Launch = "hidden",
        device: str | None = None,
        budget: float | None = None,
        name: str = "time",
        over: Over = "mean",
    ) -> Samples:
        """Samples of the time of one call of `step`, which all ranks make jointly, s. Every rank
        gets the same ones.

        Rank 0 decides how often the step is called, and all call it as often: a step may hold
        collectives. All ranks must call `time` in the same order.  device: "cpu" or "cuda".  over:
        each sample is the mean over ranks (as nccl-tests reports), or the slowest rank's ("max").
        The other arguments are Bench.time's.
        """
        from hpml_plugins.measure.ranks.collective_timing import time_collective

        plan = self.bench.plan.but(budget=budget)
        on_gpu = (device or self.device).startswith("cuda")
        samples = time_collective(
            self, step, plan, on_gpu=on_gpu, cache=cache, launch=launch, over=over
        )
        if self.index == 0:
            self.bench.collected.warnings += remarks(samples, plan, name)
        return samples

    def barrier(self) -> None:
        """Wait until this rank's GPU is idle, and for all ranks."""
        self.synchronize()
        # Not dist.barrier: that goes to the GPU which the default group is bound to.
        self._torch.distributed.all_reduce(self._torch.zeros(1), group=self._control)

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value, by rank, on every rank. value: anything that pickles."""
        everyone: list[Any] = [None] * self.count
        self._torch.distributed.all_gather_object(everyone, value, group=self._control)
        return everyone

    def share(self, value: Any = None) -> Any:
        """Rank 0's value, on every rank; what the others pass does not matter."""
        box = [value if self.index == 0 else None]
        self._torch.distributed.broadcast_object_list(box, 0, group=self._control)
        return box[0]

    def share_numbers(self, numbers: list[float]) -> list[float]:
        """Rank 0's numbers, on every rank; all pass as many. A tenth of what `share` costs."""
        shared = self._torch.tensor(numbers, dtype=self._torch.float64)
        self._torch.distributed.broadcast(shared, 0, group=self._control)
        return list(shared.tolist())

    def gather_numbers(self, numbers: list[float]) -> list[list[float]]:
        """Every rank's numbers, by rank; all pass as many."""
        own = self._torch.tensor(numbers, dtype=self._torch.float64)
        everyone = [self._torch.empty_like(own) for _ in range(self.count)]
        self._torch.distributed.all_gather(everyone, own, group=self._control)
        return [list(each.tolist()) for each in everyone]

    @contextmanager
    def connected(self) -> Iterator[None]:
        """The process group: up inside, taken down after a function that returned. Who fails just
        ends."""
        import torch
        import torch.distributed as dist

        self._torch = torch
        # Fair shares: as many threads as cores on each rank would have every one wait for the
        # others'.
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // self._group.per_node))
        card = None
        if self.backend == "nccl":
            card = torch.device(self.device)
            torch.cuda.set_device(card)
        # A file, not a port: nobody else can take it between choosing and using it. Over several
        # nodes the launcher's.
        meeting: dict[str, Any] = {"init_method": "env://"}
        if self._group.nodes == 1:
            meeting = {"store": dist.FileStore(str(Path(self._group.folder, "store")), self.count)}
        dist.init_process_group(
            self.backend,
            **meeting,
            rank=self.index,
            world_size=self.count,
            # ours must be first, to say who hangs
            timeout=timedelta(seconds=self._group.end - clocks.wall_clock() + 60),
            device_id=card,
        )
        # Decisions travel over the CPU, apart from the measured collectives.
        self._control = (
            dist.new_group(backend="gloo") if self.backend == "nccl" else dist.new_group()
        )
        yield
        # what was measured stands, whether or not the others come to the end
        with suppress(Exception):
            self.barrier()
            dist.destroy_process_group()

    def synchronize(self) -> None:
        """Wait until this rank's GPU is idle."""
        if self.device != "cpu":
            self._torch.cuda.synchronize()
