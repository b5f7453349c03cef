"""Square matrix products in low precision, in every way that torch offers. Imports torch: imported on use only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from hpml_plugins import HpmlError

#: Rows of the result that are held against float64, beside the last ones: a kernel's tiles end somewhere.
CHECKED = 8
#: Relative error (2-norm) of the checked rows. int8 is exact. fp8's products are exact too, but Hopper's tensor cores
#: add them up with fewer bits than float32 has, and the result is rounded to bfloat16.
TOLERANCE = {"float32": 1e-5, "bfloat16": 2e-2, "int8": 0.0, "fp8": 2e-2}
#: The same where sums are rounded to int8: the scaling is done in float32, so one that lies halfway may go either way.
ROUNDED = 1e-3


@dataclass(frozen=True)
class Product:
    """One way to compute a product.

    run: does it and returns the result.  truth: the same rows of it in float64.  tolerance: for `error`.
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
    """Name → a product of two n × n matrices of normal numbers.

    bfloat16, float32: "rows" and "columns", how the second operand lies.  int8: the same by torch, and on a GPU
    "cuBLASLt" called directly, and "cuBLASLt to int8", its sums scaled and rounded to int8; numbers are scaled so that
    the largest is 127.  fp8: e4m3 scaled so that the largest is 448, the second operand by columns, result in bfloat16;
    by torch "fast" and "exact" accumulation with one scale a tensor, "by rows" with one a row; on a GPU also fast by
    "cuBLASLt" called directly. Raises HpmlError for another.
    """
    generator = torch.Generator(device).manual_seed(seed)
    a, b = (torch.randn(n, n, generator=generator, device=device) for _ in range(2))
    if dtype in ("float32", "bfloat16"):
        return _plain(a.to(getattr(torch, dtype)), b.to(getattr(torch, dtype)))
    if dtype == "int8":
        return _int8(_to_int8(a), _to_int8(b))
    if dtype == "fp8":
        return _fp8(a, b)
    raise HpmlError(f"no product of {dtype!r}; use one of {', '.join(TOLERANCE)}")


def _plain(a: Any, b: Any) -> dict[str, Product]:
    out = torch.empty_like(a)
    by_columns = b.t().contiguous().t()
    return {
        name: Product(
            lambda second=second: torch.mm(a, second, out=out),  # type: ignore[misc]
            lambda rows: a[rows].double() @ b.double(),
            TOLERANCE[str(a.dtype).removeprefix("torch.")],
        )
        for name, second in (("columns", by_columns), ("rows", b))
    }


def _to_int8(values: Any) -> Any:
    return (values * (127 / values.abs().max())).round().to(torch.int8)


def _int8(a: Any, b: Any) -> dict[str, Product]:
    out = torch.empty(a.shape, dtype=torch.int32, device=a.device)
    by_columns = b.t().contiguous().t()

    def exact(rows: Any) -> Any:
        return a[rows].double() @ b.double()

    products = {
        name: Product(lambda second=second: torch._int_mm(a, second, out=out), exact, TOLERANCE["int8"])  # type: ignore[misc]
        for name, second in (("columns", by_columns), ("rows", b))
    }
    if a.is_cuda:
        from hpml_plugins.plugins.quantization.cublaslt import EightBitProduct

        products["cuBLASLt"] = Product(EightBitProduct(a, by_columns, out), exact, TOLERANCE["int8"])
        # the largest of n normal sums becomes 127, or nearly: rows that are not looked at may hold a larger one
        scale = float(127 / exact(slice(CHECKED)).abs().max())
        rounded = EightBitProduct(a, by_columns, torch.empty_like(a), scale)
        products["cuBLASLt to int8"] = Product(
            rounded, lambda rows: (exact(rows) * scale).round().clamp(-128, 127), ROUNDED
        )
    return products


def _fp8(a: Any, b: Any) -> dict[str, Product]:
    kind = torch.float8_e4m3fn
    most = torch.finfo(kind).max
    (first, first_scale), (second, second_scale) = ((x * (most / x.abs().max()), x.abs().max() / most) for x in (a, b))
    left, right = first.to(kind), second.t().contiguous().to(kind).t()
    row_scales = a.abs().amax(1, keepdim=True) / most
    column_scales = b.abs().amax(0, keepdim=True) / most
    left_rows, right_columns = (a / row_scales).to(kind), (b / column_scales).t().contiguous().to(kind).t()
    out = torch.empty(a.shape, dtype=torch.bfloat16, device=a.device)

    def scaled(x: Any, y: Any, by: Any, and_by: Any, fast: bool) -> Product:
        return Product(
            lambda: torch._scaled_mm(
                x, y, scale_a=by, scale_b=and_by, out_dtype=torch.bfloat16, use_fast_accum=fast, out=out
            ),
            lambda rows: (
                (x[rows].double() * (by if by.dim() == 0 else by[rows]).double()) @ (y.double() * and_by.double())
            ),
            TOLERANCE["fp8"],
        )

    products = {
        "fast": scaled(left, right, first_scale, second_scale, True),
        "exact": scaled(left, right, first_scale, second_scale, False),
        "by rows": scaled(left_rows, right_columns, row_scales, column_scales, True),
    }
    if a.is_cuda:
        from hpml_plugins.plugins.quantization.cublaslt import EightBitProduct

        direct = EightBitProduct(left, right, out, scales=(first_scale, second_scale))
        products["cuBLASLt"] = replace(products["fast"], run=direct)
    return products
