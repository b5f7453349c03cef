"""The additions on the CPU, each called as `add(a, b, c)`. Imports numba: imported inside `measure` only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

Add = Callable[[Any, Any, Any], object]


def with_numpy(a: Any, b: Any, c: Any) -> None:
    """NumPy into an existing array: one thread, vectorised."""
    np.add(a, b, out=c)


def _loop(a: Any, b: Any, c: Any) -> None:
    for i in range(c.size):
        c[i] = a[i] + b[i]


def _parallel(a: Any, b: Any, c: Any) -> None:
    for i in numba.prange(c.size):
        c[i] = a[i] + b[i]


ADDITIONS: dict[str, Add] = {
    "numpy": with_numpy,
    "loop": numba.njit(_loop),  # one thread; LLVM may use SIMD instructions, as a C++ compiler does with -O3
    "parallel": numba.njit(parallel=True)(_parallel),
}
