"""Kernels whose loop can be made longer by a known share.

Imports torch and numba: imported inside `measure` only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numba import cuda

#: Iterations of each kernel's loop without a slow-down. 2, 5 and 10 % of each are whole numbers.
MULTIPLY_ADDS = 12_000
READS = 4000
PRODUCTS = 100
THREADS = 128
#: Blocks of the memory-bound kernel for each multiprocessor; with THREADS each, they fill it.
BLOCKS = 16
#: Side of the matrices. One batch takes about 3 ms, much less than the 20 ms above which a step has no boost.
SIDE = 2048
#: Relative error of a bfloat16 product: two roundings of 2⁻⁸ at most, and its float32 sums.
PRODUCT_TOLERANCE = 1e-2


class SlowedStep(NamedTuple):
    """A kernel and its check.

    run: launches the kernel once.  result: the result of the last launch.  error: the relative error of such a result.
    tolerance: the largest error of a correct result.
    """

    run: Callable[[], object]
    result: Callable[[], Any]
    error: Callable[[Any], float]
    tolerance: float = 0.0


@cuda.jit(cache=True)  # type: ignore[untyped-decorator]
def multiply_add(results: Any, factor: Any, addend: Any, iterations: int) -> None:
    """Repeat x ← factor · x + addend in a register, starting from the thread's index; one thread per element."""
    i = cuda.grid(1)
    x = np.float32(i)
    done = 0
    while done < iterations:  # of `range`, numba makes a slower loop
        x = factor * x + addend
        done += 1
    results[i] = x


@cuda.jit(cache=True)  # type: ignore[untyped-decorator]
def sum_columns(values: Any, sums: Any, columns: Any, rows: int) -> None:
    """The sums of the columns of `values`, a flat array of rows of so many columns; one thread per column."""
    i = cuda.grid(1)
    place = np.uint64(i)  # an unsigned index is not tested for being negative
    total = np.float32(0)
    row = 0
    while row < rows:
        total += values[place]
        place += columns
        row += 1
    sums[i] = total


def lengthened(iterations: int, percent: int) -> int:
    """So many iterations and `percent` % more. Raises ValueError where that is not a whole number."""
    more, rest = divmod(iterations * percent, 100)
    if rest:
        raise ValueError(f"{percent} % of {iterations} iterations is not a whole number")
    return iterations + more


def slowed_step(kernel: str, percent: int, seed: int) -> SlowedStep:
    """A kernel with `percent` % more iterations.

    kernel: "registers" (about 30 µs), "memory" (about 1 ms) or "products" (a batch of bfloat16 products, which an H200
    throttles).
    """
    torch.manual_seed(seed)
    multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
    if kernel == "registers":
        return _registers(multiprocessors, lengthened(MULTIPLY_ADDS, percent))
    if kernel == "memory":
        return _memory(multiprocessors * BLOCKS, lengthened(READS, percent))
    return _products(lengthened(PRODUCTS, percent))


def _registers(blocks: int, iterations: int) -> SlowedStep:
    """One warp for each scheduler: bound by the latency of a multiply-add. Adds 1 each time, which float32 can."""
    results = cuda.device_array(blocks * THREADS, dtype=np.float32)
    arguments = (results, np.float32(1), np.float32(1), iterations)
    launch = multiply_add[blocks, THREADS]
    expected = np.arange(results.size) + iterations
    return SlowedStep(
        lambda: launch(*arguments), results.copy_to_host, lambda found: float(np.abs(found / expected - 1).max())
    )


def _memory(blocks: int, reads: int) -> SlowedStep:
    columns = blocks * THREADS
    values = torch.rand(reads, columns, device="cuda")
    sums = torch.zeros(columns, device="cuda")
    arguments = (cuda.as_cuda_array(values.view(-1)), cuda.as_cuda_array(sums), np.uint64(columns), reads)
    launch = sum_columns[blocks, THREADS]
    expected = values.sum(0, dtype=torch.float64)
    return SlowedStep(
        lambda: launch(*arguments),
        lambda: sums,
        lambda found: float((found.double() / expected - 1).abs().max()),
        reads * float(np.finfo(np.float32).eps),
    )


def _products(count: int) -> SlowedStep:
    left, right = (torch.randn(count, SIDE, SIDE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    products = torch.zeros(count, SIDE, SIDE, device="cuda", dtype=torch.bfloat16)

    def error(last: Any) -> float:
        expected = left[-1].double() @ right[-1].double()
        return float((last.double() - expected).norm() / expected.norm())

    return SlowedStep(lambda: torch.bmm(left, right, out=products), lambda: products[-1], error, PRODUCT_TOLERANCE)
