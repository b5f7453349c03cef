"""The kernels of a decode step of one sequence, each as a function over tensors. Imports torch and
triton: imported on use only.

A kernel loads its matrix, or the cache of earlier tokens, before it waits for the previous one to
end (programmatic dependent launch, from compute capability 9). So the memory stays busy while one
kernel ends and the next one begins. Tensors are contiguous; sums are in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import e, log2
from typing import Any

import torch
import triton
import triton.language as tl

from hpml_plugins.plugins.language_models.dependent_launch import launch_options
from hpml_plugins.plugins.language_models.llama import EPSILON


@triton.jit  # type: ignore[untyped-decorator]
def placed(row, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """The place of a row if, for BLOCK > 0, it is in every second block of that many rows."""
    if BLOCK > 0:
        row = row // BLOCK * (2 * BLOCK) + row % BLOCK
    return row


@triton.jit  # type: ignore[untyped-decorator]
def _tile(matrix, row, column, rows, WIDTH: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    inside = (row < rows)[:, None] & (column < WIDTH)[None, :]
    there = matrix + placed(row, BLOCK)[:, None] * WIDTH + column[None, :]
    return tl.load(there, mask=inside, other=0.0)


@triton.jit
def floats(x, number, inside):  # type: ignore[no-untyped-def]
    return tl.load(x + number, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def rounded(numbers):  # type: ignore[no-untyped-def]
    return numbers.to(tl.bfloat16).to(tl.float32)


@triton.jit  # type: ignore[untyped-decorator]
def _scaled(sums, scales, row, rows, BLOCK: tl.constexpr, SCALED: tl.constexpr):  # type: ignore[no-untyped-def]
    """The sums over columns, times the scale of each row."""
    result = tl.sum(sums, 1)
    if SCALED:
        result *= floats(scales, placed(row, BLOCK), row < rows)
    return result


@triton.jit  # type: ignore[untyped-decorator]
def exactly(numbers, COMPILED: tl.constexpr):  # type: ignore[no-untyped-def]
    """bfloat16, fp8 or int8 as float32.

    int8, four at once, which is faster than the instruction for one: 128 is added, the bytes become
    the low ones of float16 numbers from 1024 on, and 1152 is subtracted. The interpreter knows no
    assembly.
    """
    if COMPILED and numbers.dtype == tl.int8:
        numbers = tl.inline_asm_elementwise(
            """
            {
            .reg .b32 biased, first, second, bias;
            mov.b32 bias, 0xE480E480;
            xor.b32 biased, $2, 0x80808080;
            prmt.b32 first, biased, 0x64646464, 0x4140;
            prmt.b32 second, biased, 0x64646464, 0x4342;
            add.rn.f16x2 $0, first, bias;
            add.rn.f16x2 $1, second, bias;
            }
            """,
            "=r,=r,r",
            [numbers],
            dtype=tl.float16,
            is_pure=True,
            pack=4,
        )
    return numbers.to(tl.float32)


@triton.jit  # type: ignore[untyped-decorator]
def factors(numbers, COMPILED: tl.constexpr):  # type: ignore[no-untyped-def]
    """bfloat16 or float32 as factors of a product on tensor cores; the interpreter would multiply
    the bits of bfloat16."""
    return numbers.to(tl.bfloat16 if COMPILED else tl.float32)


@triton.jit  # type: ignore[untyped-decorator]
def _multiplied(  # type: ignore[no-untyped-def]
    tile,
    numbers,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    PACK: tl.constexpr,
    COMPILED: tl.constexpr,
):
    """The products of a tile and its columns' numbers, summed over each PACK columns:
    (ROWS, COLUMNS // PACK)."""
    result = exactly(tile, COMPILED) * numbers[None, :]
    if PACK > 1:
        result = tl.sum(tl.reshape(result, [ROWS, COLUMNS // PACK, PACK]), 2)
    return result


@triton.jit  # type: ignore[untyped-decorator]
def _norm_factor(x, column, eps, WIDTH: tl.constexpr, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    squares = tl.zeros([COLUMNS], tl.float32)
    for start in tl.static_range(0, WIDTH, COLUMNS):
        numbers = floats(x, start + column, start + column < WIDTH)
        squares += numbers * numbers
    return tl.rsqrt(tl.sum(squares) / WIDTH + eps)


@triton.jit  # type: ignore[untyped-decorator]
def _product(  # type: ignore[no-untyped-def]
    x,
    matrix,
    scales,
    norm,
    added,
    y,
    rows,
    eps,
    WIDTH: tl.constexpr,
    SCALED: tl.constexpr,
    GATED: tl.constexpr,
    NORMED: tl.constexpr,
    ADDED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    PACK: tl.constexpr,
    COMPILED: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    """ROWS of y at a time, as sums over tiles of COLUMNS columns. The next tile is loaded while
    this one is multiplied, the first one before the previous kernel has ended."""
    if DEPENDENT:
        tl.extra.cuda.gdc_launch_dependents()
    column = tl.arange(0, COLUMNS)
    first = tl.program_id(0) * ROWS
    stride = tl.num_programs(0) * ROWS
    row = first + tl.arange(0, ROWS)
    multiplied = matrix + GATED * WIDTH  # by the gate: its first block follows the gate's
    tile = _tile(matrix, row, column, rows, WIDTH, GATED)
    if GATED > 0:
        gated = _tile(multiplied, row, column, rows, WIDTH, GATED)
    if DEPENDENT:
        tl.extra.cuda.gdc_wait()

    factor = 1.0
    if NORMED:
        factor = _norm_factor(x, column, eps, WIDTH, COLUMNS)
    for begin in range(first, rows, stride):
        row = begin + tl.arange(0, ROWS)
        sums = tl.zeros([ROWS, COLUMNS // PACK], tl.float32)
        gated_sums = tl.zeros([ROWS, COLUMNS // PACK], tl.float32)
        for start in tl.static_range(0, WIDTH, COLUMNS):
            inside = start + column < WIDTH
            numbers = floats(x, start + column, inside)
            if NORMED:
                scale = floats(norm, start + column, inside)
                numbers = rounded(numbers * factor * scale)
            next_row = row
            next_column = start + COLUMNS + column
            if start + COLUMNS >= WIDTH:
                next_row = row + stride
                next_column = column
            next_tile = _tile(matrix, next_row, next_column, rows, WIDTH, GATED)
            sums += _multiplied(tile, numbers, ROWS, COLUMNS, PACK, COMPILED)
            tile = next_tile
            if GATED > 0:
                next_gated = _tile(multiplied, next_row, next_column, rows, WIDTH, GATED)
                gated_sums += _multiplied(gated, numbers, ROWS, COLUMNS, PACK, COMPILED)
                gated = next_gated
        result = _scaled(sums, scales, row, rows, GATED, SCALED)
        if GATED > 0:
            gate = rounded(result)
            others = _scaled(gated_sums, scales + GATED, row, rows, GATED, SCALED)
            result = rounded(gate * tl.sigmoid(gate)) * rounded(others)
        if ADDED:
            result += floats(added, row, row < rows)
        tl.store(y + row, result.to(tl.bfloat16), mask=row < rows)


@triton.jit  # type: ignore[untyped-decorator]
def _rotated(heads, row, number, inside, cos, sin, D: tl.constexpr):  # type: ignore[no-untyped-def]
    """llama.rotate: halves swapped, the sine has the sign of the first half."""
    numbers = floats(heads, row * D + number, inside)
    swapped = floats(heads, row * D + (number + D // 2) % D, inside)
    return (numbers * cos + swapped * sin).to(tl.bfloat16)


@triton.jit  # type: ignore[untyped-decorator]
def new_token(own, cos, sin, GROUP: tl.constexpr, QUERIES: tl.constexpr, D: tl.constexpr):  # type: ignore[no-untyped-def]
    """Rotated queries (QUERIES, D) of a head of keys, zero after GROUP of them, its rotated key and
    its value, (D,).  own: its part of a sequence's products.  cos, sin: (D,), float32."""
    query = tl.arange(0, QUERIES)[:, None]
    number = tl.arange(0, D)
    queries = _rotated(own, query, number[None, :], query < GROUP, cos[None, :], sin[None, :], D)
    key = _rotated(own, GROUP, number, number < D, cos, sin, D)
    value = tl.load(own + (GROUP + 1) * D + number)
    return queries, key, value


@triton.jit  # type: ignore[untyped-decorator]
def _attend(  # type: ignore[no-untyped-def]
    qkv,
    keys,
    values,
    positions,
    cos,
    sin,
    parts,
    counts,
    mixed,
    scale,
    GROUP: tl.constexpr,
    PADDED: tl.constexpr,
    QUERIES: tl.constexpr,
    D: tl.constexpr,
    TOKENS: tl.constexpr,
    CHUNK: tl.constexpr,
    COMPILED: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    """A program has TOKENS of the cache of one head of keys; the last one of a head to end combines
    what all of them have found."""
    if DEPENDENT:
        tl.extra.cuda.gdc_launch_dependents()
    head = tl.program_id(0)
    heads = tl.num_programs(0)
    split = tl.program_id(1)
    splits = tl.num_programs(1)
    number = tl.arange(0, D)
    token = split * TOKENS + tl.arange(0, TOKENS)
    position = tl.load(positions)
    place = (token[:, None] * heads + head) * D + number[None, :]
    earlier = (token < position)[:, None]
    key = tl.load(keys + place, mask=earlier, other=0.0)
    value = tl.load(values + place, mask=earlier, other=0.0)
    cosine = tl.load(cos + number).to(tl.float32)
    sine = tl.load(sin + number).to(tl.float32)
    if DEPENDENT:
        tl.extra.cuda.gdc_wait()

    query = tl.arange(0, QUERIES)
    in_group = query < GROUP
    own = qkv + head * (GROUP + 2) * D
    queries, new_key, new_value = new_token(own, cosine, sine, GROUP, QUERIES, D)
    newest = (token == position)[:, None]
    key = tl.where(newest, new_key[None, :], key)
    value = tl.where(newest, new_value[None, :], value)
    tl.store(keys + place, key, mask=newest)
    tl.store(values + place, value, mask=newest)

    # the scale includes log2(e): powers of 2 are faster than those of e
    scores = tl.dot(factors(queries, COMPILED), factors(key.trans(), COMPILED)) * scale
    scores = tl.where((token <= position)[None, :], scores, float("-inf"))
    # of a program whose tokens are all later, the largest score is no number that can be subtracted
    largest = tl.maximum(tl.max(scores, 1), -1e30)
    shares = tl.exp2(scores - largest[:, None])
    of_values = factors(shares.to(tl.bfloat16), COMPILED)
    found = tl.dot(of_values, factors(value, COMPILED))
    # (heads, splits, GROUP, D + 2): a mixture of values, the largest score, the sum of the shares
    part = parts + ((head * splits + split) * GROUP + query) * (D + 2)
    tl.store(part[:, None] + number[None, :], found, mask=in_group[:, None])
    tl.store(part + D, largest, mask=in_group)
    tl.store(part + D + 1, tl.sum(shares, 1), mask=in_group)

    tl.debug_barrier()  # all threads have stored their part before one of them counts it
    ended = tl.atomic_add(counts + head, 1, sem="acq_rel") % splits
    if ended == splits - 1:
        one = tl.arange(0, PADDED)
        top = tl.full([PADDED], -1e30, tl.float32)
        total = tl.zeros([PADDED], tl.float32)
        mixture = tl.zeros([PADDED, D], tl.float32)
        for start in range(0, splits, CHUNK):
            each = start + tl.arange(0, CHUNK)[:, None]
            known = (each < splits) & (one < GROUP)[None, :]
            there = parts + ((head * splits + each) * GROUP + one[None, :]) * (D + 2)
            # .cg: other multiprocessors wrote this; the first-level cache may have what was before
            mixtures = tl.load(
                there[:, :, None] + number[None, None, :],
                mask=known[:, :, None],
                other=0.0,
                cache_modifier=".cg",
            )
            tops = tl.load(there + D, mask=known, other=-1e30, cache_modifier=".cg")
            sums = tl.load(there + D + 1, mask=known, other=0.0, cache_modifier=".cg")
            new_top = tl.maximum(top, tl.max(tops, 0))
            correction = tl.exp2(top - new_top)
            weights = tl.exp2(tops - new_top[None, :])
            total = total * correction + tl.sum(sums * weights, 0)
            of_chunk = tl.sum(mixtures * weights[:, :, None], 0)
            mixture = mixture * correction[:, None] + of_chunk
            top = new_top
        result = mixture / tl.maximum(total, 1e-30)[:, None]
        there = mixed + (head * GROUP + one)[:, None] * D + number[None, :]
        tl.store(there, result.to(tl.bfloat16), mask=(one < GROUP)[:, None])


@dataclass(frozen=True)
class Matrix:
    """numbers: (outputs, width), bfloat16, int8 or fp8.  scales: of the outputs, (outputs,),
    bfloat16; None without."""

    numbers: Any
    scales: Any = None


@dataclass(frozen=True)
class Tiling:
    """rows, columns: of a tile.  warps: of a program.  programs: on each multiprocessor, at most;
    they share the tiles."""

    rows: int
    columns: int
    warps: int
    programs: int


#: The fastest of those tried in bfloat16 on an H100 and an H200, of one GPU and of two. WIDE: for
#: rows of more than NARROW numbers. FEW: for fewer rows than MANY. BYTE: for int8 and fp8, tried on
#: an H200.
NARROW, MANY = 4096, 8192
NARROW_TILES, WIDE_TILES = Tiling(8, 2048, 8, 2), Tiling(2, 2048, 4, 4)
GATED_TILES, FEW_GATED_TILES = Tiling(4, 1024, 4, 6), Tiling(4, 2048, 8, 2)
WIDE_BYTE_TILES, GATED_BYTE_TILES = Tiling(4, 2048, 4, 6), Tiling(8, 512, 4, 6)
#: Columns of int8 or fp8 that a thread adds up at once, as many as it loads.
PACK = 16
#: Tokens of the cache that a program of the attention has, and its warps.
TOKENS, ATTENTION_WARPS = 64, 4
#: Parts of the cache that are combined at once, at most.
CHUNK = 32
#: The least rows of a factor of a product on tensor cores.
LEAST_ROWS = 16


@cache
def multiprocessors(device: torch.device) -> int:
    """Of a GPU; 1 for Triton's interpreter."""
    if device.type != "cuda":
        return 1
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def tiling_of(rows: int, width: int, *, gated: bool, of_bytes: bool) -> Tiling:
    """rows: of the result.  width: numbers of a row of the matrix.  of_bytes: int8 or fp8."""
    if gated and of_bytes:
        return GATED_BYTE_TILES
    if gated:
        return GATED_TILES if rows >= MANY else FEW_GATED_TILES
    if width <= NARROW:
        return NARROW_TILES
    return WIDE_BYTE_TILES if of_bytes else WIDE_TILES


def product(x: Any, matrix: Matrix, *, norm: Any = None, added: Any = None, gated: int = 0) -> Any:
    """The product of a matrix and one token's numbers, (1, 1, outputs), bfloat16.

    x: (1, 1, width), bfloat16.  gated: if not 0, the matrix has 2 · outputs rows: blocks of `gated`
    rows of a gate alternate with those that it multiplies, as silu(gate) · gated.  norm: (width,),
    the weight of an RMS norm of x before the product.  added: (1, 1, outputs), to the product.
    """
    rows, width = matrix.numbers.shape
    rows = rows // 2 if gated else rows
    of_bytes = matrix.numbers.itemsize == 1
    tiling = tiling_of(rows, width, gated=gated > 0, of_bytes=of_bytes)
    columns = min(tiling.columns, triton.next_power_of_2(width))
    most = tiling.programs * multiprocessors(x.device)
    dependent, options = launch_options(x.device)
    y = x.new_empty(1, 1, rows)
    _product[(min(triton.cdiv(rows, tiling.rows), most),)](
        x,
        matrix.numbers,
        *(x if each is None else each for each in (matrix.scales, norm, added)),
        y,
        rows,
        EPSILON,
        WIDTH=width,
        SCALED=matrix.scales is not None,
        GATED=gated,
        NORMED=norm is not None,
        ADDED=added is not None,
        ROWS=tiling.rows,
        COLUMNS=columns,
        PACK=PACK if of_bytes else 1,
        COMPILED=x.is_cuda,
        DEPENDENT=dependent,
        num_warps=tiling.warps,
        **options,
    )
    return y


class Attention:
    """Attention of one token over a layer's cache, with rotary embedding.

    One object for all layers of a decoder: it has the memory in which programs combine what they
    find.

    keys: (1, context, heads, head_dim), of one layer.  group: heads of queries for each head of
    keys.
    """

    def __init__(self, keys: Any, group: int) -> None:
        _, context, self.heads, self.head_dim = keys.shape
        self.group, self.splits = group, triton.cdiv(context, TOKENS)
        numbers = self.heads * self.splits * group * (self.head_dim + 2)
        self.parts = torch.empty(numbers, dtype=torch.float32, device=keys.device)
        self.counts = torch.zeros(self.heads, dtype=torch.int32, device=keys.device)

    def __call__(self, qkv: Any, keys: Any, values: Any, place: Any) -> Any:
        """The attention output, (1, 1, heads · group · head_dim); writes the key and the value into
        the cache. All in bfloat16.

        qkv: (1, 1, heads · (group + 2) · head_dim), in the order of llama.Block.  place: a
        llama.Place without a mask: the token sees the cache up to itself.
        """
        dependent, options = launch_options(qkv.device)
        mixed = qkv.new_empty(1, 1, self.heads * self.group * self.head_dim)
        _attend[(self.heads, self.splits)](
            qkv,
            keys,
            values,
            place.positions,
            place.cos,
            place.sin,
            self.parts,
            self.counts,
            mixed,
            log2(e) / self.head_dim**0.5,
            GROUP=self.group,
            PADDED=triton.next_power_of_2(self.group),
            QUERIES=max(LEAST_ROWS, triton.next_power_of_2(self.group)),
            D=self.head_dim,
            TOKENS=TOKENS,
            CHUNK=min(CHUNK, triton.next_power_of_2(self.splits)),
            COMPILED=qkv.is_cuda,
            DEPENDENT=dependent,
            num_warps=ATTENTION_WARPS,
            **options,
        )
        return mixed
