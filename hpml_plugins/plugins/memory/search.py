"""Finding the largest size that fits: pure, so that it can be tested without a GPU that runs out of memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Found:
    """The largest size that was seen to fit, 0 for none, and the smallest seen not to, None where none was met.

    tries: each size tried and whether it fitted, in order.
    """

    largest: int
    too_large: int | None
    tries: tuple[tuple[int, bool], ...]


def largest_that_fits(
    fits: Callable[[int], bool], *, start: int = 1, most: int = 1 << 20, tolerance: float = 0.0
) -> Found:
    """Search for the largest n in 1 … most with fits(n), in steps that double from `start`, then by bisection.

    start: where to begin; a good estimate saves tries, a bad one costs a few.  tolerance: stop once the smallest n that
    did not fit is no further away than this share of the largest that did; 0 searches to the last one. Where what fits
    does not depend on n alone (a fragmented memory), the answer is still an n that fitted, with one beyond it that did
    not; no n is tried twice. Raises ValueError for a start outside 1 … most.
    """
    if not 1 <= start <= most:
        raise ValueError(f"start is {start}, not within 1 … {most}")
    tries: list[tuple[int, bool]] = []

    def fitted(size: int) -> bool:
        tries.append((size, bool(fits(size))))
        return tries[-1][1]

    low, high = 0, None
    step = max(1, start // 32)
    if fitted(start):
        low = start
        while high is None and low < most:
            size = min(most, low + step)
            low, high = (size, None) if fitted(size) else (low, size)
            step *= 2
    else:
        high = start
        while low == 0 and high > 1:
            size = max(1, high - step)
            low, high = (size, high) if fitted(size) else (0, size)
            step *= 2
    while high is not None and high - low > max(1, int(tolerance * low)) and high > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fitted(middle) else (low, middle)
    return Found(low, high, tuple(tries))
