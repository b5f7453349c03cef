"""Our Triton kernels, each as one function over tensors. Imports triton: imported on use only.

Tensors are contiguous and on a GPU. Sums and products are computed in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

#: Numbers of the largest weight of `StreamedProduct`.
LARGEST = 2**31 - 1


@triton.jit  # type: ignore[untyped-decorator]
def _rms_norm(x, weight, y, rows, cols, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None].to(tl.int64)
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < cols)
    values = tl.load(x + row * cols + column, mask=inside, other=0.0).to(tl.float32)
    factor = tl.rsqrt(tl.sum(values * values, axis=1) / cols + eps)
    scale = tl.load(weight + column, mask=column < cols, other=0.0).to(tl.float32)
    tl.store(
        y + row * cols + column,
        (values * factor[:, None] * scale).to(y.dtype.element_ty),
        mask=inside,
    )


@triton.jit  # type: ignore[untyped-decorator]
def _rotary(x, cos, sin, y, rows, heads, HALF: tl.constexpr, ROWS: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, HALF)[None, :]
    inside = row < rows
    angle = (row // heads) * HALF + column
    c = tl.load(cos + angle, mask=inside, other=0.0)
    s = tl.load(sin + angle, mask=inside, other=0.0)
    first = row.to(tl.int64) * (2 * HALF) + column
    a = tl.load(x + first, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(x + first + HALF, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + first, (a * c - b * s).to(y.dtype.element_ty), mask=inside)
    tl.store(y + first + HALF, (b * c + a * s).to(y.dtype.element_ty), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _swiglu(x, y, width, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    gate = tl.load(x + row * 2 * width + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(x + row * 2 * width + width + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(
        y + row * width + column, (gate * tl.sigmoid(gate) * up).to(y.dtype.element_ty), mask=inside
    )


@triton.jit  # type: ignore[untyped-decorator]
def _softmax(x, y, cols, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < cols
    values = tl.load(x + row * cols + column, mask=inside, other=-float("inf")).to(tl.float32)
    raised = tl.exp(values - tl.max(values, axis=0))
    share = raised * (1.0 / tl.sum(raised, axis=0))
    tl.store(y + row * cols + column, share.to(y.dtype.element_ty), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _cross_entropy(  # type: ignore[no-untyped-def]
    logits,
    target,
    loss,
    partial,
    arrived,
    cols,
    part,
    SPLITS: tl.constexpr,
    DEEP: tl.constexpr,
    LANES: tl.constexpr,
):
    row, split = tl.program_id(0).to(tl.int64), tl.program_id(1)
    logits += row * cols
    column = split * part + tl.arange(0, DEEP)[:, None] * LANES + tl.arange(0, LANES)[None, :]
    end = tl.minimum((split + 1) * part, cols)
    # A lane keeps the maximum and the sum of its own columns: one exponential per number, and one
    # per DEEP numbers. Lanes are combined once, at the end.
    highest = tl.full((LANES,), -1e30, tl.float32)
    total = tl.zeros((LANES,), tl.float32)
    for start in range(0, part, DEEP * LANES):
        values = tl.load(
            logits + start + column, mask=start + column < end, other=-float("inf")
        ).to(tl.float32)
        larger = tl.maximum(highest, tl.max(values, axis=0))
        total = total * tl.exp(highest - larger) + tl.sum(tl.exp(values - larger[None, :]), axis=0)
        highest = larger
    most = tl.max(highest, axis=0)
    summed = tl.sum(total * tl.exp(highest - most), axis=0)
    if SPLITS > 1:
        tl.store(partial + (row * SPLITS + split) * 2, most)
        tl.store(partial + (row * SPLITS + split) * 2 + 1, summed)
        tl.debug_barrier()
        last = tl.atomic_add(arrived + row, 1, sem="acq_rel") == SPLITS - 1
        if last:
            each = partial + (row * SPLITS + tl.arange(0, SPLITS)) * 2
            maxima = tl.load(each, cache_modifier=".cg")
            most = tl.max(maxima, axis=0)
            summed = tl.sum(tl.load(each + 1, cache_modifier=".cg") * tl.exp(maxima - most), axis=0)
            tl.store(arrived + row, 0)
            wanted = tl.load(logits + tl.load(target + row)).to(tl.float32)
            tl.store(loss + row, most + tl.log(summed) - wanted)
    else:
        wanted = tl.load(logits + tl.load(target + row)).to(tl.float32)
        tl.store(loss + row, most + tl.log(summed) - wanted)


@triton.jit  # type: ignore[untyped-decorator]
def _quantize_rows(  # type: ignore[no-untyped-def]
    x, y, scales, cols, LIMIT: tl.constexpr, ROUND: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < cols
    values = tl.load(x + row * cols + column, mask=inside, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(values), axis=0), 1e-12) / LIMIT
    scaled = values / scale
    if ROUND:
        scaled = tl.floor(scaled + 0.5)
    tl.store(y + row * cols + column, scaled.to(y.dtype.element_ty), mask=inside)
    tl.store(scales + row, scale)


@triton.jit  # type: ignore[untyped-decorator]
def _stream_weights(  # type: ignore[no-untyped-def]
    x,
    w,
    y,
    x_scale,
    w_scale,
    partial,
    arrived,
    m,
    n,
    k,
    depth,
    X_STEP: tl.constexpr,
    W_STEP: tl.constexpr,
    SCALED: tl.constexpr,
    SPLITS: tl.constexpr,
    WEIGHTS_FIRST: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    SUM: tl.constexpr,
):
    tile, split = tl.program_id(0), tl.program_id(1)
    row, column = tl.arange(0, ROWS), tile * COLUMNS + tl.arange(0, COLUMNS)
    inner = split * depth + tl.arange(0, DEPTH)
    x_at = x + row[:, None] * k + inner[None, :]
    w_at = w + column[:, None] * k + inner[None, :]
    present = row[:, None] < m
    if WEIGHTS_FIRST:
        total = tl.zeros((COLUMNS, ROWS), SUM)
    else:
        total = tl.zeros((ROWS, COLUMNS), SUM)
    for _ in range(0, depth, DEPTH):
        weights = tl.load(w_at, eviction_policy="evict_first")
        values = tl.load(x_at, mask=present, other=0.0)
        if WEIGHTS_FIRST:
            total = tl.dot(weights, tl.trans(values), total, out_dtype=SUM)
        else:
            total = tl.dot(values, tl.trans(weights), total, out_dtype=SUM)
        w_at += DEPTH
        x_at += DEPTH
    if WEIGHTS_FIRST:
        result = tl.trans(total).to(tl.float32)
    else:
        result = total.to(tl.float32)

    if SPLITS > 1:
        # Each split stores its sums; the last one to arrive adds them up, in the order of the
        # splits.
        place = row[:, None] * n + column[None, :]
        tl.store(partial + split * ROWS * n + place, result)
        tl.debug_barrier()
        last = tl.atomic_add(arrived + tile, 1, sem="acq_rel") == SPLITS - 1
        if last:
            result = tl.zeros((ROWS, COLUMNS), tl.float32)
            for number in range(SPLITS):
                result += tl.load(partial + number * ROWS * n + place, cache_modifier=".cg")
            tl.store(arrived + tile, 0)
            if SCALED:
                result *= tl.load(x_scale + row * X_STEP, mask=row < m, other=0.0)[:, None]
                result *= tl.load(w_scale + column * W_STEP)[None, :]
            tl.store(y + place, result.to(y.dtype.element_ty), mask=present)
    else:
        if SCALED:
            result *= tl.load(x_scale + row * X_STEP, mask=row < m, other=0.0)[:, None]
            result *= tl.load(w_scale + column * W_STEP)[None, :]
        tl.store(
            y + row[:, None] * n + column[None, :], result.to(y.dtype.element_ty), mask=present
        )


def rms_norm(x: Any, weight: Any, eps: float, y: Any, *, rows: int = 2, warps: int = 16) -> Any:
    """RMSNorm of each row of x (rows, cols), times weight (cols,), into y; rows: of one program."""
    count, cols = x.shape
    block = triton.next_power_of_2(cols)
    _rms_norm[(triton.cdiv(count, rows),)](
        x, weight, y, count, cols, eps, ROWS=rows, BLOCK=block, num_warps=warps
    )
    return y


def rotary(x: Any, cos: Any, sin: Any, y: Any, *, rows: int = 16, warps: int = 4) -> Any:
    """Rotary embedding of x (tokens, heads, head_dim), its halves rotated, into y.

    cos, sin: float32 (tokens, head_dim / 2).  rows: heads of one program.
    """
    tokens, heads, width = x.shape
    grid = (triton.cdiv(tokens * heads, rows),)
    _rotary[grid](
        x, cos, sin, y, tokens * heads, heads, HALF=width // 2, ROWS=rows, num_warps=warps
    )
    return y


def swiglu(x: Any, y: Any, *, block: int = 2048, warps: int = 8) -> Any:
    """silu(gate) · up into y (tokens, width).  x: (tokens, 2 · width), gate beside up."""
    tokens, width = y.shape
    _swiglu[(tokens, triton.cdiv(width, block))](x, y, width, BLOCK=block, num_warps=warps)
    return y


def softmax(x: Any, y: Any, *, warps: int = 16) -> Any:
    """Softmax of each row of x (rows, cols) into y. A row must fit into the registers of one
    program."""
    rows, cols = x.shape
    _softmax[(rows,)](x, y, cols, BLOCK=triton.next_power_of_2(cols), num_warps=warps)
    return y


class CrossEntropy:
    """The loss of each row of logits (rows, cols), which are read once, in float32.  target: int64,
    (rows,).

    splits: programs per row, a power of two; the last one to finish adds up the others' sums; 0:
    few for many rows, many for few.  deep, lanes: how many numbers a program reads at a time.
    """

    def __init__(
        self, logits: Any, target: Any, *, splits: int = 0, deep: int = 4, lanes: int = 1024
    ) -> None:
        rows, cols = logits.shape
        splits = splits or (2 if rows >= 1024 else 8)
        self.loss = torch.empty(rows, dtype=torch.float32, device=logits.device)
        partial = torch.empty(rows * splits * 2, dtype=torch.float32, device=logits.device)
        arrived = torch.zeros(rows, dtype=torch.int32, device=logits.device)
        self._grid = (rows, splits)
        # so that all accesses are of 16 B: each split begins on a multiple of 64 numbers
        width = triton.cdiv(triton.cdiv(cols, splits), 64) * 64
        self._arguments = (logits, target, self.loss, partial, arrived, cols, width)
        self._options = {"SPLITS": splits, "DEEP": deep, "LANES": lanes, "num_warps": 4}

    def __call__(self) -> Any:
        """Compute the loss again and return it."""
        _cross_entropy[self._grid](*self._arguments, **self._options)
        return self.loss


def quantize_rows(x: Any, dtype: torch.dtype, y: Any = None, scales: Any = None) -> tuple[Any, Any]:
    """x (rows, cols) as int8 or float8_e4m3fn with one float32 scale per row, (rows, 1): the
    largest fills the range.

    y, scales: where to write them; new tensors if left out.
    """
    rows, cols = x.shape
    y = torch.empty(x.shape, dtype=dtype, device=x.device) if y is None else y
    scales = (
        torch.empty(rows, 1, dtype=torch.float32, device=x.device) if scales is None else scales
    )
    integer = dtype == torch.int8
    limit = 127.0 if integer else torch.finfo(dtype).max
    block = triton.next_power_of_2(cols)
    _quantize_rows[(rows,)](
        x, y, scales, cols, LIMIT=limit, ROUND=integer, BLOCK=block, num_warps=8
    )
    return y, scales


@dataclass(frozen=True)
class Tiling:
    """The tiling of the weights in `StreamedProduct`: columns and depth of a tile, and the number
    of splits of the depth.

    weights_first: whether the weights are the tensor cores' first operand, which needs at least 64
    rows on Hopper.
    """

    columns: int
    depth: int
    splits: int
    stages: int = 4
    warps: int = 4
    weights_first: bool = True

    def fits(self, n: int, k: int) -> bool:
        """Whether n × k is a multiple of the tile."""
        return n % self.columns == 0 and k % (self.depth * self.splits) == 0


class StreamedProduct:
    """The product of few rows with a large weight, which is read once from memory: y = x wᵀ,
    scaled.

    x: (m, k), m ≤ 16.  w: (n, k), the same dtype: bfloat16, float8_e4m3fn or int8.  x_scale,
    w_scale: float32, of one element or of one per row of x and w; None for bfloat16.  y is
    bfloat16, (m, n).  The depth is split so that there are enough programs to keep the memory busy;
    the last split of a tile to arrive adds up the others' sums, always in the same order.  Raises
    NotImplementedError for a tiling that does not fit, for more rows, and for a weight of more than
    LARGEST numbers.
    """

    ROWS = 16

    def __init__(self, x: Any, w: Any, x_scale: Any, w_scale: Any, tiling: Tiling) -> None:
        (m, k), n = x.shape, w.shape[0]
        if m > self.ROWS or not tiling.fits(n, k):
            raise NotImplementedError(f"{tiling} does not fit {m} × {n} × {k}")
        if w.numel() > LARGEST:
            raise NotImplementedError(
                f"{n} × {k} is more than {LARGEST} numbers, whose places are int32"
            )
        self.y = torch.empty(m, n, dtype=torch.bfloat16, device=x.device)
        size = tiling.splits * self.ROWS * n if tiling.splits > 1 else 1
        partial = torch.empty(size, dtype=torch.float32, device=x.device)
        arrived = torch.zeros(n // tiling.columns, dtype=torch.int32, device=x.device)
        scaled = x_scale is not None
        scales = (x_scale, w_scale) if scaled else (partial, partial)
        self._grid = (n // tiling.columns, tiling.splits)
        self._arguments = (x, w, self.y, *scales, partial, arrived, m, n, k, k // tiling.splits)
        self._options = {
            "X_STEP": int(scaled and x_scale.numel() > 1),
            "W_STEP": int(scaled and w_scale.numel() > 1),
            "SCALED": scaled,
            "SPLITS": tiling.splits,
            "WEIGHTS_FIRST": tiling.weights_first,
            "ROWS": self.ROWS,
            "COLUMNS": tiling.columns,
            "DEPTH": tiling.depth,
            "SUM": tl.int32 if x.dtype == torch.int8 else tl.float32,
            "num_warps": tiling.warps,
            "num_stages": tiling.stages,
        }

    def __call__(self) -> Any:
        """Compute y again and return it."""
        _stream_weights[self._grid](*self._arguments, **self._options)
        return self.y
