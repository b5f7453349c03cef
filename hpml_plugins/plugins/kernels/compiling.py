"""torch.compile as the benchmarks use it. Imports torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch._inductor.config


def compile_here(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function by torch.compile, specialised to the shapes of its calls, compiled in this
    process.

    By default a pool of processes is started, which takes several seconds in each process that
    measures a point.
    """
    torch._inductor.config.compile_threads = 1
    compiled: Callable[..., Any] = torch.compile(function, dynamic=False)
    return compiled
