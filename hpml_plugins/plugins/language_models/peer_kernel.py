"""The kernel by which ranks of one node add up in each other's GPU memory. Imports torch and
triton: imported on use only."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

#: Of a thread block, which has one row.
WARPS = 8


@triton.jit  # type: ignore[untyped-decorator]
def _sum_and_norm(  # type: ignore[no-untyped-def]
    partial,
    x,
    weight,
    sums,
    normed,
    buffers,
    width,
    eps,
    OWN: tl.constexpr,
    RANKS: tl.constexpr,
    PAIRS: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    rows = tl.num_programs(0)
    pair = tl.arange(0, PAIRS)
    column = 2 * pair[:, None] + tl.arange(0, 2)[None, :]
    inside, pair_inside = column < width, pair < width // 2
    scale = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    if DEPENDENT:
        # This kernel started while the previous one ran, and so does the next one now.
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()

    here = tl.load(buffers + OWN).to(tl.pointer_type(tl.int64))
    slot = rows * (width // 2)
    count = here + 2 * RANKS * slot + row
    call = tl.load(count) + 1

    # A word is two numbers and the number of the call: who reads it sees whether it has come.
    numbers = tl.load(partial + row * width + column, mask=inside, other=0.0)
    first, second = tl.split(numbers.to(tl.int16, bitcast=True).to(tl.int64) & 0xFFFF)
    words = (call << 32) | (second << 16) | first
    place = (call & 1) * RANKS * slot + row * (width // 2) + pair
    for peer in tl.static_range(RANKS):
        if peer != OWN:
            there = tl.load(buffers + peer).to(tl.pointer_type(tl.int64)) + OWN * slot + place
            tl.store(there, words, mask=pair_inside, cache_modifier=".wt")

    total = tl.load(x + row * width + column, mask=inside, other=0.0).to(tl.float32)
    for peer in tl.static_range(RANKS):
        if peer == OWN:
            total += numbers.to(tl.float32)
        else:
            from_peer = here + peer * slot + place
            got = tl.load(from_peer, mask=pair_inside, other=0, volatile=True)
            missing = tl.sum((pair_inside & (got >> 32 != call)).to(tl.int32))
            while missing > 0:
                got = tl.load(from_peer, mask=pair_inside, other=0, volatile=True)
                missing = tl.sum((pair_inside & (got >> 32 != call)).to(tl.int32))
            bits = tl.join(got & 0xFFFF, (got >> 16) & 0xFFFF).to(tl.int16)
            total += bits.to(numbers.dtype, bitcast=True).to(tl.float32)

    rounded = total.to(sums.dtype.element_ty)
    tl.store(sums + row * width + column, rounded, mask=inside)
    rounded = rounded.to(tl.float32)
    factor = tl.rsqrt(tl.sum(rounded * rounded) / width + eps)
    normal = (rounded * factor * scale).to(normed.dtype.element_ty)
    tl.store(normed + row * width + column, normal, mask=inside)
    tl.store(count, call)


def buffer_size(ranks: int, rows: int, width: int) -> int:
    """int64 words of a rank's buffer: two slots of each rank, and how many calls a row has had.

    Two, because a rank may be a call ahead: it sends the call after that only once it has received
    what the others sent in theirs, which they do after they have read the slot that it writes.
    """
    return 2 * ranks * rows * (width // 2) + rows


@torch.library.custom_op("hpml_plugins::sum_and_norm_of_peers", mutates_args=())  # type: ignore[untyped-decorator]
def sum_and_norm(
    partial: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    buffers: torch.Tensor,
    own: int,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """x plus the sum of `partial` over the ranks, and that divided by the root of its mean square
    and multiplied by `weight`.

    One kernel: each rank writes its part into the others' memory and waits for theirs in its own.
    All ranks must call it in the same order. Nothing tells a rank that another one has failed: the
    time limit of the point ends it.

    partial, x: (…, width), contiguous, of 16-bit numbers.  weight: (width,).  buffers: addresses of
    all ranks' buffers, (ranks,), int64, on this GPU; the memory itself is no argument, because the
    compiler would copy what an operation writes.  own: this rank.
    """
    sums, normed = torch.empty_like(x), torch.empty_like(x)
    width = x.shape[-1]
    # dependent launch: from compute capability 9
    dependent = x.is_cuda and torch.cuda.get_device_capability(x.device) >= (9, 0)
    options = {"launch_pdl": True} if dependent else {}
    _sum_and_norm[(x.numel() // width,)](
        partial,
        x,
        weight,
        sums,
        normed,
        buffers,
        width,
        eps,
        OWN=own,
        RANKS=len(buffers),
        PAIRS=triton.next_power_of_2(width // 2),
        DEPENDENT=dependent,
        num_warps=WARPS,
        **options,
    )
    return sums, normed


@sum_and_norm.register_fake  # type: ignore[untyped-decorator]
def _like_x(
    partial: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    buffers: torch.Tensor,
    own: int,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(x), torch.empty_like(x)
