"""Saying that a GPU's memory was not enough, with both figures, whichever library found out."""

from __future__ import annotations

import re
import sys

_SCALE = {"bytes": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}


def out_of_gpu_memory(error: BaseException) -> str:
    """`out of GPU memory: asked 200.0 GiB, free 138.9 GiB` where that is what the error means, else empty.

    torch names what was asked for; numba and CuPy only pass on CUDA's error.
    """
    text = str(error)
    is_torch = type(error).__name__ == "OutOfMemoryError"
    if not (is_torch or "CUDA_ERROR_OUT_OF_MEMORY" in text or "cudaErrorMemoryAllocation" in text):
        return ""
    asked = re.search(r"Tried to allocate ([\d.]+) (\w+)", text)
    spelled = f"asked {float(asked[1]) * _SCALE.get(asked[2], 1.0) / 2**30:.1f} GiB, " if asked else ""
    free = _free()
    return (
        f"out of GPU memory: {spelled}free {free / 2**30:.1f} GiB" if free is not None else f"out of GPU memory: {text}"
    )


def _free() -> float | None:
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    try:
        # What torch keeps cached for itself was no help to the allocation that failed, but it is free for others.
        torch.cuda.empty_cache()
        return float(torch.cuda.mem_get_info()[0])
    except Exception:
        return None
