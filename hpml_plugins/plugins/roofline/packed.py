"""A kernel of packed half-precision multiply-adds (HFMA2), by Triton. Imports triton: inside
`measure` only."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

BLOCK = 1024


@triton.jit  # type: ignore[untyped-decorator]
def _multiply_add(x_ptr, y_ptr, z_ptr, out_ptr, repeats: tl.constexpr, block: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * block + tl.arange(0, block)
    x, y, z = tl.load(x_ptr + at), tl.load(y_ptr + at), tl.load(z_ptr + at)
    for _ in tl.static_range(repeats):
        x = tl.inline_asm_elementwise(
            "fma.rn.f16x2 $0, $1, $2, $3;",
            "=r,r,r,r",
            [x, y, z],
            dtype=tl.float16,
            is_pure=True,
            pack=2,
        )
    tl.store(out_ptr + at, x)


def multiply_add(x: Any, y: Any, z: Any, out: Any, repeats: int) -> None:
    """out ← x · y + z, then again with the result for x, `repeats` times in total; two elements per
    instruction.

    x, y, z, out: float16 on the GPU, of one length that BLOCK divides.
    """
    _multiply_add[(out.numel() // BLOCK,)](x, y, z, out, repeats, BLOCK)
