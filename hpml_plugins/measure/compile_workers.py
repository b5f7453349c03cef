"""The processes that torch.compile keeps for its next compilation."""

from __future__ import annotations

import sys
from contextlib import suppress


def end_compilers() -> None:
    """End those of this process, if it has compiled: a point that is done needs none, and leaves none behind."""
    if pool := sys.modules.get("torch._inductor.async_compile"):
        # Not a documented interface; where it has moved, they are ended with the point, and the Record says so.
        with suppress(Exception):
            pool.shutdown_compile_workers()
