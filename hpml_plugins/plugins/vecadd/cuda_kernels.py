"""The seed's kernels on the GPU. Imports numba.cuda: imported inside `measure` only. Runs in numba's simulator too."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from numba import cuda

from hpml_plugins.plugins.vecadd.launches import shape


@cuda.jit(cache=True)  # type: ignore[untyped-decorator]
def add_striding(a: Any, b: Any, c: Any) -> None:
    """c = a + b for any length and any launch: each thread strides over the vector by the size of the grid.

    Source: Harris, "An Even Easier Introduction to CUDA", NVIDIA, 2017.
    """
    for i in range(cuda.grid(1), c.size, cuda.gridsize(1)):
        c[i] = a[i] + b[i]


@cuda.jit(cache=True)  # type: ignore[untyped-decorator]
def add_one_each(a: Any, b: Any, c: Any) -> None:
    """c = a + b, one element a thread: the grid must have a thread for each element, and may have more."""
    i = cuda.grid(1)
    if i < c.size:
        c[i] = a[i] + b[i]


def launcher(launch: str, elements: int) -> Callable[..., None]:
    """The kernel of a launch, to be called as `add(a, b, c)` with vectors of so many elements; it does not wait.

    Raises HpmlError for a launch that `launches.shape` does not know.
    """
    blocks, threads = shape(launch, elements)
    kernel = add_one_each if launch == "grid" else add_striding
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numba advises against few blocks; here they are the point
        configured: Callable[..., None] = kernel[blocks, threads]
    return configured
