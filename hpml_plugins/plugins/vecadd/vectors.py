"""What both benchmarks share: the sizes, the vectors, the truth, and the bandwidth formula."""

from __future__ import annotations

from typing import Any

from hpml_plugins import Metric

MILLION = 1_000_000
MILLIONS = (1, 5, 10, 50, 100)
FLOAT32 = 4  # B
#: No block divides these: every launch is held against NumPy for them before it is timed.
LENGTHS = (1, 255, 257, 1_000_003)

METRICS = (
    Metric("time", "s", "lower", "of one addition of all elements"),
    Metric("bandwidth", "B/s", "higher", "12 B an element (two reads, one write) over the time"),
)


def bytes_moved(elements: int) -> int:
    """Bytes that c = a + b must move in float32, B: two reads and one write, 12 an element.

    Convention of STREAM's Add: the line that a CPU may read before it writes c (write-allocate) is not counted.
    Source: McCalpin, STREAM: Sustainable Memory Bandwidth in High Performance Computers, "Counting Bytes and FLOPS".
    """
    return 3 * FLOAT32 * elements


def bandwidth(elements: int, time: Any) -> Any:
    """Bytes moved over time, B/s.  time: s, a number or Samples; the result is of the same kind."""
    return bytes_moved(elements) / time


def vectors(elements: int, seed: int) -> tuple[Any, Any, Any]:
    """(a, b, c): a and b uniform in [0, 1), c all NaN, so that an element nobody wrote is seen. float32."""
    import numpy as np

    random = np.random.default_rng(seed)
    a, b = (random.random(elements, dtype=np.float32) for _ in range(2))
    return a, b, np.full(elements, np.nan, dtype=np.float32)


def is_sum(a: Any, b: Any, c: Any) -> bool:
    """Whether c is a + b bit for bit: IEEE addition is correctly rounded, so nothing may differ from NumPy."""
    import numpy as np

    return bool(np.array_equal(c, a + b))
