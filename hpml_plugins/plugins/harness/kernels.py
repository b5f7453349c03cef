"""The steps that fidelity is held on. Run as a module under ncu, it launches one of them a few times.

Imports torch and numba: imported inside `measure` only.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from numba import cuda

MILLION = 1_000_000
#: How often a step runs between the profiler's start and stop.
PROFILED = 10


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
    """The step of a case, such as `vecadd_10m`, `matmul_4096` (bfloat16), `matmul_fp8_8192`, `softmax_8192`.

    Random inputs: zeros run faster than data.
    """
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
        inputs = [torch.randn(4, 16, int(size), 128, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
        return lambda: torch.nn.functional.scaled_dot_product_attention(*inputs)
    rows = torch.randn(int(size), 4096, device="cuda")
    return lambda: torch.softmax(rows, dim=1)


def _product(n: int, precision: str) -> Callable[[], object]:
    """The product of two n × n matrices: bfloat16, float32, tf32, or fp8 with one scale for each matrix."""
    if precision == "fp8":
        left, right = (torch.randn(n, n, device="cuda").to(torch.float8_e4m3fn) for _ in range(2))
        scale = torch.ones((), device="cuda")
        return lambda: torch._scaled_mm(left, right.t(), scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16)
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    left, right = (torch.randn(n, n, device="cuda", dtype=dtype) for _ in range(2))
    result = torch.empty_like(left)
    # Of the process: a point is one case. Under ncu and in `measure` alike.
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    return lambda: torch.mm(left, right, out=result)


def main(case: str) -> None:
    """Run a case with the profiler on for PROFILED steps."""
    step = step_of(case)
    for _ in range(20):
        step()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    for _ in range(PROFILED):
        step()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


if __name__ == "__main__":
    main(sys.argv[1])
