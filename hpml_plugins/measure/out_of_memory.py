"""Saying that a GPU's memory was not enough, with both figures, whichever library found out."""

from __future__ import annotations

import re
import sys
from types import TracebackType

_SCALE = {"bytes": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}


def out_of_gpu_memory(error: BaseException) -> str:
    """`out of GPU memory: asked 200.0 GiB, free 138.9 GiB` where that is what the error means, else empty.

    torch names what was asked for; of numba's errors the frames tell.
    """
    text = str(error)
    is_torch = type(error).__name__ == "OutOfMemoryError"
    if not (is_torch or "CUDA_ERROR_OUT_OF_MEMORY" in text or "cudaErrorMemoryAllocation" in text):
        return ""
    sizes = {"asked": _asked(text) or _asked_in(error.__traceback__), "free": _free()}
    figures = [f"{name} {size / 2**30:.1f} GiB" for name, size in sizes.items() if size]
    return f"out of GPU memory: {', '.join(figures) or text}"


def _asked(text: str) -> float:
    found = re.search(r"Tried to allocate ([\d.]+) (\w+)", text)
    return float(found[1]) * _SCALE.get(found[2], 1.0) if found else 0.0


def _asked_in(trace: TracebackType | None) -> float:
    """What numba's allocator was called with: CUDA's error does not say, the frame that got it does."""
    asked = 0.0
    while trace is not None:
        if trace.tb_frame.f_code.co_name in ("memalloc", "allocate_memory"):
            sizes = [trace.tb_frame.f_locals.get(name) for name in ("nbytes", "bytesize", "size")]
            asked = next((float(size) for size in sizes if isinstance(size, int)), asked)
        trace = trace.tb_next
    return asked


def _free() -> float:
    try:
        if (torch := sys.modules.get("torch")) and torch.cuda.is_initialized():
            # What torch keeps cached for itself was no help to the allocation that failed; it is free for others.
            torch.cuda.empty_cache()
            return float(torch.cuda.mem_get_info()[0])
        if cuda := sys.modules.get("numba.cuda"):
            return float(cuda.current_context().get_memory_info()[0])
    except Exception:
        return 0.0
    return 0.0
