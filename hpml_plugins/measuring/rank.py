"""One rank: the process that it lives in, and the Bench that its function is handed."""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol

from hpml_plugins.errors import CheckFailed, HpmlError, Skipped, UsageError, describe
from hpml_plugins.isolation.lifeline import end_with_parent
from hpml_plugins.measuring.bench import Bench
from hpml_plugins.measuring.memory import out_of_gpu_memory
from hpml_plugins.measuring.sampling import Plan, remarks
from hpml_plugins.model.benchmark import Params
from hpml_plugins.model.node import Node
from hpml_plugins.model.record import Series
from hpml_plugins.model.samples import Samples

if TYPE_CHECKING:
    from hpml_plugins.measuring.gpu import Cache
    from hpml_plugins.measuring.together import Over, RankLaunch

Backend = Literal["nccl", "gloo"]
Launcher = Literal["torch", "mpi"]
Kind = Literal["ok", "failed", "wrong", "skipped"]

#: How long a rank that failed waits before it ends, s. Its death makes others fail in their collectives: the one who
#: was first is to be seen first.
LAST_WORDS = 0.3


@dataclass(frozen=True)
class Team:
    """What every rank of a group is told. folder: where they meet and leave their reports.  timeout: s.

    parent: the process that started them, with which they end; 0 where a program between starts them.  nodes: on how
    many machines they are; on more than one torch's launcher has given each its place.
    """

    folder: str
    count: int
    backend: Backend
    parent: int
    node: Node
    params: Params
    seed: int
    plan: Plan
    timeout: float
    environment: dict[str, str] = field(default_factory=dict)
    nodes: int = 1

    @property
    def on_a_node(self) -> int:
        """How many of them each node has."""
        return self.count // self.nodes

    def report_of(self, index: int) -> Path:
        """The file in which a rank says how it ended."""
        return Path(self.folder, f"rank{index}.report")

    def stack_of(self, index: int) -> Path:
        """The file into which a rank writes where it is, when signalled."""
        return Path(self.folder, f"rank{index}.stack")

    def pid_of(self, index: int) -> Path:
        """The file in which a rank that another program started says which process it is."""
        return Path(self.folder, f"rank{index}.pid")

    def read(self, index: int) -> Report | None:
        """How a rank ended; None for one that left no report."""
        try:
            report: Report = pickle.loads(self.report_of(index).read_bytes())
        except FileNotFoundError:
            return None
        return report


@dataclass
class Report:
    """How a rank's function ended. at: s of the monotonic clock, which all processes of a machine share."""

    kind: Kind
    text: str = ""
    value: Any = None
    at: float = 0.0
    checks: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    attached: dict[str, Series] = field(default_factory=dict)


class Rank(Bench):
    """A Bench with a place among others, whose torch.distributed group is up.

    index: 0 to count − 1.  count: how many ranks.  backend: "nccl" or "gloo".  device: "cpu", or "cuda:" and the index
    among the ranks of its node.
    """

    def __init__(
        self,
        index: int,
        team: Team,
        report: Callable[[str, float | None], None] | None = None,
        local: int | None = None,
    ) -> None:
        gpus = team.on_a_node if team.backend == "nccl" else 0
        super().__init__(team.node, team.params, gpus=gpus, seed=team.seed, plan=team.plan, report=report)
        self.index = index
        self.count = team.count
        self.backend = team.backend
        self.device = f"cuda:{index if local is None else local}" if gpus else "cpu"
        self._team = team
        self._control: Any = None

    def time(
        self,
        step: Callable[[], object],
        *,
        cache: Cache = "hot",
        launch: RankLaunch = "hidden",
        device: str | None = None,
        budget: float | None = None,
        name: str = "time",
        over: Over = "mean",
    ) -> Samples:
        """Samples of the time of one call of `step`, which all ranks make together, s. Every rank gets the same ones.

        Rank 0 decides how often the step is called, and all call it as often: a step may hold collectives. All ranks
        must call `time` in the same order.  launch: beside Bench.time's, "graph" captures a batch into a CUDA graph, so
        that not even a long queue of launches stands between two steps; the step must be capturable.  device: "cpu"
        or "cuda".  over: each sample is the mean over ranks (as nccl-tests reports), or the slowest rank's ("max").
        The other arguments are Bench.time's.
        """
        from hpml_plugins.measuring.together import time_together

        plan = self.plan.but(budget=budget)
        on_gpu = (device or self.device).startswith("cuda")
        samples = time_together(self, step, plan, on_gpu=on_gpu, cache=cache, launch=launch, over=over)
        if self.index == 0:
            self.warnings += remarks(samples, plan, name)
        return samples

    def barrier(self) -> None:
        """Wait until this rank's GPU is idle, and for all ranks."""
        import torch
        import torch.distributed as dist

        self._synchronize()
        # Not dist.barrier: that goes to the GPU which the default group is bound to.
        dist.all_reduce(torch.zeros(1), group=self._control)

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value, by rank, on every rank. value: anything that pickles."""
        import torch.distributed as dist

        everyone: list[Any] = [None] * self.count
        dist.all_gather_object(everyone, value, group=self._control)
        return everyone

    def share(self, value: Any = None) -> Any:
        """Rank 0's value, on every rank; what the others pass does not matter."""
        import torch.distributed as dist

        box = [value if self.index == 0 else None]
        dist.broadcast_object_list(box, 0, group=self._control)
        return box[0]

    def ranks(self, *_: Any, **__: Any) -> NoReturn:
        """Ranks start no ranks. Raises UsageError."""
        raise UsageError("a rank cannot start ranks; start them from the function that `measure` is")

    def share_numbers(self, numbers: list[float]) -> list[float]:
        """Rank 0's numbers, on every rank; all pass as many. A tenth of what `share` costs."""
        import torch
        import torch.distributed as dist

        told = torch.tensor(numbers, dtype=torch.float64)
        dist.broadcast(told, 0, group=self._control)
        return list(told.tolist())

    def gather_numbers(self, numbers: list[float]) -> list[list[float]]:
        """Every rank's numbers, by rank; all pass as many."""
        import torch
        import torch.distributed as dist

        own = torch.tensor(numbers, dtype=torch.float64)
        everyone = [torch.empty_like(own) for _ in range(self.count)]
        dist.all_gather(everyone, own, group=self._control)
        return [list(told.tolist()) for told in everyone]

    @contextmanager
    def connected(self) -> Iterator[None]:
        """The process group: up inside, taken down after a function that returned. Who fails just ends."""
        import torch
        import torch.distributed as dist

        # Fair shares: as many threads as cores on each rank would have every one wait for the others'.
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // self._team.on_a_node))
        card = None
        if self.backend == "nccl":
            card = torch.device(self.device)
            torch.cuda.set_device(card)
        # A file, not a port: nobody else can take it between choosing and using it. Over several nodes the launcher's.
        meeting: dict[str, Any] = {"init_method": "env://"}
        if self._team.nodes == 1:
            meeting = {"store": dist.FileStore(str(Path(self._team.folder, "store")), self.count)}
        dist.init_process_group(
            self.backend,
            **meeting,
            rank=self.index,
            world_size=self.count,
            timeout=timedelta(seconds=self._team.timeout + 60),  # ours must be first, to say who hangs
            device_id=card,
        )
        # Decisions travel beside the measured collectives, over the CPU.
        self._control = dist.new_group(backend="gloo") if self.backend == "nccl" else dist.new_group()
        yield
        with suppress(Exception):  # what was measured stands, whether or not the others come to the end
            self.barrier()
            dist.destroy_process_group()

    def _synchronize(self) -> None:
        if self.device != "cpu":
            import torch

            torch.cuda.synchronize()


class Listener(Protocol):
    """Who is told of progress: text and share."""

    def send(self, obj: Any, /) -> None:
        """Take it."""


def live(
    index: int,
    team: Team,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    progress: Listener,
    local: int | None = None,
) -> None:
    """What the launcher starts: run the function in its place and leave a report. Raises for a failed one.

    local: the place among the ranks of this node, where there are several nodes.
    """
    end_with_parent(team.parent if team.parent and team.nodes == 1 else None)
    faulthandler.enable(2)
    _listen_for_where(team.stack_of(index))
    if team.nodes == 1:
        os.environ.update(_variables(index, team))
    os.environ.update(team.environment)
    rank = Rank(index, team, (lambda text, share: progress.send((text, share))) if index == 0 else None, local)
    try:
        with rank.connected():
            report = Report("ok", value=function(rank, *args))
            _leave(report, rank)
    except BaseException as error:
        report = _report_of(error)
        _leave(report, rank)
        time.sleep(LAST_WORDS)
        raise


def _variables(index: int, team: Team) -> dict[str, str]:
    """What torch's launcher sets, for libraries that look there."""
    places = {"RANK": index, "LOCAL_RANK": index, "WORLD_SIZE": team.count, "LOCAL_WORLD_SIZE": team.count}
    told = {name: str(value) for name, value in places.items()} | {"MASTER_ADDR": "127.0.0.1"}
    # All ranks are on this machine: its name may not resolve, its loopback is always there.
    if "GLOO_SOCKET_IFNAME" not in os.environ and Path("/sys/class/net/lo").exists():
        told["GLOO_SOCKET_IFNAME"] = "lo"
    return told


def _listen_for_where(path: Path) -> None:
    partial = path.with_suffix(".partial")
    file = partial.open("w")  # stays open: the handler writes to its descriptor
    faulthandler.register(signal.SIGUSR1, file=file, all_threads=False)
    partial.rename(path)  # there only when the signal would not kill


def _report_of(error: BaseException) -> Report:
    if isinstance(error, Skipped):
        return Report("skipped", error.what)
    if isinstance(error, CheckFailed):
        return Report("wrong", error.what)
    if isinstance(error, HpmlError):
        return Report("failed", error.what)
    traceback.print_exception(error)
    if isinstance(error, SystemExit):
        return Report("failed", f"exited: {error.code}")
    return Report("failed", out_of_gpu_memory(error) or describe(error))


def _leave(report: Report, rank: Rank) -> None:
    report.at = time.monotonic()
    report.checks, report.warnings, report.attached = rank.checks, rank.warnings, rank.attached
    path = rank._team.report_of(rank.index)
    partial = path.with_suffix(".partial")
    try:
        partial.write_bytes(pickle.dumps(report))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise UsageError(f"what the function of the ranks returned does not pickle: {describe(error)}") from error
    partial.rename(path)
