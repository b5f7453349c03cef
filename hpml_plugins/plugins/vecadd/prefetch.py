"""Asking the driver to move unified memory before it is touched. Imports numba.cuda: imported inside `measure` only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from numba import cuda

#: Where to: to the GPU in use, or to the host.
GPU, CPU = 1, 0


def why_not() -> str:
    """Why pages cannot be prefetched here; empty where they can."""
    try:
        _driver()
    except ImportError as error:
        return f"unified memory is prefetched through cuda-bindings, which does not import: {error}"
    device = cuda.get_current_device()
    if not device.CONCURRENT_MANAGED_ACCESS:
        return "this card and driver move unified memory whole at each launch (no concurrent managed access)"
    return ""


def prefetch_to(vectors: Iterable[Any], place: int) -> None:
    """Enqueue the move of managed arrays on the default stream; it does not wait.

    place: GPU or CPU. Raises RuntimeError with the driver's answer when it refuses.
    """
    driver, enqueue = _driver()
    kind = driver.CUmemLocationType
    location = driver.CUmemLocation()
    location.type = kind.CU_MEM_LOCATION_TYPE_DEVICE if place == GPU else kind.CU_MEM_LOCATION_TYPE_HOST
    location.id = cuda.get_current_device().id if place == GPU else 0
    for vector in vectors:
        (answer,) = enqueue(vector.ctypes.data, vector.nbytes, location, 0, driver.CUstream(0))
        if answer != driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"cuMemPrefetchAsync: {answer!r}")


def _driver() -> tuple[Any, Any]:
    """The bindings and the call that takes a location: CUDA 13 has dropped the older one and the suffix."""
    from cuda.bindings import driver

    return driver, getattr(driver, "cuMemPrefetchAsync_v2", None) or driver.cuMemPrefetchAsync
