"""Matrix products with epilogues that torch does not offer: GELU, its derivative, or the sum with
another matrix. By cuBLASLt, through nvmath-python. Imports torch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

#: Workspace of an algorithm, B; how many algorithms are requested, and how often each runs in the
#: comparison.
WORKSPACE, ALGORITHMS, TRIALS = 64 * 2**20, 16, 10
#: Epilogue and shapes → the product, planned at its first call.
_PLANNED: dict[tuple[Any, ...], Callable[..., None]] = {}


@functools.cache
def _workspace(device: Any) -> Any:
    return torch.empty(WORKSPACE, dtype=torch.uint8, device=device)


def multiply(epilogue: str, x: Any, weight: Any, out: Any, other: Any) -> None:
    """Write x weightᵀ into `out` on the current stream.

    epilogue: "DEFAULT" adds `other`; "GELU_AUX" applies GELU and writes the values before it into
    `other`; "DGELU" multiplies by GELU's derivative at `other`.
    """
    given = x, weight, out, other
    if not all(each.is_contiguous() and each.dtype == torch.bfloat16 for each in given):
        raise ValueError("all matrices must be bfloat16, by rows")
    key = epilogue, x.device, *(tuple(each.shape) for each in (x, weight))
    if key not in _PLANNED:
        _PLANNED[key] = _plan(epilogue, *given)
    _PLANNED[key](*given)


def _plan(epilogue: str, x: Any, weight: Any, out: Any, other: Any) -> Callable[..., None]:
    """The call with the fastest algorithm for matrices of these shapes. The objects passed to
    cuBLASLt live as long as the point's process."""
    import numpy as np
    from nvmath import CudaDataType
    from nvmath.bindings import cublas
    from nvmath.bindings import cublasLt as lt

    def configure(setter: Any, owner: int, attribute: Any, value: int, dtype: Any) -> None:
        told = np.array([value], dtype)
        setter(owner, attribute, told.ctypes.data, told.nbytes)

    (tokens, inner), outputs, adds = x.shape, len(weight), epilogue == "DEFAULT"
    handle = lt.create()
    product = lt.matmul_desc_create(cublas.ComputeType.COMPUTE_32F, CudaDataType.CUDA_R_32F)
    attributes = lt.MatmulDescAttribute
    describe = partial(configure, lt.matmul_desc_set_attribute, product)
    describe(attributes.TRANSA, cublas.Operation.T, np.int32)
    describe(attributes.EPILOGUE, lt.Epilogue[epilogue], np.int32)
    if not adds:
        describe(attributes.EPILOGUE_AUX_POINTER, other.data_ptr(), np.uint64)
        describe(attributes.EPILOGUE_AUX_LD, outputs, np.int64)
    # cuBLASLt's matrices are stored by columns: its first is `weight`, its second the transpose of
    # x, and its result that of `out`
    a, b, c = (
        lt.matrix_layout_create(CudaDataType.CUDA_R_16BF, rows, columns, rows)
        for rows, columns in ((inner, outputs), (inner, tokens), (outputs, tokens))
    )
    preference = lt.matmul_preference_create()
    most = lt.MatmulPreferenceAttribute.MAX_WORKSPACE_BYTES
    configure(lt.matmul_preference_set_attribute, preference, most, WORKSPACE, np.uint64)
    found, count = np.zeros(ALGORITHMS, lt.matmul_heuristic_result_dtype), np.zeros(1, np.int32)
    lt.matmul_algo_get_heuristic(
        handle, product, a, b, c, c, preference, ALGORITHMS, found.ctypes.data, count.ctypes.data
    )
    found = found[: int(count[0])]
    found = found[found["state"] == 0].copy()
    if not len(found):
        raise RuntimeError(f"cuBLASLt has no algorithm for a product with {epilogue}")
    workspace = _workspace(x.device)
    one, share = np.ones(1, np.float32), np.full(1, adds, np.float32)

    def call(algorithm: int, x: Any, weight: Any, out: Any, other: Any) -> None:
        if not adds:
            describe(attributes.EPILOGUE_AUX_POINTER, other.data_ptr(), np.uint64)
        lt.matmul(
            handle,
            product,
            one.ctypes.data,
            weight.data_ptr(),
            a,
            x.data_ptr(),
            b,
            share.ctypes.data,
            (other if adds else out).data_ptr(),
            c,
            out.data_ptr(),
            c,
            found.ctypes.data + algorithm * found.itemsize,
            workspace.data_ptr(),
            WORKSPACE,
            torch.cuda.current_stream(x.device).cuda_stream,
        )

    def seconds(algorithm: int) -> float:
        again = partial(call, algorithm, x, weight, out, other)
        again()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(TRIALS):
            again()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end))

    return partial(call, min(range(len(found)), key=seconds))
