"""The steps of `harness_fidelity` and `harness_spread`, and kernels that can be slowed down by a
known share.

Imports torch and numba: for use inside `measure`. Run as a module under ncu, it launches a step a
few times.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numba import cuda

MILLION = 1_000_000
#: Iterations of each kernel's loop without a slow-down. 2, 5 and 10 % of each are integers.
MULTIPLY_ADDS = 12_000
READS = 4000
PRODUCTS = 100
THREADS = 128
#: Blocks of the memory-bound kernel for each multiprocessor; with THREADS each, they fill it.
BLOCKS = 16
#: Side of the matrices. One batch takes about 3 ms, much less than the 20 ms above which a step has
#: no boost regime.
SIDE = 2048
#: Relative error of a bfloat16 product: two roundings of 2⁻⁸ at most, and its float32 sums.
PRODUCT_TOLERANCE = 1e-2


@cuda.jit(cache=True)  # type: ignore[untyped-decorator]
def add(a: Any, b: Any, c: Any) -> None:
    """c = a + b, one element a thread."""
    i = cuda.grid(1)
    if i < c.size:
        c[i] = a[i] + b[i]


def first_launch() -> None:
    """Launch a numba kernel on one block and wait for it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numba advises against few blocks
        vectors = [cuda.device_array(256, dtype="float32") for _ in range(3)]
        add[1, 256](*vectors)
    cuda.synchronize()


def step_of(case: str) -> Callable[[], object]:
    """On random inputs: `vecadd_10m`, `matmul_4096` (bfloat16), `matmul_fp8_8192`,
    `attention_2048`, `softmax_8192`."""
    kind, _, size = case.rpartition("_")
    if kind == "vecadd":
        elements = int(size.rstrip("m")) * MILLION
        a, b, c = (torch.rand(elements, device="cuda") for _ in range(3))
        vectors = [cuda.as_cuda_array(vector) for vector in (a, b, c)]
        launch = add[-(-elements // 256), 256]
        return lambda: launch(*vectors)
    if kind.startswith("matmul"):
        return _product(int(size), kind.removeprefix("matmul").strip("_") or "bfloat16")
    if kind == "attention":
        inputs = [
            torch.randn(4, 16, int(size), 128, device="cuda", dtype=torch.bfloat16)
            for _ in range(3)
        ]
        return lambda: torch.nn.functional.scaled_dot_product_attention(*inputs)
    rows = torch.randn(int(size), 4096, device="cuda")
    return lambda: torch.softmax(rows, dim=1)


def _product(n: int, precision: str) -> Callable[[], object]:
    """The product of two n × n matrices: bfloat16, float32, tf32, or fp8 with one scale for each
    matrix."""
    if precision == "fp8":
        left, right = (torch.randn(n, n, device="cuda").to(torch.float8_e4m3fn) for _ in range(2))
        scale = torch.ones((), device="cuda")
        return lambda: torch._scaled_mm(
            left, right.t(), scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16
        )
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    left, right = (torch.randn(n, n, device="cuda", dtype=dtype) for _ in range(2))
    result = torch.empty_like(left)
    # Process-wide, because a point is one case. The same under ncu and in `measure`.
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    return lambda: torch.mm(left, right, out=result)


class SlowedStep(NamedTuple):
    """A kernel and its check. run: launches it once.  result: of the last launch; expected: the
    exact one."""

    run: Callable[[], object]
    result: Callable[[], Any]
    expected: Any
    tolerance: float

    def error(self, found: Any) -> float:
        """The largest error of such a result, over the largest exact number."""
        return float(abs(found - self.expected).max() / abs(self.expected).max())


@cuda.jit(cache=True)  # type: ignore[untyped-decorator]
def multiply_add(results: Any, factor: Any, addend: Any, iterations: int) -> None:
    """Repeat x ← factor · x + addend in a register, starting from the thread's index; one thread
    per element."""
    i = cuda.grid(1)
    x = np.float32(i)
    done = 0
    while done < iterations:  # of `range`, numba makes a slower loop
        x = factor * x + addend
        done += 1
    results[i] = x


@cuda.jit(cache=True)  # type: ignore[untyped-decorator]
def sum_columns(values: Any, sums: Any, columns: Any, rows: int) -> None:
    """The sums of the columns of `values`, a flat array in row order; one thread per column."""
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
    """`iterations` and `percent` % more. Raises ValueError if that is not an integer."""
    more, rest = divmod(iterations * percent, 100)
    if rest:
        raise ValueError(f"{percent} % of {iterations} iterations is not a whole number")
    return iterations + more


def slowed_step(kernel: str, percent: int, seed: int) -> SlowedStep:
    """The kernel "registers" (30 µs), "memory" (1 ms) or "products" (throttled) with `percent` %
    more iterations."""
    torch.manual_seed(seed)
    multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
    if kernel == "registers":
        return slowed_registers(multiprocessors, lengthened(MULTIPLY_ADDS, percent))
    if kernel == "memory":
        return _slowed_memory(multiprocessors * BLOCKS * THREADS, lengthened(READS, percent))
    return _slowed_products(lengthened(PRODUCTS, percent))


def slowed_registers(blocks: int, iterations: int) -> SlowedStep:
    """One warp for each scheduler: bound by the latency of a multiply-add. Adds 1 each time, which
    float32 can."""
    results = cuda.device_array(blocks * THREADS, dtype=np.float32)
    launch = multiply_add[blocks, THREADS]
    expected = np.arange(results.size) + iterations
    step = partial(launch, results, np.float32(1), np.float32(1), iterations)
    return SlowedStep(step, results.copy_to_host, expected, tolerance=0.0)


def _slowed_memory(columns: int, rows: int) -> SlowedStep:
    values = torch.rand(rows, columns, device="cuda")
    sums = torch.zeros(columns, device="cuda")
    launch = sum_columns[columns // THREADS, THREADS]
    arguments = (
        cuda.as_cuda_array(values.view(-1)),
        cuda.as_cuda_array(sums),
        np.uint64(columns),
        rows,
    )
    expected = values.sum(0, dtype=torch.float64)
    return SlowedStep(
        partial(launch, *arguments), lambda: sums, expected, rows * float(np.finfo(np.float32).eps)
    )


def _slowed_products(count: int) -> SlowedStep:
    left, right = (
        torch.randn(count, SIDE, SIDE, device="cuda", dtype=torch.bfloat16) for _ in range(2)
    )
    products = torch.zeros(count, SIDE, SIDE, device="cuda", dtype=torch.bfloat16)
    expected = left[-1].double() @ right[-1].double()
    step = partial(torch.bmm, left, right, out=products)
    return SlowedStep(step, lambda: products[-1], expected, PRODUCT_TOLERANCE)


def main(case: str, profiled: int) -> None:
    """Run a case with the profiler on for `profiled` steps."""
    step = step_of(case)
    for _ in range(20):
        step()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    for _ in range(profiled):
        step()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
