"""What can be chosen of the tuned kernel, and the search for the best choice. Pure: nothing here touches a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

#: Accesses of a thread, as (float32 in one access, accesses to each vector): 4 to 32 B of each vector in flight.
SHAPES = ((1, 1), (1, 4), (2, 1), (2, 2), (4, 1), (4, 2))
#: How loads and stores treat the caches: as PTX has them by default; as data used once (evicted first); or loads that
#: go by the read-only path and leave no line in the L1. The last needs compute capability 7.0.
CACHINGS = ("default", "streaming", "bypass")
THREADS = (128, 256, 512, 1024)


@dataclass(frozen=True)
class Configuration:
    """One way to launch the tuned kernel.

    width: float32 in one access, 1, 2 or 4.  unroll: accesses of a thread to each vector before it stores.
    threads: of a block.  resident: whether the grid is only as large as the card holds at once and strides, instead of
    passing over the vectors once.  caching: one of CACHINGS.
    """

    width: int = 1
    unroll: int = 1
    threads: int = 256
    resident: bool = False
    caching: str = "default"

    @property
    def tile(self) -> int:
        """Elements that a block adds at a time."""
        return self.width * self.unroll * self.threads

    def blocks(self, elements: int, most: int) -> int:
        """Blocks of the grid over so many elements.  most: blocks that the card holds at once."""
        once = -(-elements // self.tile)
        return min(once, most) if self.resident else once

    def __str__(self) -> str:
        grid = "resident" if self.resident else "one pass"
        return f"{self.unroll} × {self.width} float32, {self.threads} threads, {grid}, {self.caching}"


def resident_blocks(
    threads: int, registers: int, *, multiprocessors: int, threads_each: int, registers_each: int, blocks_each: int
) -> int:
    """How many blocks the card holds at once, by threads, registers and blocks of a multiprocessor.

    threads: of a block, a multiple of 32.  registers: of a thread; they are given out to warps, 256 at a time.
    Source: CUDA Occupancy Calculator; CUDA C++ Programming Guide, Compute Capabilities, technical specifications.
    """
    of_a_warp = -(-registers * 32 // 256) * 256
    by_registers = registers_each // of_a_warp // (threads // 32) if registers else blocks_each
    return multiprocessors * max(1, min(threads_each // threads, by_registers, blocks_each))


def kernels(cachings: Sequence[str]) -> list[Configuration]:
    """Every kernel once, at 256 threads in one pass: what differs among them is compiled in."""
    return [Configuration(width, unroll, caching=how) for how in cachings for width, unroll in SHAPES]


def launches_of(kernel: Configuration) -> list[Configuration]:
    """The kernel launched in every other way."""
    every = [replace(kernel, threads=threads, resident=resident) for resident in (False, True) for threads in THREADS]
    return [configuration for configuration in every if configuration != kernel]


def tune(
    seconds: Callable[[Configuration, float], float],
    cachings: Sequence[str],
    tell: Callable[[str, float], None] = lambda text, share: None,
) -> dict[Configuration, float]:
    """The time of every configuration tried, s, the best first.

    seconds: the time of one addition; its second argument is how long to sample, s. Each kernel is tried at one
    launch, the best three kernels at every launch, and the best five of all again, longer: the first tries tell
    configurations apart, the last ones neighbours.
    """
    tried: dict[Configuration, float] = {}

    def attempt(configurations: Sequence[Configuration], budget: float, share: float) -> None:
        for number, configuration in enumerate(configurations):
            tell(f"trying {configuration}", share + 0.25 * number / len(configurations))
            tried[configuration] = seconds(configuration, budget)

    attempt(kernels(cachings), 0.02, 0.1)
    attempt([launch for kernel in _best(tried, 3) for launch in launches_of(kernel)], 0.02, 0.35)
    finalists = _best(tried, 5)
    attempt(finalists, 0.3, 0.6)
    # The finalists were measured better than the rest, which a lucky short sample must not overtake.
    order = sorted(tried, key=lambda each: (each not in finalists, tried[each]))
    return {configuration: tried[configuration] for configuration in order}


def _best(tried: dict[Configuration, float], count: int) -> list[Configuration]:
    return sorted(tried, key=tried.__getitem__)[:count]
