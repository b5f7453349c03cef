"""The head's product with the exponentials of its results, which are not written before: by Triton,
from compute capability 9. Imports torch and triton: imported on use only.

A program computes one tile after another; matrices are read and written by the tensor memory
accelerator.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

#: A program computes ROWS × COLUMNS of the result at a time, from INNER numbers of each row at a
#: time; GROUP rows of tiles are computed together, so that their factors stay in the cache. The
#: fastest of nine tilings on an H200.
ROWS, COLUMNS, INNER, GROUP, STAGES, WARPS = 128, 256, 64, 32, 3, 8


@triton.jit  # type: ignore[untyped-decorator]
def _exponentials(  # type: ignore[no-untyped-def]
    x,
    weight,
    found,
    targets,
    target_logits,
    sums,
    tokens,
    VOCABULARY: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    INNER: tl.constexpr,
    GROUP: tl.constexpr,
    STAGES: tl.constexpr,
    PROGRAMS: tl.constexpr,
    FACTORS: tl.constexpr,
):
    """sums: of the rows of each tile, (tiles across, tokens).  FACTORS: dtype of factors."""
    tiles_down = tl.cdiv(tokens, ROWS)
    TILES_ACROSS: tl.constexpr = (VOCABULARY + COLUMNS - 1) // COLUMNS
    for tile in tl.range(tl.program_id(0), tiles_down * TILES_ACROSS, PROGRAMS, flatten=True):
        first = tile // (GROUP * TILES_ACROSS) * GROUP
        height = min(tiles_down - first, GROUP)
        place = tile % (GROUP * TILES_ACROSS)
        row = (first + place % height) * ROWS
        across = place // height
        column = across * COLUMNS
        logits = tl.zeros([ROWS, COLUMNS], tl.float32)
        for start in tl.range(0, WIDTH, INNER, num_stages=STAGES):
            left = x.load([row, start]).to(FACTORS)
            right = weight.load([column, start]).to(FACTORS)
            logits = tl.dot(left, right.T, logits)

        token = row + tl.arange(0, ROWS)
        inside = token < tokens
        target = tl.load(targets + token, mask=inside, other=0).to(tl.int32)
        word = column + tl.arange(0, COLUMNS)
        counts = (word < VOCABULARY)[None, :] & (word[None, :] != target[:, None])
        logits -= tl.load(target_logits + token, mask=inside, other=0.0)[:, None]
        numbers = tl.where(counts, tl.exp(logits), 0.0)
        tl.store(sums + across * tokens + token, tl.sum(numbers, 1), mask=inside)
        # one half after the other: a whole tile does not fit beside the factors
        numbers = tl.permute(tl.reshape(numbers, [ROWS, 2, COLUMNS // 2]), [0, 2, 1])
        before, behind = tl.split(numbers)
        found.store([row, column], before.to(tl.bfloat16))
        found.store([row, column + COLUMNS // 2], behind.to(tl.bfloat16))


def exponentials(x: Any, weight: Any, targets: Any, logits: Any) -> tuple[Any, Any]:
    """See `gpt.exponentials`.  x, weight: bfloat16, by rows, whose lengths are multiples of 8."""
    if not all(each.is_contiguous() and each.dtype == torch.bfloat16 for each in (x, weight)):
        raise ValueError("all matrices must be bfloat16, by rows")
    if x.shape[1] % 8 or len(weight) % 8:
        raise ValueError(f"width {x.shape[1]} and vocabulary {len(weight)} must be multiples of 8")
    tokens, vocabulary = len(x), len(weight)
    tiles_across = triton.cdiv(vocabulary, COLUMNS)
    tiles = triton.cdiv(tokens, ROWS) * tiles_across
    found = x.new_empty(tokens, vocabulary)
    sums = torch.empty(tiles_across, tokens, device=x.device)
    if x.device.type == "cpu":  # Triton's interpreter, which does not multiply bfloat16
        programs, factors = 2, tl.float32
    else:
        card = torch.cuda.get_device_properties(x.device)
        programs, factors = min(card.multi_processor_count, tiles), tl.bfloat16
    _exponentials[(programs,)](
        TensorDescriptor.from_tensor(x, [ROWS, INNER]),
        TensorDescriptor.from_tensor(weight, [COLUMNS, INNER]),
        TensorDescriptor.from_tensor(found, [ROWS, COLUMNS // 2]),
        targets,
        logits.contiguous(),
        sums,
        tokens,
        vocabulary,
        x.shape[1],
        ROWS,
        COLUMNS,
        INNER,
        GROUP,
        STAGES,
        programs,
        factors,
        num_warps=WARPS,
    )
    return found, sums.sum(0)[:, None]
