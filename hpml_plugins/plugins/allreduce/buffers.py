"""A collective's buffers on one rank, and the call on them. Imports torch: imported on the ranks
only.

Every element is an integer below 1021 that depends on its index and its rank. Sums over up to 16
thousand ranks are below 2^24 and therefore exact in float32: the result must equal the float64
reference, in any order of addition.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from hpml_plugins import HpmlError, Rank

FLOAT32 = 4  # B
#: Elements that are filled or compared at a time: the reference of 8 GiB would not fit in addition
#: to two such buffers.
CHUNK = 1 << 22
#: A prime, so that the pattern does not repeat after a power of two of elements, and misplaced
#: pieces are detected.
PERIOD = 1021
NCCL_FLOAT32, NCCL_SUM = 7, 0  # ncclFloat32, ncclSum


def value(rank: Any, place: Any) -> Any:
    """The integer that a rank sends at an index.  rank, place: numbers or integer tensors."""
    return (place * (2 * rank + 1) + rank) % PERIOD


class Buffers:
    """The buffers that one rank sends and receives.

    nbytes: of the larger buffer, as in nccl-tests.  in_place: whether NCCL overwrites the input
    with the result: for an all-reduce or a broadcast.  send, receive: float32 tensors on the rank's
    device; the same one in place.
    """

    def __init__(self, rank: Rank, collective: str, nbytes: int, *, in_place: bool) -> None:
        self.rank = rank
        self.collective = collective
        self.in_place = in_place
        if nbytes % (FLOAT32 * rank.count):
            raise HpmlError(
                f"{nbytes} B of float32 cannot be shared out evenly over {rank.count} ranks"
            )
        whole = nbytes // FLOAT32
        self.piece = whole // rank.count
        large = other = torch.empty(whole, device=rank.device)
        if not in_place:
            in_pieces = collective in ("all_gather", "reduce_scatter")
            other = torch.empty(self.piece if in_pieces else whole, device=rank.device)
        self.send, self.receive = (other, large) if collective == "all_gather" else (large, other)

    def fill(self) -> None:
        """Write the input, and NaN to all elements that only the collective may write."""
        self.receive.fill_(float("nan"))
        if self.collective != "broadcast" or self.rank.index == 0:
            for chunk, places in _chunks(self.send):
                chunk.copy_(value(self.rank.index, places))

    def wrong(self) -> int:
        """How many received elements differ from the float64 reference."""
        pairs = (
            (chunk.double(), self._expected(places).double())
            for chunk, places in _chunks(self.receive)
        )
        return sum(int((found != expected).sum()) for found, expected in pairs)

    def _expected(self, places: Any) -> Any:
        if self.collective == "broadcast":
            return value(0, places)
        if self.collective == "all_gather":
            return value(places // self.piece, places % self.piece)
        if self.collective == "reduce_scatter":
            places = places + self.rank.index * self.piece
        return sum(value(rank, places) for rank in range(self.rank.count))


def _chunks(buffer: Any) -> Iterator[tuple[Any, Any]]:
    """The buffer in pieces of CHUNK elements, each with the indices of its elements."""
    for start in range(0, buffer.numel(), CHUNK):
        chunk = buffer[start : start + CHUNK]
        yield chunk, torch.arange(start, start + chunk.numel(), device=buffer.device)


def step_of(rank: Rank, buffers: Buffers) -> Callable[[], object]:
    """One collective on these buffers, by torch.distributed if possible. All ranks must call it."""
    send, receive = buffers.send, buffers.receive
    if buffers.collective == "all_gather":
        return lambda: dist.all_gather_into_tensor(receive, send)
    if buffers.collective == "reduce_scatter":
        return lambda: dist.reduce_scatter_tensor(receive, send)
    if buffers.collective == "broadcast":
        return lambda: dist.broadcast(send, 0)
    return (
        (lambda: dist.all_reduce(send))
        if buffers.in_place
        else _all_reduce_out_of_place(rank, send, receive)
    )


class _UniqueId(ctypes.Structure):
    _fields_ = (("internal", ctypes.c_char * 128),)


def _all_reduce_out_of_place(rank: Rank, send: Any, receive: Any) -> Callable[[], object]:
    """ncclAllReduce over its own communicator, on torch's current stream: torch.distributed only
    reduces in place.

    torch.cuda.nccl offers it too, but torch 2.11's does not work on Python 3.12 ("PY_SSIZE_T_CLEAN
    macro must be defined").  Source: NCCL API, nccl.h.
    """
    # torch has loaded it: the name gives the same library
    nccl = ctypes.CDLL("libnccl.so.2")
    nccl.ncclGetErrorString.restype = ctypes.c_char_p

    def call(name: str, *args: Any) -> None:
        if status := getattr(nccl, name)(*args):
            raise HpmlError(f"{name}: {nccl.ncclGetErrorString(status).decode()}")

    unique = _UniqueId()
    if rank.index == 0:
        call("ncclGetUniqueId", ctypes.byref(unique))
    unique = _UniqueId.from_buffer_copy(rank.share(bytes(unique)))
    communicator = ctypes.c_void_p()
    call("ncclCommInitRank", ctypes.byref(communicator), rank.count, unique, rank.index)
    pointers = (ctypes.c_void_p(send.data_ptr()), ctypes.c_void_p(receive.data_ptr()))
    how = (ctypes.c_size_t(send.numel()), NCCL_FLOAT32, NCCL_SUM, communicator)

    def step() -> None:
        call(
            "ncclAllReduce",
            *pointers,
            *how,
            ctypes.c_void_p(torch.cuda.current_stream().cuda_stream),
        )

    return step
