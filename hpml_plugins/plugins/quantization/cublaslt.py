"""int8 and fp8 products by cuBLASLt itself. Imports torch and nvmath: imported on use only.

`torch._int_mm` gives cuBLASLt no workspace and takes the first algorithm that it names, which costs a third of the rate
on an H200. Here it has a workspace, is asked for several algorithms, and the fastest counts; and it can round sums to
int8 as it writes them, which is what a quantized layer does.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import torch

#: B that an algorithm may work in.
WORKSPACE = 64 * 2**20
#: How many algorithms are asked for, and how often each is run when they are compared.
ALGORITHMS, TRIALS = 16, 10


#: dtypes of operands and result → nvmath's names of: operand, result, what is added up in, scale.
KINDS = {
    (torch.int8, torch.int32): ("CUDA_R_8I", "CUDA_R_32I", "COMPUTE_32I", "CUDA_R_32I"),
    (torch.int8, torch.int8): ("CUDA_R_8I", "CUDA_R_8I", "COMPUTE_32I", "CUDA_R_32F"),
    (torch.float8_e4m3fn, torch.bfloat16): ("CUDA_R_8F_E4M3", "CUDA_R_16BF", "COMPUTE_32F", "CUDA_R_32F"),
}


class EightBitProduct:
    """first @ second on the current stream: call it; it returns `out`, which each call writes anew.

    first: (m, k), int8 or float8_e4m3fn, contiguous.  second: (k, n), the same dtype, by columns: its transpose is
    contiguous.  out: (m, n), contiguous. Of int8, int32 takes the sums, and int8 takes them times `scale` (in float32),
    rounded to nearest and held within -128 … 127. Of fp8, bfloat16 takes them times the two numbers of `scales`, one an
    operand, float32 on the GPU, added up fast (with fewer bits than float32 has).  The first call tries the algorithms.
    Raises ValueError for other operands, and RuntimeError where nvmath-python is missing or cuBLASLt refuses.
    """

    def __init__(
        self, first: Any, second: Any, out: Any, scale: float = 1.0, scales: tuple[Any, Any] | None = None
    ) -> None:
        self._operands = (first, second.t(), out)
        if not all(each.is_contiguous() for each in self._operands):
            raise ValueError("first and out must lie by rows, second by columns")
        if (first.dtype, out.dtype) not in KINDS or second.dtype != first.dtype:
            raise ValueError(f"no product of {first.dtype} and {second.dtype} to {out.dtype}")
        self._kinds = KINDS[first.dtype, out.dtype]
        self._scale = np.array([scale], np.int32 if out.dtype == torch.int32 else np.float32)
        self._zero = np.zeros_like(self._scale)
        self._scales = scales
        self._call: Any = None

    def __call__(self) -> Any:
        """Compute it; returns `out`."""
        if self._call is None:
            try:
                from nvmath.bindings import cublasLt
            except ImportError as error:
                raise RuntimeError("needs the package nvmath-python") from error
            try:
                self._call = self._plan(cublasLt)
            except cublasLt.cuBLASLtError as error:
                raise RuntimeError(f"cuBLASLt refuses: {error}") from error
        self._call()
        return self._operands[2]

    def _plan(self, lt: Any) -> Any:
        from nvmath import CudaDataType
        from nvmath.bindings import cublas

        first, second, out = self._operands
        (m, k), n = first.shape, second.shape[0]
        operand, result, summing, scaling = self._kinds
        handle = lt.create()
        weakref.finalize(self, lt.destroy, handle)
        description = lt.matmul_desc_create(cublas.ComputeType[summing], CudaDataType[scaling])
        weakref.finalize(self, lt.matmul_desc_destroy, description)

        def describe(name: str, value: int, dtype: Any) -> None:
            told = np.array([value], dtype)
            lt.matmul_desc_set_attribute(description, lt.MatmulDescAttribute[name], told.ctypes.data, told.nbytes)

        describe("TRANSA", cublas.Operation.T, np.int32)
        if self._scales:
            describe("A_SCALE_POINTER", self._scales[1].data_ptr(), np.uint64)  # its first is our second
            describe("B_SCALE_POINTER", self._scales[0].data_ptr(), np.uint64)
            describe("FAST_ACCUM", 1, np.int8)
        # cuBLASLt's matrices lie by columns: its first, (k, n), is `second`, and its result is the transpose of `out`
        layouts = []
        for kind, rows, columns in ((operand, k, n), (operand, k, m), (result, n, m)):
            layouts.append(lt.matrix_layout_create(CudaDataType[kind], rows, columns, rows))
            weakref.finalize(self, lt.matrix_layout_destroy, layouts[-1])
        found = _algorithms(lt, handle, description, layouts)
        workspace = torch.empty(WORKSPACE, dtype=torch.uint8, device=first.device)

        def call(algorithm: int) -> None:
            lt.matmul(
                handle, description, self._scale.ctypes.data, second.data_ptr(), layouts[0], first.data_ptr(),
                layouts[1], self._zero.ctypes.data, out.data_ptr(), layouts[2], out.data_ptr(), layouts[2],
                found.ctypes.data + algorithm * found.itemsize, workspace.data_ptr(), WORKSPACE,
                torch.cuda.current_stream().cuda_stream,
            )  # fmt: skip

        seconds = [_seconds(lambda number=number: call(number)) for number in range(len(found))]
        fastest = seconds.index(min(seconds))
        return lambda: call(fastest)


def _algorithms(lt: Any, handle: int, description: int, layouts: list[int]) -> Any:
    """What cuBLASLt holds for suitable, likeliest first: an array of its heuristic's results."""
    preference = lt.matmul_preference_create()
    try:
        most = np.array([WORKSPACE], np.uint64)
        lt.matmul_preference_set_attribute(
            preference, lt.MatmulPreferenceAttribute.MAX_WORKSPACE_BYTES, most.ctypes.data, most.nbytes
        )
        found, count = np.zeros(ALGORITHMS, lt.matmul_heuristic_result_dtype), np.zeros(1, np.int32)
        a, b, c = layouts
        lt.matmul_algo_get_heuristic(
            handle, description, a, b, c, c, preference, ALGORITHMS, found.ctypes.data, count.ctypes.data
        )
    finally:
        lt.matmul_preference_destroy(preference)
    found = found[: int(count[0])]
    found = found[found["state"] == 0].copy()
    if not len(found):
        raise RuntimeError("cuBLASLt has no algorithm for it")
    return found


def _seconds(run: Any) -> float:
    """Seconds of one run, back to back."""
    run()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(TRIALS):
        run()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3 / TRIALS
