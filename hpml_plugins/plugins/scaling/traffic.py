"""Counting what is handed from rank to rank, and from GPU to GPU, in a step. Imports torch: imported on use only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.parallel import comm
from torch.utils._python_dispatch import TorchDispatchMode

#: DDP's collectives in a step, and what they carry: it reduces gradients and broadcasts buffers, and has no other.
_DDP = {"allreduce_": "gradients", "broadcast_": "buffers"}


class CollectiveCounter(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped to mypy here
    """Inside: bytes that torch.distributed's collectives are handed on this rank, by the collective's name.

    C++ code's collectives, DDP's reducer's among them, pass torch's dispatcher as well and are seen: it is how
    torch's own CommDebugMode counts.
    """

    def __init__(self) -> None:
        super().__init__()
        self.nbytes: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count a collective and let it go on."""
        if function.namespace == "c10d":
            name = function._schema.name.partition("::")[2]
            self.calls[name] += 1
            # The first argument is what is sent (broadcasting: or overwritten); who gathers has what comes in there.
            sent = args[1] if name.startswith("allgather") else args[0]
            self.nbytes[name] += _nbytes([sent] if isinstance(sent, torch.Tensor) else sent)
        return function(*args, **(kwargs or {}))

    @property
    def by_kind(self) -> dict[str, int]:
        """Bytes of gradients, buffers, and whatever else DDP might have sent."""
        kinds = dict.fromkeys((*_DDP.values(), "other"), 0)
        for name, nbytes in self.nbytes.items():
            kinds[_DDP.get(name, "other")] += nbytes
        return kinds


def foreign_bytes(tensors: Iterable[Any], home: Any) -> int:
    """Bytes of those tensors that are not on device `home`."""
    return _nbytes(tensor for tensor in tensors if tensor.device != torch.device(home))


@contextmanager
def counted_copies(buffers: Iterable[Any], home: Any) -> Iterator[Counter[str]]:
    """Inside: bytes that DataParallel moves between GPUs, by kind: all of it goes through torch.nn.parallel.comm.

    buffers: the module's; what else is broadcast are parameters.  home: the first GPU, where all starts and ends.
    Kinds: parameters, buffers (copied to the others), inputs (chunks for the others, and the gradients of the outputs),
    outputs (gathered), gradients (added up).
    """
    counted: Counter[str] = Counter()
    known = {buffer.data_ptr() for buffer in buffers}
    real = {name: getattr(comm, name) for name in ("broadcast_coalesced", "reduce_add_coalesced", "scatter", "gather")}

    def broadcast_coalesced(tensors: Any, devices: Any, *args: Any, **kwargs: Any) -> Any:
        for tensor in tensors:
            kind = "buffers" if tensor.data_ptr() in known else "parameters"
            counted[kind] += _nbytes([tensor]) * (len(devices) - 1)
        return real["broadcast_coalesced"](tensors, devices, *args, **kwargs)

    def reduce_add_coalesced(inputs: Any, *args: Any, **kwargs: Any) -> Any:
        counted["gradients"] += sum(foreign_bytes(of_one, home) for of_one in inputs)
        return real["reduce_add_coalesced"](inputs, *args, **kwargs)

    def scatter(*args: Any, **kwargs: Any) -> Any:
        chunks = real["scatter"](*args, **kwargs)
        counted["inputs"] += foreign_bytes(chunks, home)
        return chunks

    def gather(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        counted["outputs"] += foreign_bytes(tensors, home)
        return real["gather"](tensors, *args, **kwargs)

    counting = {
        "broadcast_coalesced": broadcast_coalesced,
        "reduce_add_coalesced": reduce_add_coalesced,
        "scatter": scatter,
        "gather": gather,
    }
    try:
        for name, function in counting.items():
            setattr(comm, name, function)
        yield counted
    finally:
        for name, function in real.items():
            setattr(comm, name, function)


def _nbytes(tensors: Iterable[Any]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
