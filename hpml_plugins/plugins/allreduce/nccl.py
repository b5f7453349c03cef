"""ncclAllReduce with a buffer to read and another to write, from the NCCL that torch has loaded.

torch.cuda.nccl offers it, but torch 2.11's does not work on Python 3.12 ("PY_SSIZE_T_CLEAN macro must be defined").
Source: NCCL API, nccl.h. Imports torch: imported on the ranks only.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import torch

from hpml_plugins import HpmlError

FLOAT32, SUM = 7, 0  # ncclFloat32, ncclSum
UNIQUE_ID_BYTES = 128


class _UniqueId(ctypes.Structure):
    _fields_ = (("internal", ctypes.c_char * UNIQUE_ID_BYTES),)


def unique_id() -> bytes:
    """What all ranks of a communicator must share; made by one of them."""
    made = _UniqueId()
    _call("ncclGetUniqueId", ctypes.byref(made))
    return bytes(made)


class Communicator:
    """A communicator of `count` ranks, this process being rank `index`; all of them make theirs at once."""

    def __init__(self, count: int, unique: bytes, index: int) -> None:
        self._handle = ctypes.c_void_p()
        _call("ncclCommInitRank", ctypes.byref(self._handle), count, _UniqueId.from_buffer_copy(unique), index)

    def all_reduce(self, send: Any, receive: Any) -> None:
        """Enqueue the sum over ranks of float32 `send` into `receive` on torch's current stream."""
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        pointers = (ctypes.c_void_p(send.data_ptr()), ctypes.c_void_p(receive.data_ptr()))
        _call("ncclAllReduce", *pointers, ctypes.c_size_t(send.numel()), FLOAT32, SUM, self._handle, stream)


def _call(name: str, *args: Any) -> None:
    status = getattr(_library(), name)(*args)
    if status:
        told = _library().ncclGetErrorString
        told.restype = ctypes.c_char_p
        raise HpmlError(f"{name}: {told(status).decode()}")


@functools.cache
def _library() -> ctypes.CDLL:
    # torch has loaded it by now: the name gives the same library again, wherever it lies.
    try:
        return ctypes.CDLL("libnccl.so.2")
    except OSError as error:
        raise HpmlError(f"NCCL's library is not to be had beside torch: {error}") from None
