"""Shared by the benchmarks: sizes, metrics, and the vectors with their check."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hpml_plugins import HpmlError, Metric

MILLION = 1_000_000
MILLIONS = (1, 5, 10, 50, 100)
#: Lengths that are not multiples of a block: every launch is checked against NumPy for these before
#: it is timed.
LENGTHS = (1, 255, 257, 1_000_003)
#: Launches of a kernel: blocks × threads of a block.
LAUNCHES = ("1x1", "1x256", "grid")
THREADS = 256

METRICS = (
    Metric("time", "s", "lower", "of one addition of all elements"),
    Metric("bandwidth", "B/s", "higher", "12 B an element (two reads, one write) over the time"),
)


def bytes_moved(elements: int) -> int:
    """Bytes that c = a + b must move in float32: two reads and one write, 12 per element.

    The line that a CPU may read before it writes c (write-allocate) is not counted, as in STREAM's
    Add. Source: McCalpin, STREAM: Sustainable Memory Bandwidth in High Performance Computers,
    "Counting Bytes and FLOPS".
    """
    return 3 * 4 * elements


def shape(launch: str, elements: int) -> tuple[int, int]:
    """(blocks, threads of a block) of a launch. "grid": one thread per element, 1003 elements take
    4 blocks of 256."""
    require("launch", launch, LAUNCHES)
    if launch == "grid":
        return -(-elements // THREADS), THREADS
    return 1, 1 if launch == "1x1" else THREADS


def vectors(elements: int, seed: int) -> tuple[Any, Any, Any]:
    """(a, b, c), float32: a and b uniform in [0, 1), c all NaN, so that an element that was not
    written is noticed."""
    import numpy as np

    random = np.random.default_rng(seed)
    a, b = (random.random(elements, dtype=np.float32) for _ in range(2))
    return a, b, np.full(elements, np.nan, dtype=np.float32)


def is_sum(a: Any, b: Any, c: Any) -> bool:
    """Whether c is a + b bit for bit: IEEE addition is correctly rounded, so it must equal
    NumPy's."""
    import numpy as np

    return bool(np.array_equal(c, a + b))


def require(parameter: str, value: str, known: Sequence[str]) -> None:
    """Raise HpmlError for an invalid value of a parameter."""
    if value not in known:
        raise HpmlError(f"no {parameter} {value!r}; use one of {', '.join(known)}")
