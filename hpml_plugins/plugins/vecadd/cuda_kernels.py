"""The addition on the GPU. Imports numba.cuda: imported inside `measure` only. Runs in numba's simulator too."""

from __future__ import annotations

from typing import Any

from numba import cuda


@cuda.jit(cache=True)  # type: ignore[untyped-decorator]
def add(a: Any, b: Any, c: Any) -> None:
    """c = a + b for any length and any launch: each thread strides over the vector by the size of the grid.

    Source: Harris, "An Even Easier Introduction to CUDA", NVIDIA, 2017.
    """
    for i in range(cuda.grid(1), c.size, cuda.gridsize(1)):
        c[i] = a[i] + b[i]
