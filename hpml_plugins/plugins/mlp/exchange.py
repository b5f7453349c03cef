"""Ways to reduce a vector over the ranks, in place: MPI through pageable or pinned host memory,
CUDA-aware MPI, NCCL, gloo. Imports torch."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

from hpml_plugins import Rank
from hpml_plugins.plugins.mlp.formulas import REDUCE, TO_DEVICE, TO_HOST, Job
from hpml_plugins.plugins.mlp.network import Phases


class InPlace:
    """On the device: by NCCL, or by a CUDA-aware MPI.  handed: bytes passed to `reduce` so far.

    reduce_now: reduces a tensor.  reduce_later: starts that, and returns a function that waits for
    it.  on_host: whether the host reduces.
    """

    def __init__(
        self, reduce_now: Any, reduce_later: Any, phases: Phases, *, on_host: bool
    ) -> None:
        self._now, self._later, self._phases, self._on_host = (
            reduce_now,
            reduce_later,
            phases,
            on_host,
        )
        self.handed = 0

    def reduce(self, vector: Any) -> None:
        """The sum over ranks, in place; in order on the current stream on return."""
        self.handed += vector.nbytes
        if self._on_host:
            torch.cuda.current_stream().synchronize()  # MPI ignores streams
        with self._phases(REDUCE, on_host=self._on_host):
            self._now(vector)

    def send(self, vector: Any, begin: int, end: int) -> Iterator[None]:
        """Reduce a part of the vector in three steps, one for each `next`, between which other work
        can be launched.

        First start to copy the part, once the current stream has computed it; then start to reduce
        it; then wait for the sum and make the current stream wait until it is in the vector.
        """
        if self._on_host:
            torch.cuda.current_stream().synchronize()
        wait = self._later(vector[begin:end])
        yield
        yield
        wait()


class OverHost(InPlace):
    """Copied to the host, reduced there, copied back.

    like: a vector of the size of later ones.  pinned: whether the host's memory is page-locked,
    which makes copies asynchronous.
    """

    def __init__(
        self, reduce_now: Any, reduce_later: Any, phases: Phases, like: Any, *, pinned: bool
    ) -> None:
        super().__init__(reduce_now, reduce_later, phases, on_host=True)
        self._pinned = pinned and like.is_cuda
        self._host = torch.empty(like.shape, dtype=like.dtype, pin_memory=self._pinned)
        if self._pinned:
            self._down, self._up = torch.cuda.Stream(), torch.cuda.Stream()

    def reduce(self, vector: Any) -> None:
        """The sum over ranks, in place."""
        self.handed += vector.nbytes
        with self._phases(TO_HOST):
            self._host.copy_(vector, non_blocking=self._pinned)
        if self._pinned:
            torch.cuda.current_stream().synchronize()
        with self._phases(REDUCE, on_host=True):
            self._now(self._host)
        with self._phases(TO_DEVICE):
            vector.copy_(self._host, non_blocking=self._pinned)

    def send(self, vector: Any, begin: int, end: int) -> Iterator[None]:
        """See `InPlace.send`. With pageable memory the first step copies and starts to reduce."""
        part, host = vector[begin:end], self._host[begin:end]
        if not self._pinned:
            host.copy_(part)
            wait = self._later(host)
            yield
            yield
            wait()
            part.copy_(host)
            return
        self._down.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._down):
            host.copy_(part, non_blocking=True)
            arrived = self._down.record_event()
        yield
        arrived.synchronize()
        wait = self._later(host)
        yield
        wait()
        with torch.cuda.stream(self._up):
            part.copy_(host, non_blocking=True)
        torch.cuda.current_stream().wait_stream(self._up)


def make_exchange(rank: Rank, job: Job, like: Any, phases: Phases) -> InPlace:
    """The exchange by the job's method for vectors like this one. Skips the point if the library
    does not support it.

    MPI methods need ranks started by mpirun. All ranks must create theirs in the same order.
    """
    if job.way in ("nccl", "gloo"):
        if job.way == "nccl" and rank.backend != "nccl":
            rank.bench.skip("NCCL adds up on GPUs; this point has none")
        group = dist.new_group(backend="gloo") if job.way == "gloo" else None

        def reduce_now(vector: Any) -> None:
            dist.all_reduce(vector, group=group)

        def reduce_later(vector: Any) -> Any:
            return dist.all_reduce(vector, group=group, async_op=True).wait
    else:
        from mpi4py import MPI

        if job.way == "mpi_pinned" and not like.is_cuda:
            rank.bench.skip("pinned memory is for copies to and from GPUs; this point has none")
        if job.way == "cuda_mpi" and (reason := why_not_cuda_aware(MPI, like)):
            rank.bench.skip(reason)

        def buffer(vector: Any) -> Any:
            return vector if vector.is_cuda else vector.numpy()

        def reduce_now(vector: Any) -> None:
            MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, buffer(vector))

        def reduce_later(vector: Any) -> Any:
            return MPI.COMM_WORLD.Iallreduce(MPI.IN_PLACE, buffer(vector)).Wait

    if not job.through_host:
        return InPlace(reduce_now, reduce_later, phases, on_host=job.way == "cuda_mpi")

    def reduce_at_once(vector: Any) -> Any:
        reduce_now(vector)
        return lambda: None

    later = reduce_at_once if job.waiting else reduce_later
    pinned = job.pinned or job.way == "mpi_pinned"
    return OverHost(reduce_now, later, phases, like, pinned=pinned)


def why_not_cuda_aware(mpi: Any, like: Any) -> str:
    """Why this MPI does not accept GPU memory; empty if it reports that it does."""
    if like.device.type != "cuda":
        return "CUDA-aware MPI needs GPUs; this point has none"
    name = mpi.Get_library_version().split(",")[0].strip()
    try:
        # Not part of the standard, but Open MPI, MPICH and MVAPICH have it; mpi4py's module links
        # to the library.
        query = ctypes.CDLL(mpi.__file__).MPIX_Query_cuda_support
    except (OSError, AttributeError):
        return f"{name} does not say that it takes GPU memory (no MPIX_Query_cuda_support)"
    return (
        "" if query() else f"{name} was built without support of CUDA: it does not take GPU memory"
    )
