"""Linear layers in several number formats: operands, their quantisation, and the variants of the
product. Imports torch.

The weight w is (n, k), as in torch.nn.Linear; activations x are (m, k), and the product is x wᵀ,
(m, n).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from hpml_plugins.plugins.kernels.variants import Step, relative_error

FP8 = torch.float8_e4m3fn
#: The number of first and of last rows and columns of the result that are compared with float64.
CHECKED_ROWS, CHECKED_COLUMNS = 8, 256
#: The fewest rows that torch._int_mm accepts on a GPU.
INT8_ROWS = 32
#: Numbers that share a scale in the block formats, the format of the scale, and the largest number
#: of an element.
BLOCKS = {"mxfp8": 32, "nvfp4": 16}
#: The positive numbers of float4_e2m1, in the order of their codes.
FP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


@dataclass(frozen=True)
class Product:
    """A linear layer in one format.

    ways: name → function that returns the multiplying step.  quantize: converts the activations to
    the format, as a layer must at each use; None if they are used unchanged. exact: the product of
    the quantised operands, at some rows and columns, in float64. original: the same for x and w
    before quantisation.
    """

    ways: dict[str, Callable[[], Step]]
    quantize: Step | None
    exact: Callable[[Any, Any], Any]
    original: Callable[[Any, Any], Any]
    scales: tuple[Any, Any] | None = None

    def error(self, result: Any, *, of_format: bool = False) -> float:
        """Relative error of the checked part; of_format: against the operands before
        quantisation."""
        rows, columns = (
            _ends(size, of)
            for size, of in zip(result.shape, (CHECKED_ROWS, CHECKED_COLUMNS), strict=True)
        )
        rows, columns = rows.to(result.device), columns.to(result.device)
        part = result[rows][:, columns].double()
        if result.dtype == torch.int32 and self.scales:
            part = part * self.scales[0][rows].double() * self.scales[1][columns].double().T
        return relative_error(part, (self.original if of_format else self.exact)(rows, columns))


def _ends(size: int, count: int) -> Any:
    """The first and the last `count` indices, or all."""
    return (
        torch.arange(size)
        if size <= 2 * count
        else torch.cat([torch.arange(count), torch.arange(size - count, size)])
    )


def operands(m: int, n: int, k: int, dtype: torch.dtype, device: str, seed: int) -> tuple[Any, Any]:
    """Activations (m, k) of normal numbers, and a weight (n, k) of deviation 0.02."""
    generator = torch.Generator(device).manual_seed(seed)
    x = torch.randn(m, k, generator=generator, device=device).to(dtype)
    w = torch.empty(n, k, dtype=dtype, device=device)
    for part in w.split(4096):  # a whole weight in float32 would need twice its memory
        part.copy_(torch.randn(part.shape, generator=generator, device=device) * 0.02)
    return x, w


def product(format: str, x: Any, w: Any) -> Product:
    """The layer in this format: "float32", "bfloat16", "fp8_tensor", "fp8_row", "int8", "mxfp8" or
    "nvfp4"."""
    if format in ("float32", "bfloat16"):
        out = torch.empty(len(x), len(w), dtype=x.dtype, device=x.device)
        ways: dict[str, Callable[[], Step]] = {
            "torch.mm": lambda: partial(torch.mm, x, w.t(), out=out)
        }
        if format == "bfloat16":
            ways |= streamed(x, w, None, None)
        return Product(ways, None, _exact(x, w), _exact(x, w))
    if format == "fp8_tensor":
        return _fp8(x, w, quantize_tensor, "torch._scaled_mm")
    if format == "fp8_row":
        return _fp8(x, w, partial(quantize_rows, dtype=FP8), "torch._scaled_mm by rows")
    if format == "int8":
        return _int8(x, w)
    return _blocks(format, x, w)


def quantize_tensor(x: Any) -> tuple[Any, Any]:
    """x as fp8 with one scale: the largest number becomes 448. The quotient is rounded to x's dtype
    before fp8."""
    scale = torch.linalg.vector_norm(x, float("inf"), dtype=torch.float32) / torch.finfo(FP8).max
    return (x / scale).to(FP8), scale.reshape(1, 1)


def quantize_rows(x: Any, dtype: torch.dtype) -> tuple[Any, Any]:
    """x as fp8 or int8 with one scale per row, (rows, 1); on a GPU by our Triton kernel, which
    reads x once."""
    if x.is_cuda:
        from hpml_plugins.plugins.kernels import triton_kernels

        return triton_kernels.quantize_rows(x, dtype)
    most = 127.0 if dtype == torch.int8 else torch.finfo(dtype).max
    scales = x.float().abs().amax(1, keepdim=True).clamp(min=1e-12) / most
    scaled = x.float() / scales
    return (scaled.round() if dtype == torch.int8 else scaled).to(dtype), scales


def _exact(x: Any, w: Any, x_scale: Any = None, w_scale: Any = None) -> Callable[[Any, Any], Any]:
    def part(values: Any, scale: Any, rows: Any) -> Any:
        chosen = values[rows].double()
        if scale is None:
            return chosen
        return chosen * scale.expand(len(values), 1)[rows].double()

    return lambda rows, columns: part(x, x_scale, rows) @ part(w, w_scale, columns).T


def _fp8(x: Any, w: Any, quantize: Callable[[Any], tuple[Any, Any]], name: str) -> Product:
    (x8, x_scale), (w8, w_scale) = quantize(x), quantize(w)
    out = torch.empty(len(x), len(w), dtype=torch.bfloat16, device=x.device)

    def by_torch() -> Step:
        return lambda: torch._scaled_mm(
            x8,
            w8.t(),
            scale_a=x_scale,
            scale_b=w_scale.t(),
            out_dtype=torch.bfloat16,
            use_fast_accum=x.is_cuda,
            out=out,
        )

    ways = {name: by_torch, **streamed(x8, w8, x_scale, w_scale)}
    return Product(ways, lambda: quantize(x), _exact(x8, w8, x_scale, w_scale), _exact(x, w))


def _int8(x: Any, w: Any) -> Product:
    (x8, x_scale), (w8, w_scale) = quantize_rows(x, torch.int8), quantize_rows(w, torch.int8)
    m = len(x)
    padded = (
        torch.zeros(INT8_ROWS, x.shape[1], dtype=torch.int8, device=x.device)
        if m < INT8_ROWS
        else x8
    )
    padded[:m] = x8
    out = torch.empty(len(padded), len(w), dtype=torch.int32, device=x.device)

    def by_torch() -> Step:
        return lambda: torch._int_mm(padded, w8.t(), out=out)[:m]

    rows = "" if m >= INT8_ROWS else f", {INT8_ROWS} rows"
    # the others scale their result and return bfloat16
    name = f"torch._int_mm{rows}, unscaled int32"
    ways = {name: by_torch, **streamed(x8, w8, x_scale, w_scale)}
    exact = _exact(x8, w8, x_scale, w_scale)
    return Product(
        ways, lambda: quantize_rows(x, torch.int8), exact, _exact(x, w), (x_scale, w_scale)
    )


def streamed(x: Any, w: Any, x_scale: Any, w_scale: Any) -> dict[str, Callable[[], Step]]:
    """Our kernel for few rows on a GPU, in all tilings that fit; empty for more rows."""
    if not x.is_cuda or len(x) > 16:
        return {}

    def build(tiling: tuple[Any, ...]) -> Step:
        from hpml_plugins.plugins.kernels.triton_kernels import StreamedProduct, Tiling

        return StreamedProduct(x, w, x_scale, w_scale, Tiling(*tiling))

    return {
        f"Triton {columns}x{depth}, {splits} splits": partial(
            build, (columns, depth, splits, stages, warps)
        )
        for columns, depth, splits, stages, warps in TILINGS[x.element_size()]
    }


#: Bytes of a number → the tilings that are tried: columns, depth, splits, stages, warps.
TILINGS = {
    1: ((128, 256, 1, 3, 4), (64, 256, 1, 4, 4), (64, 256, 4, 4, 4)),
    2: ((128, 128, 1, 4, 4), (64, 128, 4, 4, 4)),
}


def _blocks(format: str, x: Any, w: Any) -> Product:
    (x_low, x_scales), (w_low, w_scales) = (to_blocks(format, each) for each in (x, w))
    x_scale, w_scale = interleave_scales(x_scales), interleave_scales(w_scales)
    x_back, w_back = from_blocks(format, x_low, x_scales), from_blocks(format, w_low, w_scales)

    def by_torch() -> Step:
        return lambda: torch._scaled_mm(
            x_low, w_low.t(), scale_a=x_scale, scale_b=w_scale, out_dtype=torch.bfloat16
        )

    return Product(
        {"torch._scaled_mm by blocks": by_torch},
        lambda: quantize_blocks(format, x),
        _exact(x_back, w_back),
        _exact(x, w),
    )


def quantize_blocks(format: str, x: Any) -> tuple[Any, Any]:
    """x (rows, k) in "mxfp8" or "nvfp4": the elements, and the scales as tensor cores read them."""
    elements, scales = to_blocks(format, x)
    return elements, interleave_scales(scales)


def to_blocks(format: str, x: Any) -> tuple[Any, Any]:
    """x (rows, k) in "mxfp8" or "nvfp4": the elements, and the scales, (rows, k / numbers of a
    block).

    mxfp8: fp8 elements; a scale per 32, a power of two (e8m0). nvfp4: e2m1 elements, two per byte;
    a scale per 16 (e4m3). Each block's largest number is scaled close to the largest element: 448
    or 6. Source: OCP Microscaling Formats (MX) Specification 1.0, sections 5 and 6; cuBLAS
    documentation, block scaling.
    """
    size = BLOCKS[format]
    blocks = x.float().reshape(len(x), -1, size)
    largest = blocks.abs().amax(2, keepdim=True).clamp(min=1e-12)
    if format == "mxfp8":
        exponent = torch.ceil(torch.log2(largest / torch.finfo(FP8).max)).clamp(-127, 127)
        scale = torch.exp2(exponent)
        stored = (exponent + 127).to(torch.uint8).view(torch.float8_e8m0fnu)
        elements = (blocks / scale).to(FP8).reshape(x.shape)
    else:
        stored = (largest / FP4[-1]).to(FP8)
        pairs = _to_fp4(blocks / stored.float().clamp(min=2.0**-9)).reshape(len(x), -1, 2)
        elements = (pairs[..., 0] | pairs[..., 1] << 4).view(torch.float4_e2m1fn_x2)
    return elements, stored.squeeze(2)


def from_blocks(format: str, elements: Any, scales: Any) -> Any:
    """The numbers, float32, that the result of `to_blocks` represents."""
    if format == "mxfp8":
        values, scale = elements.float(), torch.exp2(scales.view(torch.uint8).float() - 127)
    else:
        pairs = elements.view(torch.uint8)
        codes = torch.stack([pairs & 15, pairs >> 4], 2).reshape(len(pairs), -1).long()
        known = torch.tensor(FP4, device=pairs.device)
        values, scale = torch.cat([known, -known])[codes], scales.float()
    blocks = values.reshape(*scale.shape, -1) * scale[..., None]
    return blocks.reshape(values.shape)


def _to_fp4(values: Any) -> Any:
    """The codes of the nearest numbers of float4_e2m1, the sign in bit 3."""
    known = torch.tensor(FP4, device=values.device)
    code = torch.bucketize(values.abs(), (known[1:] + known[:-1]) / 2)
    return (code | (values < 0).long() << 3).to(torch.uint8)


def interleave_scales(scales: Any) -> Any:
    """Scales (rows, columns) in the order in which Blackwell's tensor cores read them, padded to
    128 × 4, flat.

    Of a tile of 128 × 4, row r and column c come to (r mod 32) · 16 + (r div 32) · 4 + c.
    Source: cuBLAS documentation, 1D block scaling factors layout.
    """
    rows, columns = scales.shape
    padded = torch.zeros(
        -(-rows // 128) * 128, -(-columns // 4) * 4, dtype=torch.uint8, device=scales.device
    )
    padded[:rows, :columns] = scales.view(torch.uint8)
    tiles = padded.reshape(padded.shape[0] // 128, 4, 32, padded.shape[1] // 4, 4)
    return tiles.permute(0, 3, 2, 1, 4).flatten().view(scales.dtype)
