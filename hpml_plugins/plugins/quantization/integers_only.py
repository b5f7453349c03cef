"""Proof that no tensor is a floating-point one. Imports torch: imported on use only."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Tensors(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped to mypy here
    """While it is entered, every tensor that an operation of torch reads or makes is looked at.

    floating: operation → dtypes of floating-point or complex tensors.  operations: how many were seen.
    """

    def __init__(self) -> None:
        super().__init__()
        self.floating: dict[str, set[str]] = {}
        self.operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called by torch for each operation."""
        results = func(*args, **(kwargs or {}))
        self.operations += 1
        for each in tree_leaves((args, kwargs, results)):
            if isinstance(each, torch.Tensor) and (each.is_floating_point() or each.is_complex()):
                self.floating.setdefault(str(func), set()).add(str(each.dtype))
        return results
