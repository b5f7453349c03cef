"""Square matrix products, float64 to fp8, by torch and by cuBLASLt itself. Imports torch: imported
on use only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import torch

from hpml_plugins import HpmlError

#: The number of first and of last rows of the result that are compared with float64, to cover
#: incomplete tiles.
CHECKED = 8
#: Relative error (2-norm) of the checked rows. int8 is exact. fp8's products are exact too, but
#: Hopper's tensor cores add them up with fewer bits than float32 has, and the result is rounded to
#: bfloat16. TF32 keeps 10 bits of mantissa: 3e-4 if the operands are rounded, 8e-4 if cut off (n =
#: 16384). float64 is compared with another float64 product.
TOLERANCE = {
    "float32": 1e-5,
    "bfloat16": 2e-2,
    "int8": 0.0,
    "fp8": 2e-2,
    "tf32": 2e-3,
    "float64": 1e-12,
}
#: torch's name for the precision of float32 products.
FLOAT32_PRECISION = {"float32": "highest", "tf32": "high"}
#: The tolerance if sums are rounded to int8: they are scaled in float32, so a tie may be rounded
#: either way.
ROUNDED = 1e-3
#: Workspace of an algorithm of cuBLASLt, B; how many algorithms are requested, and how often each
#: runs in the comparison.
WORKSPACE, ALGORITHMS, TRIALS = 64 * 2**20, 16, 10
#: dtypes of operands and result → nvmath's names of: operand, result, what is added up in, scale.
KINDS = {
    (torch.int8, torch.int32): ("CUDA_R_8I", "CUDA_R_32I", "COMPUTE_32I", "CUDA_R_32I"),
    (torch.int8, torch.int8): ("CUDA_R_8I", "CUDA_R_8I", "COMPUTE_32I", "CUDA_R_32F"),
    (torch.float8_e4m3fn, torch.bfloat16): (
        "CUDA_R_8F_E4M3",
        "CUDA_R_16BF",
        "COMPUTE_32F",
        "CUDA_R_32F",
    ),
}


@dataclass(frozen=True)
class Product:
    """One way to compute a product.

    run: computes and returns the result.  truth: the checked rows in float64.  tolerance: for
    `error`.
    """

    run: Callable[[], Any]
    truth: Callable[[Any], Any]
    tolerance: float

    def error(self, result: Any) -> float:
        """|result − truth| / |truth| of the first and last CHECKED rows."""
        rows = torch.cat([torch.arange(CHECKED), torch.arange(-CHECKED, 0)]).to(result.device)
        wanted = self.truth(rows)
        return float((result[rows].double() - wanted).norm() / wanted.norm())


def ways(dtype: str, n: int, device: str, seed: int) -> dict[str, Product]:
    """Name → a product of two n × n matrices of normal numbers, scaled so that int8's largest is
    127 and fp8's 448.

    "columns", "rows": the layout of the second operand; fp8's is by columns.  "fast", "exact":
    fp8's accumulation, with one scale per tensor.  "by rows": one per row and column.  On a GPU
    also "cuBLASLt" called directly, and "cuBLASLt to int8", whose sums are scaled and rounded. fp8,
    e4m3, gives bfloat16. Raises HpmlError for another dtype.
    """
    generator = torch.Generator(device).manual_seed(seed)
    drawn = torch.float64 if dtype == "float64" else torch.float32
    a, b = (torch.randn(n, n, generator=generator, device=device, dtype=drawn) for _ in range(2))
    if dtype in ("float64", "float32", "tf32", "bfloat16"):
        if dtype == "bfloat16":
            a, b = a.bfloat16(), b.bfloat16()
        multiply = torch.mm
        if dtype == "tf32" or (dtype == "float32" and a.is_cuda):
            multiply = partial(_multiply_float32, FLOAT32_PRECISION[dtype])
        return _plain(
            multiply,
            a,
            {"columns": _by_columns(b), "rows": b},
            torch.empty_like(a),
            TOLERANCE[dtype],
        )
    if dtype == "int8":
        return _int8(_to_int8(a), _to_int8(b))
    if dtype == "fp8":
        return _fp8(a, b)
    raise HpmlError(f"no product of {dtype!r}; use one of {', '.join(TOLERANCE)}")


def _multiply_float32(precision: str, a: Any, b: Any, *, out: Any) -> Any:
    """a @ b of float32 matrices in `precision`, torch's name; the previous setting is restored
    afterwards."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        return torch.mm(a, b, out=out)
    finally:
        torch.set_float32_matmul_precision(before)


def _by_columns(matrix: Any) -> Any:
    return matrix.t().contiguous().t()


def _plain(
    multiply: Any, a: Any, seconds: dict[str, Any], out: Any, tolerance: float
) -> dict[str, Product]:
    def exact(rows: Any) -> Any:
        return a[rows].double() @ seconds["rows"].double()

    return {
        name: Product(partial(multiply, a, b, out=out), exact, tolerance)
        for name, b in seconds.items()
    }


def _to_int8(values: Any) -> Any:
    return (values * (127 / values.abs().max())).round().to(torch.int8)


def _int8(a: Any, b: Any) -> dict[str, Product]:
    out, by_columns = torch.empty(a.shape, dtype=torch.int32, device=a.device), _by_columns(b)
    products = _plain(torch._int_mm, a, {"columns": by_columns, "rows": b}, out, TOLERANCE["int8"])
    if a.is_cuda:
        exact = products["columns"].truth
        products["cuBLASLt"] = replace(
            products["columns"], run=cublaslt_product(a, by_columns, out)
        )
        # the largest of n normal sums becomes 127, or nearly: unchecked rows may contain a larger
        # one
        scale = float(127 / exact(slice(CHECKED)).abs().max())
        rounded = cublaslt_product(a, by_columns, torch.empty_like(a), scale)
        products["cuBLASLt to int8"] = Product(
            rounded, lambda rows: (exact(rows) * scale).round().clamp(-128, 127), ROUNDED
        )
    return products


def _fp8(a: Any, b: Any) -> dict[str, Product]:
    dtype = torch.float8_e4m3fn
    out = torch.empty(a.shape, dtype=torch.bfloat16, device=a.device)

    def operands(scales: tuple[Any, Any]) -> tuple[Any, Any]:
        return (a / scales[0]).to(dtype), _by_columns(b / scales[1]).to(dtype)

    def scaled(x: Any, y: Any, scales: tuple[Any, Any], fast: bool) -> Product:
        by, and_by = scales
        return Product(
            lambda: torch._scaled_mm(
                x,
                y,
                scale_a=by,
                scale_b=and_by,
                out_dtype=torch.bfloat16,
                use_fast_accum=fast,
                out=out,
            ),
            lambda rows: (
                (x[rows].double() * by.expand(len(x), 1)[rows].double())
                @ (y.double() * and_by.double())
            ),
            TOLERANCE["fp8"],
        )

    most = torch.finfo(dtype).max
    of_tensors = a.abs().max() / most, b.abs().max() / most
    of_rows = a.abs().amax(1, keepdim=True) / most, b.abs().amax(0, keepdim=True) / most
    x, y = operands(of_tensors)
    products = {
        "fast": scaled(x, y, of_tensors, True),
        "exact": scaled(x, y, of_tensors, False),
        "by rows": scaled(*operands(of_rows), of_rows, True),
    }
    if a.is_cuda:
        products["cuBLASLt"] = replace(
            products["fast"], run=cublaslt_product(x, y, out, scales=of_tensors)
        )
    return products


def cublaslt_product(
    first: Any, second: Any, out: Any, scale: float = 1.0, scales: tuple[Any, Any] | None = None
) -> Callable[[], Any]:
    """A function that computes first @ second by cuBLASLt on the current stream into `out` and
    returns it.

    `torch._int_mm` gives cuBLASLt no workspace and uses the first algorithm that it proposes, which
    costs a third of the rate on an H200. Here it has a workspace, and the first call tries several
    algorithms and keeps the fastest.

    first: (m, k), int8 or float8_e4m3fn, by rows, as out, (m, n).  second: (k, n), the same dtype,
    by columns.  For int8, an int32 out receives the sums, and an int8 one these times `scale`,
    rounded and clamped.  For fp8, a bfloat16 out receives the sums times `scales`, two float32
    numbers on the GPU, accumulated fast (with fewer bits than float32 has). Raises ValueError for
    other operands; the first call RuntimeError without nvmath-python or if cuBLASLt refuses.
    """
    if not all(each.is_contiguous() for each in (first, second.t(), out)):
        raise ValueError("first and out must lie by rows, second by columns")
    if (first.dtype, out.dtype) not in KINDS or second.dtype != first.dtype:
        raise ValueError(f"no product of {first.dtype} and {second.dtype} to {out.dtype}")

    @cache
    def planned() -> Callable[[], None]:
        try:
            from nvmath.bindings import cublasLt
        except ImportError as error:
            raise RuntimeError("needs the package nvmath-python") from error
        try:
            return _plan(cublasLt, first, second, out, scale, scales)
        except cublasLt.cuBLASLtError as error:
            raise RuntimeError(f"cuBLASLt refuses: {error}") from error

    def run() -> Any:
        planned()()
        return out

    return run


def _plan(
    lt: Any, first: Any, second: Any, out: Any, scale: float, scales: tuple[Any, Any] | None
) -> Callable[[], None]:
    """The call with the fastest algorithm. The objects passed to cuBLASLt live as long as the
    point's process."""
    import numpy as np
    from nvmath import CudaDataType
    from nvmath.bindings import cublas

    def configure(setter: Any, owner: int, attribute: Any, value: int, dtype: Any) -> None:
        told = np.array([value], dtype)
        setter(owner, attribute, told.ctypes.data, told.nbytes)

    (m, k), n = first.shape, second.shape[1]
    operand, result, summing, scaling = KINDS[first.dtype, out.dtype]
    handle = lt.create()
    product = lt.matmul_desc_create(cublas.ComputeType[summing], CudaDataType[scaling])
    settings: list[tuple[str, int, Any]] = [("TRANSA", cublas.Operation.T, np.int32)]
    if scales:
        settings += [
            ("A_SCALE_POINTER", scales[1].data_ptr(), np.uint64),  # its first is our second
            ("B_SCALE_POINTER", scales[0].data_ptr(), np.uint64),
            ("FAST_ACCUM", 1, np.int8),
        ]
    for name, value, dtype in settings:
        configure(lt.matmul_desc_set_attribute, product, lt.MatmulDescAttribute[name], value, dtype)
    # cuBLASLt's matrices are stored by columns: its first, (k, n), is `second`, and its result is
    # the transpose of `out`
    a, b, c = (
        lt.matrix_layout_create(CudaDataType[kind], rows, columns, rows)
        for kind, rows, columns in ((operand, k, n), (operand, k, m), (result, n, m))
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
        raise RuntimeError("cuBLASLt has no algorithm for it")
    workspace = torch.empty(WORKSPACE, dtype=torch.uint8, device=first.device)
    factor = np.array([scale], np.int32 if out.dtype == torch.int32 else np.float32)
    zero = np.zeros_like(factor)

    def call(algorithm: int) -> None:
        lt.matmul(
            handle,
            product,
            factor.ctypes.data,
            second.data_ptr(),
            a,
            first.data_ptr(),
            b,
            zero.ctypes.data,
            out.data_ptr(),
            c,
            out.data_ptr(),
            c,
            found.ctypes.data + algorithm * found.itemsize,
            workspace.data_ptr(),
            WORKSPACE,
            torch.cuda.current_stream().cuda_stream,
        )

    return partial(call, min(range(len(found)), key=lambda number: _seconds(partial(call, number))))


def _seconds(run: Callable[[], None]) -> float:
    """Seconds of one run, back to back."""
    run()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(TRIALS):
        run()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3 / TRIALS
