"""The kernels of a decode step of several sequences, each as a function over tensors. Imports torch
and triton: imported on use only.

A kernel starts while the previous one runs, and waits for its end (programmatic dependent launch,
from compute capability 9). Tensors are contiguous; sums are in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import e, gcd, log2
from typing import Any

import torch
import triton
import triton.language as tl

from hpml_plugins.plugins.language_models.dependent_launch import launch_options
from hpml_plugins.plugins.language_models.llama import EPSILON
from hpml_plugins.plugins.language_models.token_kernels import (
    LEAST_ROWS,
    Matrix,
    exactly,
    factors,
    floats,
    new_token,
    placed,
    rounded,
)


@triton.jit  # type: ignore[untyped-decorator]
def _embed(  # type: ignore[no-untyped-def]
    tokens,
    stride,
    table,
    norm,
    x,
    weighted,
    squares,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """A program has one sequence: the fields of Hidden, of its row of the embedding."""
    sequence = tl.program_id(0)
    column = tl.arange(0, COLUMNS)
    inside = column < WIDTH
    numbers = floats(table, tl.load(tokens + sequence * stride) * WIDTH + column, inside)
    there = sequence * WIDTH + column
    tl.store(x + there, numbers.to(tl.bfloat16), mask=inside)
    result = numbers * floats(norm, column, inside)
    tl.store(weighted + there, result.to(tl.bfloat16), mask=inside)
    tl.store(squares + sequence, tl.sum(numbers * numbers))


@triton.jit  # type: ignore[untyped-decorator]
def _tile(matrix, SCALED: tl.constexpr, COMPILED: tl.constexpr):  # type: ignore[no-untyped-def]
    numbers = tl.load(matrix)
    if SCALED:
        numbers = exactly(numbers, COMPILED)
    return factors(numbers, COMPILED)


@triton.jit  # type: ignore[untyped-decorator]
def _sums(  # type: ignore[no-untyped-def]
    x,
    matrix,
    begin,
    SEQUENCES: tl.constexpr,
    WIDTH: tl.constexpr,
    SHARE: tl.constexpr,
    SCALED: tl.constexpr,
    GATED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STAGES: tl.constexpr,
    COMPILED: tl.constexpr,
):
    """Of ROWS rows over SHARE columns from `begin` on: of the matrix or its gate, and of the rows
    that the gate multiplies.  matrix: the rows' first numbers, (ROWS, 1)."""
    multiplied = matrix + GATED * WIDTH  # the first block of these follows the gate's
    sums = tl.zeros([ROWS, SEQUENCES], tl.float32)
    gated_sums = tl.zeros([ROWS, SEQUENCES], tl.float32)
    for start in tl.range(begin, begin + SHARE, COLUMNS, num_stages=STAGES):
        column = start + tl.arange(0, COLUMNS)
        numbers = tl.load(x + tl.arange(0, SEQUENCES)[None, :] * WIDTH + column[:, None])
        numbers = factors(numbers, COMPILED)
        sums = tl.dot(_tile(matrix + column[None, :], SCALED, COMPILED), numbers, sums)
        if GATED > 0:
            gated = _tile(multiplied + column[None, :], SCALED, COMPILED)
            gated_sums = tl.dot(gated, numbers, gated_sums)
    return sums, gated_sums


@triton.jit  # type: ignore[untyped-decorator]
def _added_up(first, SPLITS: tl.constexpr, ROWS: tl.constexpr, SEQUENCES: tl.constexpr):  # type: ignore[no-untyped-def]
    """The sum of what all programs of a tile have found."""
    sums = tl.zeros([ROWS, SEQUENCES], tl.float32)
    for each in tl.static_range(SPLITS):
        # .cg: other multiprocessors wrote this; the first-level cache may have what was before
        sums += tl.load(first + each * (ROWS * SEQUENCES), cache_modifier=".cg")
    return sums


@triton.jit  # type: ignore[untyped-decorator]
def _scaled(sums, scales, place, factor, SCALED: tl.constexpr):  # type: ignore[no-untyped-def]
    """The sums times the factor of each sequence and the scale of each row."""
    sums *= factor[None, :]
    if SCALED:
        sums *= tl.load(scales + place).to(tl.float32)[:, None]
    return sums


@triton.jit  # type: ignore[untyped-decorator]
def _products(  # type: ignore[no-untyped-def]
    x,
    squares,
    matrix,
    scales,
    added,
    norm,
    y,
    weighted,
    new_squares,
    parts,
    counts,
    rows,
    eps,
    SEQUENCES: tl.constexpr,
    WIDTH: tl.constexpr,
    SQUARES: tl.constexpr,
    PADDED: tl.constexpr,
    SCALED: tl.constexpr,
    GATED: tl.constexpr,
    ADDED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    SPLITS: tl.constexpr,
    STAGES: tl.constexpr,
    COMPILED: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    """A program has ROWS of y and a part of the columns; the last one of those rows to end adds up
    what all parts have found.

    SQUARES: parts of the sums of x². With them, the result is that of the normed x: the norm's
    factor is the same for all numbers of a sequence, so the sums are multiplied by it.
    """
    if DEPENDENT:
        tl.extra.cuda.gdc_launch_dependents()
    tile = tl.program_id(0)
    split = tl.program_id(1)
    row = tile * ROWS + tl.arange(0, ROWS)
    place = placed(row, GATED)
    sequence = tl.arange(0, SEQUENCES)
    SHARE: tl.constexpr = WIDTH // SPLITS
    there = matrix + place[:, None] * WIDTH
    if DEPENDENT:
        tl.extra.cuda.gdc_wait()

    if SQUARES > 0:  # loaded before the loop, which hides the time that this takes
        part = tl.arange(0, PADDED)[:, None]
        own = squares + part * SEQUENCES + sequence[None, :]
        of_parts = tl.load(own, mask=part < SQUARES, other=0.0)
    sums, gated_sums = _sums(
        x,
        there,
        split * SHARE,
        SEQUENCES,
        WIDTH,
        SHARE,
        SCALED,
        GATED,
        ROWS,
        COLUMNS,
        STAGES,
        COMPILED,
    )

    is_last = True
    if SPLITS > 1:
        # (tiles, SPLITS, ROWS, SEQUENCES)
        first = parts + tile * (SPLITS * ROWS * SEQUENCES)
        first += tl.arange(0, ROWS)[:, None] * SEQUENCES + sequence[None, :]
        tl.store(first + split * (ROWS * SEQUENCES), sums)
        tl.debug_barrier()  # all threads have stored their part before one of them counts it
        is_last = tl.atomic_add(counts + tile, 1, sem="acq_rel") == SPLITS - 1
    if is_last:
        if SPLITS > 1:
            tl.store(counts + tile, 0)
            sums = _added_up(first, SPLITS, ROWS, SEQUENCES)
        factor = tl.full([SEQUENCES], 1.0, tl.float32)
        if SQUARES > 0:
            factor = tl.rsqrt(tl.sum(of_parts, 0) / WIDTH + eps)
        result = rounded(_scaled(sums, scales, place, factor, SCALED))
        if GATED > 0:
            gated = rounded(_scaled(gated_sums, scales, GATED + place, factor, SCALED))
            result = rounded(result * tl.sigmoid(result)) * gated
        where = sequence[None, :] * rows + row[:, None]
        if ADDED:
            result = rounded(result + tl.load(added + where).to(tl.float32))
            tl.store(new_squares + tile * SEQUENCES + sequence, tl.sum(result * result, 0))
            by_norm = result * tl.load(norm + row).to(tl.float32)[:, None]
            tl.store(weighted + where, by_norm.to(tl.bfloat16))
        tl.store(y + where, result.to(tl.bfloat16))


@triton.jit  # type: ignore[untyped-decorator]
def _attend(  # type: ignore[no-untyped-def]
    qkv,
    keys,
    values,
    positions,
    cos,
    sin,
    mixed,
    context,
    scale,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    QUERIES: tl.constexpr,
    D: tl.constexpr,
    TOKENS: tl.constexpr,
    STAGES: tl.constexpr,
    COMPILED: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    """A program has one head of keys of one sequence: the new token first, then those of the cache,
    TOKENS at a time."""
    if DEPENDENT:
        tl.extra.cuda.gdc_launch_dependents()
    head = tl.program_id(0)
    sequence = tl.program_id(1)
    number = tl.arange(0, D)
    query = tl.arange(0, QUERIES)
    in_group = query < GROUP
    position = tl.load(positions + sequence)
    cosine = tl.load(cos + sequence * D + number).to(tl.float32)
    sine = tl.load(sin + sequence * D + number).to(tl.float32)
    of_head = (sequence.to(tl.int64) * context * HEADS + head) * D
    keys += of_head
    values += of_head
    if DEPENDENT:
        tl.extra.cuda.gdc_wait()

    own = qkv + (sequence * HEADS + head) * (GROUP + 2) * D
    queries, new_key, new_value = new_token(own, cosine, sine, GROUP, QUERIES, D)
    newest = position * HEADS * D + number
    tl.store(keys + newest, new_key)
    tl.store(values + newest, new_value)

    # the scale includes log2(e): powers of 2 are faster than those of e
    largest = tl.sum(queries.to(tl.float32) * new_key.to(tl.float32)[None, :], 1) * scale
    total = tl.full([QUERIES], 1.0, tl.float32)
    mixture = tl.zeros([QUERIES, D], tl.float32) + new_value.to(tl.float32)[None, :]
    for start in tl.range(0, position, TOKENS, num_stages=STAGES):
        token = start + tl.arange(0, TOKENS)
        earlier = token < position
        there = token[:, None] * (HEADS * D) + number[None, :]
        key = tl.load(keys + there, mask=earlier[:, None], other=0.0)
        value = tl.load(values + there, mask=earlier[:, None], other=0.0)
        scores = tl.dot(factors(queries, COMPILED), factors(key.trans(), COMPILED)) * scale
        scores = tl.where(earlier[None, :], scores, float("-inf"))
        new_largest = tl.maximum(largest, tl.max(scores, 1))
        correction = tl.exp2(largest - new_largest)
        shares = tl.exp2(scores - new_largest[:, None])
        largest = new_largest
        total = total * correction + tl.sum(shares, 1)
        of_values = factors(shares.to(tl.bfloat16), COMPILED)
        mixture *= correction[:, None]
        mixture = tl.dot(of_values, factors(value, COMPILED), mixture)
    there = mixed + ((sequence * HEADS + head) * GROUP + query)[:, None] * D + number[None, :]
    tl.store(there, (mixture / total[:, None]).to(tl.bfloat16), mask=in_group[:, None])


@dataclass(frozen=True)
class Hidden:
    """The numbers of each sequence between two layers, not yet normalised.

    x: (sequences, width), bfloat16.  weighted: the same times the weight of the next norm.
    squares: (parts, sequences), float32: the sums of x² over each part of the width.
    """

    x: Any
    weighted: Any
    squares: Any


#: The fastest of those tried on an H200: rows and columns of a tile of a matrix; the most loads in
#: flight; warps of a program.
ROWS, COLUMNS, STAGES, WARPS = 64, 128, 4, 4
#: With fewer tiles than this, several programs share the columns of a tile; of int8 and fp8, with
#: fewer than twice as many.
LEAST_TILES = 96
#: Of the attention: tokens in a turn of the loop, loads in flight and warps.
TOKENS, ATTENTION_STAGES, ATTENTION_WARPS = 32, 4, 2


def stages(columns: int, rows: int, device: Any) -> int:
    """As many of STAGES as the shared memory of a multiprocessor holds.

    columns, rows: of the tiles that a stage loads, bfloat16; rows of the matrix and sequences
    together.
    """
    if device.type != "cuda":
        return STAGES
    memory = torch.cuda.get_device_properties(device).shared_memory_per_block_optin
    return max(1, min(STAGES, int(memory) // (2 * columns * rows)))


def splits_of(tiles: int, width: int, matrix: Matrix) -> int:
    """How many programs share the columns of a tile: a power of two."""
    least = LEAST_TILES if matrix.scales is None else 2 * LEAST_TILES
    # each program has a multiple of LEAST_ROWS columns
    most = (width & -width) // LEAST_ROWS
    return min(most, int(triton.next_power_of_2(triton.cdiv(least, tiles))))


def embed(tokens: Any, table: Any, norm: Any) -> Hidden:
    """The rows of the embedding.

    tokens: (sequences, 1).  table: (vocabulary, width), bfloat16.  norm: (width,), the weight of
    the next norm.
    """
    sequences, width = len(tokens), table.shape[1]
    x = table.new_empty(sequences, width)
    hidden = Hidden(x, torch.empty_like(x), x.new_empty(1, sequences, dtype=torch.float32))
    _embed[(sequences,)](
        tokens,
        tokens.stride(0),
        table,
        norm,
        hidden.x,
        hidden.weighted,
        hidden.squares,
        WIDTH=width,
        COLUMNS=triton.next_power_of_2(width),
    )
    return hidden


class Products:
    """Products of a matrix and the numbers of each sequence.

    One object for all layers of a decoder: it has the memory in which the programs of a tile are
    counted. x: (sequences, width), bfloat16. Outputs and width are multiples of 32.
    """

    def __init__(self, device: Any) -> None:
        self.counts = torch.zeros(2 * LEAST_TILES, dtype=torch.int32, device=device)

    def __call__(self, x: Any, matrix: Matrix, *, squares: Any = None, gated: int = 0) -> Any:
        """(sequences, outputs), bfloat16.

        squares: those of a Hidden if x is its `weighted`: the products are of the normed numbers.
        gated: as for token_kernels.product.
        """
        y = x.new_empty(len(x), len(matrix.numbers) // (2 if gated else 1))
        self.launch(x, matrix, y, squares=squares, gated=gated)
        return y

    def of_normed(self, hidden: Hidden, matrix: Matrix, *, gated: int = 0) -> Any:
        """The products of a Hidden's normed numbers, (sequences, outputs), bfloat16."""
        return self(hidden.weighted, matrix, squares=hidden.squares, gated=gated)

    def added(self, x: Any, matrix: Matrix, hidden: Hidden, norm: Any) -> Hidden:
        """The sum of `hidden` and the products.  norm: (outputs,), the weight of the next norm."""
        tiles = len(matrix.numbers) // gcd(len(matrix.numbers), ROWS)
        y = torch.empty_like(hidden.x)
        new = Hidden(y, torch.empty_like(y), y.new_empty(tiles, len(y), dtype=torch.float32))
        self.launch(x, matrix, y, added=hidden.x, norm=norm, new=new)
        return new

    def launch(
        self,
        x: Any,
        matrix: Matrix,
        y: Any,
        *,
        squares: Any = None,
        gated: int = 0,
        added: Any = None,
        norm: Any = None,
        new: Hidden | None = None,
    ) -> None:
        """Fill y, and what else is in `new`."""
        (sequences, width), rows = x.shape, y.shape[1]
        tile = gcd(rows, ROWS)
        tiles = rows // tile
        splits = 1 if gated else splits_of(tiles, width, matrix)
        parts = x.new_empty(splits * rows * sequences, dtype=torch.float32) if splits > 1 else x
        of_parts = 0 if squares is None else len(squares)
        columns, blocks = gcd(width // splits, COLUMNS), 2 if gated else 1
        dependent, options = launch_options(x.device)
        _products[(tiles, splits)](
            x,
            x if squares is None else squares,
            matrix.numbers,
            *(x if each is None else each for each in (matrix.scales, added, norm)),
            y,
            *((new.weighted, new.squares) if new else (y, y)),
            parts,
            self.counts,
            rows,
            EPSILON,
            SEQUENCES=sequences,
            WIDTH=width,
            SQUARES=of_parts,
            PADDED=triton.next_power_of_2(of_parts),
            SCALED=matrix.scales is not None,
            GATED=gated,
            ADDED=added is not None,
            ROWS=tile,
            COLUMNS=columns,
            SPLITS=splits,
            STAGES=stages(columns, blocks * tile + sequences, x.device),
            COMPILED=x.is_cuda,
            DEPENDENT=dependent,
            num_warps=WARPS,
            **options,
        )


def attend(qkv: Any, keys: Any, values: Any, place: Any) -> Any:
    """Attention of one token of each sequence over a layer's cache, with rotary embedding:
    (sequences, heads · group · head_dim); writes keys and values into the cache. All in bfloat16.

    qkv: (sequences, heads · (group + 2) · head_dim), in the order of llama.Block.  keys, values:
    (sequences, context, heads, head_dim).  place: a llama.Place of all sequences in their order,
    without a mask: a token sees the cache up to itself.
    """
    sequences, context, heads, head_dim = keys.shape
    group = qkv.shape[1] // (heads * head_dim) - 2
    mixed = qkv.new_empty(sequences, heads * group * head_dim)
    dependent, options = launch_options(qkv.device)
    _attend[(heads, sequences)](
        qkv,
        keys,
        values,
        place.positions,
        place.cos,
        place.sin,
        mixed,
        context,
        log2(e) / head_dim**0.5,
        HEADS=heads,
        GROUP=group,
        QUERIES=max(LEAST_ROWS, triton.next_power_of_2(group)),
        D=head_dim,
        TOKENS=TOKENS,
        STAGES=ATTENTION_STAGES,
        COMPILED=qkv.is_cuda,
        DEPENDENT=dependent,
        num_warps=ATTENTION_WARPS,
        **options,
    )
    return mixed
