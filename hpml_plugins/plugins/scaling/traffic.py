"""Counting what is handed from rank to rank, and from GPU to GPU, in a step. Imports torch: imported on use only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.nn.parallel import comm
from torch.utils._python_dispatch import TorchDispatchMode

#: DDP's collectives in a step, and what they carry: it reduces gradients and broadcasts buffers, and has no other.
_DDP = {"allreduce_": "gradients", "broadcast_": "buffers"}


class CollectiveCounter(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped to mypy here
    """Inside: bytes that torch.distributed's collectives are handed on this rank, by kind; "other" is none of DDP's.

    C++ code's collectives, DDP's reducer's among them, pass torch's dispatcher as well and are seen: it is how
    torch's own CommDebugMode counts.
    """

    def __init__(self) -> None:
        super().__init__()
        self.nbytes: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count a collective and let it go on."""
        if function.namespace == "c10d":
            name = function._schema.name.partition("::")[2]
            # The first argument is what is sent (broadcasting: or overwritten); who gathers has what comes in there.
            sent = args[1] if name.startswith("allgather") else args[0]
            tensors = [sent] if isinstance(sent, torch.Tensor) else sent
            self.nbytes[_DDP.get(name, "other")] += sum(tensor.nbytes for tensor in tensors)
        return function(*args, **(kwargs or {}))


@contextmanager
def counted_copies(buffers: Iterable[Any], home: Any) -> Iterator[Counter[str]]:
    """Inside: bytes that DataParallel moves between GPUs, by kind: all of it goes through torch.nn.parallel.comm.

    buffers: the module's; what else is broadcast are parameters.  home: the first GPU, where all starts and ends.
    Kinds: parameters, buffers (copied to the others), inputs (chunks for the others, and the gradients of the outputs),
    outputs (gathered), gradients (added up).
    """
    counted: Counter[str] = Counter()
    known = {buffer.data_ptr() for buffer in buffers}

    def counting(name: str) -> Callable[..., Any]:
        real = getattr(comm, name)

        def count_and_call(*args: Any, **kwargs: Any) -> Any:
            result = real(*args, **kwargs)
            if name == "broadcast_coalesced":
                for tensor in args[0]:
                    kind = "buffers" if tensor.data_ptr() in known else "parameters"
                    counted[kind] += tensor.nbytes * (len(args[1]) - 1)
            elif name == "reduce_add_coalesced":
                counted["gradients"] += sum(foreign_bytes(of_one, home) for of_one in args[0])
            elif name == "scatter":
                counted["inputs"] += foreign_bytes(result, home)
            else:
                counted["outputs"] += foreign_bytes(args[0], home)
            return result

        return count_and_call

    names = ("broadcast_coalesced", "reduce_add_coalesced", "scatter", "gather")
    with patch.dict(vars(comm), {name: counting(name) for name in names}):
        yield counted


def foreign_bytes(tensors: Iterable[Any], home: Any) -> int:
    """Bytes of those tensors that are not on device `home`."""
    return sum(tensor.nbytes for tensor in tensors if tensor.device != torch.device(home))
