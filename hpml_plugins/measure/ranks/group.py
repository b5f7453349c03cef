"""A group of ranks: what every rank gets, their communication, and the files with their results."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hpml_plugins import clocks
from hpml_plugins.errors import HpmlError, describe
from hpml_plugins.measure.sampling import SamplingPlan
from hpml_plugins.measure.session import Collected, Session
from hpml_plugins.model.benchmark import Params
from hpml_plugins.model.data_source import LoadableData
from hpml_plugins.model.node import Node
from hpml_plugins.store import atomic_write

if TYPE_CHECKING:
    from hpml_plugins.measure.telemetry import Telemetry

Backend = Literal["nccl", "gloo"]
Launcher = Literal["torch", "mpi"]


@dataclass
class RankResult:
    """How a rank's function ended. error: what the point raises; None if it returned.  at: Unix
    time, s."""

    value: Any = None
    error: HpmlError | None = None
    collected: Collected = field(default_factory=Collected)
    at: float = field(default_factory=clocks.wall_clock)


@dataclass(frozen=True)
class RankGroup:
    """What every rank gets. folder: for their rendezvous and results.  end: when their time ends,
    Unix time, s.  sources: the available data sets.

    parent: the process that started them, with which they end; 0 if a program between starts them.
    nodes: the number of machines; on more than one, torch's launcher assigns the ranks.  telemetry:
    of the GPUs of this node, for ranks forked from the process that shares it.
    """

    folder: str
    count: int
    backend: Backend
    node: Node
    params: Params
    seed: int
    plan: SamplingPlan
    end: float
    environment: dict[str, str]
    sources: Mapping[str, LoadableData]
    nodes: int = 1
    parent: int = 0
    telemetry: Telemetry | None = None

    @property
    def per_node(self) -> int:
        """The number of ranks on each node."""
        return self.count // self.nodes

    @property
    def gpus(self) -> int:
        """The number of GPUs that the ranks of each node use."""
        return self.per_node if self.backend == "nccl" else 0

    def file(self, kind: str, index: int = 0) -> Path:
        """The file with a rank's "result", or with its "stack" when the time was up; rank 0's
        "progress"; the "order" to all."""
        return Path(self.folder, f"rank{index}.{kind}")

    def result(self, index: int) -> RankResult | None:
        """The result of a rank; None if it left none."""
        with suppress(FileNotFoundError):
            result: RankResult = pickle.loads(self.file("result", index).read_bytes())
            return result
        return None

    def leave(self, index: int, result: RankResult) -> None:
        """Write the result of a rank. Raises HpmlError for a value that cannot be pickled."""
        try:
            content = pickle.dumps(result)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise HpmlError(
                f"the return value of the ranks' function cannot be pickled: {describe(error)}"
            ) from error
        atomic_write(self.file("result", index), content, durable=False)


class Member:
    """A process of an initialised torch.distributed group.

    bench: the session of this rank.  index: 0 to count − 1.  local: the index among the ranks of
    its node.  count: the number of ranks.  backend: "nccl" or "gloo".  device: "cpu", or "cuda:"
    and the local index.
    """

    def __init__(self, index: int, group: RankGroup, local: int, bench: Session) -> None:
        self.bench = bench
        self.index = index
        self.local = local
        self.count = group.count
        self.backend = group.backend
        self.device = bench.device = f"cuda:{local}" if group.gpus else "cpu"
        self._group = group
        self._torch: Any = None  # once connected
        self._control: Any = None

    def barrier(self) -> None:
        """Wait until this rank's GPU is idle, and for all ranks."""
        self.synchronize()
        # dist.barrier would use the GPU to which the default group is bound.
        self._torch.distributed.all_reduce(self._torch.zeros(1), group=self._control)

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks, in order of rank, on every rank. value: anything that can be
        pickled."""
        everyone: list[Any] = [None] * self.count
        self._torch.distributed.all_gather_object(everyone, value, group=self._control)
        return everyone

    def share(self, value: Any = None) -> Any:
        """Rank 0's value, on every rank; the values of the others are ignored."""
        box = [value if self.index == 0 else None]
        self._torch.distributed.broadcast_object_list(box, 0, group=self._control)
        return box[0]

    def share_numbers(self, numbers: list[float]) -> list[float]:
        """Rank 0's numbers, on every rank; all pass the same count. Ten times faster than
        `share`."""
        shared = self._torch.tensor(numbers, dtype=self._torch.float64)
        self._torch.distributed.broadcast(shared, 0, group=self._control)
        return list(shared.tolist())

    def gather_numbers(self, numbers: list[float]) -> list[list[float]]:
        """The numbers of all ranks, in order of rank; all pass the same count."""
        own = self._torch.tensor(numbers, dtype=self._torch.float64)
        everyone = [self._torch.empty_like(own) for _ in range(self.count)]
        self._torch.distributed.all_gather(everyone, own, group=self._control)
        return [list(each.tolist()) for each in everyone]

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Initialise the process group for the block, and destroy it if the block succeeds. On
        failure the process just ends."""
        import torch
        import torch.distributed as dist

        self._torch = torch
        # Divide the cores: with as many threads as cores on each rank, ranks would wait for each
        # other.
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // self._group.per_node))
        card = None
        if self.backend == "nccl":
            card = torch.device(self.device)
            torch.cuda.set_device(card)
        # A file rather than a port, which another process could take first. On several nodes, the
        # launcher's address.
        meeting: dict[str, Any] = {"init_method": "env://"}
        if self._group.nodes == 1:
            meeting = {
                "store": dist.FileStore(str(Path(self._group.folder, "store")), self.count)
            }
        dist.init_process_group(
            self.backend,
            **meeting,
            rank=self.index,
            world_size=self.count,
            # our timeout must come first, so that we can say which rank hangs
            timeout=timedelta(seconds=self._group.end - clocks.wall_clock() + 60),
            device_id=card,
        )
        # Decisions use the CPU, separate from the measured collectives.
        self._control = (
            dist.new_group(backend="gloo") if self.backend == "nccl" else dist.new_group()
        )
        yield
        # measured results are valid even if other ranks do not finish
        with suppress(Exception):
            self.barrier()
            dist.destroy_process_group()

    def synchronize(self) -> None:
        """Wait until this rank's GPU is idle."""
        if self.device != "cpu":
            self._torch.cuda.synchronize()
