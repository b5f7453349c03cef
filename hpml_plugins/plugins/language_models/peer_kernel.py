"""The kernel by which ranks of one node add up in each other's GPU memory. Imports torch and
triton: imported on use only."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from hpml_plugins.plugins.language_models.dependent_launch import launch_options

#: Of a thread block, which has one row.
WARPS = 8


@triton.jit
def _unpacked(pairs):  # type: ignore[no-untyped-def]
    """Two float32 of two bfloat16 in an int32."""
    first = (pairs << 16).to(tl.float32, bitcast=True)
    second = (pairs & -65536).to(tl.float32, bitcast=True)
    return first, second


@triton.jit
def _packed(first, second):  # type: ignore[no-untyped-def]
    """Two bfloat16, rounded, in an int32."""
    low = first.to(tl.bfloat16).to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF
    high = second.to(tl.bfloat16).to(tl.int16, bitcast=True).to(tl.int32)
    return (high << 16) | low


@triton.jit  # type: ignore[untyped-decorator]
def _sum_and_norm(  # type: ignore[no-untyped-def]
    partial,
    x,
    weight,
    sums,
    normed,
    buffer,
    buffers,
    half,
    eps,
    OWN: tl.constexpr,
    RANKS: tl.constexpr,
    PAIRS: tl.constexpr,
    DEPENDENT: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    rows = tl.num_programs(0)
    pair = tl.arange(0, PAIRS)
    inside = pair < half
    place = row * half + pair
    scale, second_scale = _unpacked(tl.load(weight + pair, mask=inside, other=0))
    if DEPENDENT:
        # This kernel started while the previous one ran, and so does the next one now.
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()

    # A word is two numbers and the number of the call: who reads it sees whether it has come.
    slot = rows * half
    count = buffer + 2 * RANKS * slot + row
    call = tl.load(count) + 1
    numbers = tl.load(partial + place, mask=inside, other=0)
    word = (call << 32) | (numbers.to(tl.int64) & 0xFFFFFFFF)
    in_slot = (call & 1) * RANKS * slot + place
    for peer in tl.static_range(RANKS):
        if peer != OWN:
            # symmetric memory starts at a page
            there = tl.load(buffers + peer).to(tl.pointer_type(tl.int64))
            there = tl.multiple_of(there, 16) + OWN * slot + in_slot
            tl.store(there, word, mask=inside, cache_modifier=".wt")

    first, second = _unpacked(tl.load(x + place, mask=inside, other=0))
    for peer in tl.static_range(RANKS):
        if peer != OWN:
            from_peer = buffer + peer * slot + in_slot
            got = tl.load(from_peer, mask=inside, other=0, volatile=True)
            missing = tl.sum((inside & (got >> 32 != call)).to(tl.int32))
            while missing > 0:
                got = tl.load(from_peer, mask=inside, other=0, volatile=True)
                missing = tl.sum((inside & (got >> 32 != call)).to(tl.int32))
            numbers_of_peer = got.to(tl.int32)
        else:
            numbers_of_peer = numbers
        more, second_more = _unpacked(numbers_of_peer)
        first += more
        second += second_more

    rounded = _packed(first, second)
    tl.store(sums + place, rounded, mask=inside)
    first, second = _unpacked(rounded)
    factor = tl.rsqrt(tl.sum(first * first + second * second) / (2 * half) + eps)
    norms = _packed(first * factor * scale, second * factor * second_scale)
    tl.store(normed + place, norms, mask=inside)
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
    buffer: torch.Tensor,
    buffers: torch.Tensor,
    own: int,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """x plus the sum of `partial` over the ranks, and that divided by the root of its mean square
    and multiplied by `weight`.

    One kernel: each rank writes its part into the others' memory and waits for theirs in its own.
    All ranks must call it in the same order. Nothing tells a rank that another one has failed: the
    time limit of the point ends it.

    partial, x: (…, width), contiguous, bfloat16.  weight: (width,).  buffer: this rank's,
    `buffer_size` words of int64; the operation writes it without saying so, because the compiler
    would copy it first.  buffers: the addresses of all ranks' buffers, (ranks,), int64, on this
    GPU.  own: this rank.
    """
    sums, normed = torch.empty_like(x), torch.empty_like(x)
    half = x.shape[-1] // 2
    dependent, options = launch_options(x.device)
    _sum_and_norm[(x.numel() // 2 // half,)](
        *(each.view(torch.int32) for each in (partial, x, weight, sums, normed)),
        buffer,
        buffers,
        half,
        eps,
        OWN=own,
        RANKS=len(buffers),
        PAIRS=triton.next_power_of_2(half),
        DEPENDENT=dependent,
        num_warps=WARPS,
        **options,
    )
    return sums, normed


@sum_and_norm.register_fake  # type: ignore[untyped-decorator]
def _like_x(
    partial: torch.Tensor, x: torch.Tensor, *_: object
) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(x), torch.empty_like(x)
