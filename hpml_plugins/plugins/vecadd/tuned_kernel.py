"""The tuned kernel. Imports numba.cuda: imported inside `measure` only. Runs in numba's simulator too."""

from __future__ import annotations

from typing import Any

from numba import cuda


def make_kernel(width: int, unroll: int, add_wide: Any) -> Any:
    """The uncompiled kernel `add(a, b, c)`: c = a + b for any length and any grid of one-dimensional blocks.

    add_wide: `wide_access.make_add_wide` of the same width and unroll. A block adds one tile after another; where the
    vectors end inside a tile, element by element. They must be contiguous and begin on 16 bytes, as every CUDA
    allocation does.
    """

    def add(a: Any, b: Any, c: Any) -> None:
        step = width * cuda.blockDim.x  # neighbouring threads read neighbouring addresses
        tile = unroll * step
        start = cuda.blockIdx.x * tile
        while start < c.size:
            if start + tile <= c.size:
                add_wide(a, b, c, start + width * cuda.threadIdx.x, step)
            else:
                i = start + cuda.threadIdx.x
                while i < c.size:
                    c[i] = a[i] + b[i]
                    i += cuda.blockDim.x
            start += tile * cuda.gridDim.x

    return add
