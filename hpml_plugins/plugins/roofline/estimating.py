"""FLOP and bytes of a step of torch where no counter can be read: a formula's answer, an estimate.

Imports torch: imported inside `measure` only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode


def estimate(run: Callable[[], Any]) -> tuple[float, float]:
    """(FLOP, bytes) of one call of `run`.

    FLOP: torch's formulas of convolutions, matrix products and attention, 2 a multiply-add; nothing else is counted.
    bytes: each operator that is no view reads all its inputs and writes all its results once, as if nothing stayed in
    a cache between operators or was fused: above what a device with a cache moves.
    """
    with FlopCounterMode(display=False) as flop, Traffic() as traffic:
        run()
    return float(flop.get_total_flops()), float(traffic.nbytes)


class Traffic(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped to mypy here
    """Adds up the bytes of the inputs and results of every operator that is no view. nbytes: so far."""

    def __init__(self) -> None:
        super().__init__()
        self.nbytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        # A view moves nothing, and neither does memory that is only reserved.
        if not func.is_view and not func.overloadpacket.__name__.startswith(("empty", "new_empty")):
            self.nbytes += sum(tensor.nbytes for tensor in _tensors([args, kwargs, result]))
        return result


def _tensors(tree: Any) -> Iterable[torch.Tensor]:
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, dict):
        yield from _tensors(list(tree.values()))
    elif isinstance(tree, list | tuple):
        for branch in tree:
            yield from _tensors(branch)
