"""Ways to add a vector up over the ranks, in place: over MPI, over MPI that knows the GPU, over NCCL, over gloo.

Imports torch, and mpi4py where it is MPI: imported on ranks only.
"""

from __future__ import annotations

import ctypes
from typing import Any, Protocol

import torch
import torch.distributed as dist

from hpml_plugins import Rank
from hpml_plugins.plugins.mlp.job import Way
from hpml_plugins.plugins.mlp.phases import REDUCE, TO_DEVICE, TO_HOST, Phase, no_phase


class Exchange(Protocol):
    """Adds vectors up. `start`, `add_up` and `finish` do a part of one, so that other things may happen between."""

    def reduce(self, vector: Any) -> None:
        """The sum over ranks, in place; on the current stream when it returns."""

    def start(self, vector: Any, begin: int, end: int) -> Any:
        """Begin with this part of the vector, once the current stream has made it; what `finish` is to be given."""

    def add_up(self, started: Any) -> Any:
        """Begin to add that part up, where it had to arrive first; what `finish` is to be given."""

    def finish(self, started: Any) -> None:
        """Have that part's sum in the vector, as far as the current stream is concerned."""


class OverHost:
    """As the exercise does it: copied to the host, added up there, copied back.

    add: adds a host tensor up, in place.  add_later: begins to, and returns what waits for the end.  pinned: whether
    the host's memory is page-locked, so that the GPU copies without the driver's help and while the host goes on.
    waiting: parts are added up by `add`, too: the GPU computes and copies others meanwhile.
    """

    def __init__(
        self, like: Any, add: Any, add_later: Any, *, pinned: bool, waiting: bool = False, phase: Phase = no_phase
    ) -> None:
        self._on_gpu = like.device.type == "cuda"
        self._host = torch.empty(like.shape, dtype=like.dtype, pin_memory=pinned and self._on_gpu)
        self._add, self._phase = add, phase
        self._add_later = _at_once(add) if waiting else add_later
        self._pinned = pinned and self._on_gpu
        self._down = torch.cuda.Stream() if self._pinned else None
        self._up = torch.cuda.Stream() if self._pinned else None

    def reduce(self, vector: Any) -> None:
        """The sum over ranks, in place."""
        with self._phase(TO_HOST):
            self._host.copy_(vector, non_blocking=self._pinned)
        if self._pinned:
            torch.cuda.current_stream().synchronize()
        with self._phase(REDUCE, on_host=True):
            self._add(self._host)
        with self._phase(TO_DEVICE):
            vector.copy_(self._host, non_blocking=self._pinned)

    def start(self, vector: Any, begin: int, end: int) -> Any:
        """Copy this part to the host, beside what the current stream does next where memory is pinned."""
        part, host = vector[begin:end], self._host[begin:end]
        if self._down is None:
            host.copy_(part)
            return part, host, self._add_later(host), None
        self._down.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._down):
            host.copy_(part, non_blocking=True)
            arrived = torch.cuda.Event()
            arrived.record()
        return part, host, None, arrived

    def add_up(self, started: Any) -> Any:
        """Begin to add up a part that `start` had copied, when it has arrived; nothing to do where that is done."""
        part, host, waiting, arrived = started
        if arrived is not None:
            arrived.synchronize()
            waiting = self._add_later(host)
        return part, host, waiting, None

    def finish(self, started: Any) -> None:
        """Wait for this part's sum and copy it back."""
        part, host, waiting, _ = self.add_up(started) if started[2] is None else started
        waiting()
        if self._up is None:
            part.copy_(host)
            return
        with torch.cuda.stream(self._up):
            part.copy_(host, non_blocking=True)
        torch.cuda.current_stream().wait_stream(self._up)


class InPlace:
    """On the device: by NCCL, or by an MPI that takes GPU memory."""

    def __init__(self, add: Any, add_later: Any, phase: Phase = no_phase, *, on_host: bool) -> None:
        self._add, self._add_later, self._phase, self._on_host = add, add_later, phase, on_host

    def reduce(self, vector: Any) -> None:
        """The sum over ranks, in place."""
        if self._on_host:
            torch.cuda.current_stream().synchronize()  # MPI does not look at streams
        with self._phase(REDUCE, on_host=self._on_host):
            self._add(vector)

    def start(self, vector: Any, begin: int, end: int) -> Any:
        """Begin with this part."""
        if self._on_host:
            torch.cuda.current_stream().synchronize()
        return self._add_later(vector[begin:end])

    def add_up(self, started: Any) -> Any:
        """It has begun."""
        return started

    def finish(self, started: Any) -> None:
        """Wait for its end."""
        started()


def _at_once(add: Any) -> Any:
    """An `add_later` that has added up when it returns."""

    def later(host: Any) -> Any:
        add(host)
        return lambda: None

    return later


def make_exchange(
    rank: Rank, way: Way, like: Any, *, pinned: bool = True, waiting: bool = False, phase: Phase = no_phase
) -> Exchange:
    """The exchange of this way for vectors like this one. Skips the point where the library cannot, with the reason.

    "mpi" and "cuda_mpi" need ranks that mpirun started. All ranks must make theirs in the same order.
    """
    if way == "nccl":
        if rank.backend != "nccl":
            rank.bench.skip("NCCL adds up on GPUs; this point has none")
        return InPlace(dist.all_reduce, _later_over_torch(None), phase, on_host=False)
    if way == "gloo":
        group = dist.new_group(backend="gloo")
        return OverHost(
            like, lambda host: dist.all_reduce(host, group=group), _later_over_torch(group),
            pinned=pinned, waiting=waiting, phase=phase,
        )  # fmt: skip
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    if way == "mpi":

        def add(host: Any) -> None:
            world.Allreduce(MPI.IN_PLACE, host.numpy())

        def add_later(host: Any) -> Any:
            return world.Iallreduce(MPI.IN_PLACE, host.numpy()).Wait

        return OverHost(like, add, add_later, pinned=pinned, waiting=waiting, phase=phase)
    if reason := why_not_cuda_aware(MPI, like):
        rank.bench.skip(reason)
    return InPlace(
        lambda vector: world.Allreduce(MPI.IN_PLACE, vector),
        lambda part: world.Iallreduce(MPI.IN_PLACE, part).Wait,
        phase,
        on_host=True,
    )


def _later_over_torch(group: Any) -> Any:
    def later(part: Any) -> Any:
        return dist.all_reduce(part, group=group, async_op=True).wait

    return later


def why_not_cuda_aware(mpi: Any, like: Any) -> str:
    """Why this MPI cannot be given GPU memory; empty where it says that it can."""
    if like.device.type != "cuda":
        return "CUDA-aware MPI needs GPUs; this point has none"
    name = mpi.Get_library_version().split(",")[0].strip()
    try:
        # mpi4py has loaded it; a question that the standard does not know, but Open MPI, MPICH and MVAPICH answer.
        ask = ctypes.CDLL(_library_of_mpi()).MPIX_Query_cuda_support
    except (OSError, AttributeError):
        return f"{name} does not say that it takes GPU memory (no MPIX_Query_cuda_support)"
    return "" if ask() else f"{name} was built without support of CUDA: it does not take GPU memory"


def _library_of_mpi() -> str:
    """The path of the MPI library that this process has loaded."""
    with open("/proc/self/maps") as maps:  # noqa: PTH123
        paths = {line.split(maxsplit=5)[-1].strip() for line in maps if "/libmpi" in line}
    return min(paths, key=len) if paths else "libmpi.so"
