"""The CUDA kernels of this plugin. Imports numba.cuda: imported inside `measure` only.

All of them run in numba's simulator too. Their inputs are whole numbers, so that their results can
be checked exactly. Indices are unsigned: numba tests a signed index for being negative.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, cuda, types
from numba.core.errors import NumbaPerformanceWarning
from numba.cuda.extending import intrinsic

#: Threads of a block of `read_cyclic`, and words that each of them reads in one step of its loop.
READ_THREADS, READS = 256, 8
#: Words of 4 B that each of SHARED_THREADS threads of a block reads in one pass over shared memory.
SHARED_READS = 8
SHARED_THREADS = 1024
#: Polls after which the mailbox's kernel gives up, so that it ends even if the host has died.
PATIENCE = 1 << 22

# One thread is intended in the latency kernels.
warnings.filterwarnings("ignore", category=NumbaPerformanceWarning)


@intrinsic  # type: ignore[untyped-decorator]
def load_volatile(typing_context: Any, array: Any) -> Any:
    """array[0] of int32, read from memory at each call: numba's own `cuda.ldcv` may be moved out of
    a loop."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, value=arguments[0]).data
        kind = ir.FunctionType(ir.IntType(32), [data.type])
        load = ir.InlineAsm(
            kind, "ld.volatile.global.s32 $0, [$1];", "=r,l,~{memory}", side_effect=True
        )
        return builder.call(load, [data])

    return types.int32(array), generate


@intrinsic  # type: ignore[untyped-decorator]
def store_volatile(typing_context: Any, array: Any, value: Any) -> Any:
    """array[0] = value of int32, written at each call."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, value=arguments[0]).data
        kind = ir.FunctionType(ir.VoidType(), [data.type, ir.IntType(32)])
        store = ir.InlineAsm(
            kind, "st.volatile.global.s32 [$0], $1;", "l,r,~{memory}", side_effect=True
        )
        builder.call(store, [data, arguments[1]])
        return context.get_dummy_value()

    return types.void(array, types.int32), generate


if config.ENABLE_CUDASIM:  # it runs Python, in which every access goes to memory
    load_volatile = lambda array: array[0]  # noqa: E731
    store_volatile = lambda array, value: array.__setitem__(0, value)  # noqa: E731


@cuda.jit(cache=True)  # type: ignore[untyped-decorator]
def read_cyclic(values: Any, mask: Any, steps: Any, sums: Any) -> None:
    """Each block reads `steps` tiles of READS · READ_THREADS consecutive words, starting at the end
    of the previous block.

    Launched with READ_THREADS threads per block.  values: int32, read cyclically; its length is a
    power of two and at least a tile.  mask: that length − 1, uint64.  steps: uint64.  sums: one
    int32 per thread, the sum of the values that it read.
    """
    tile = np.uint64(cuda.blockIdx.x) * steps * np.uint64(2048)
    thread = np.uint64(cuda.threadIdx.x)
    first = np.int32(0)
    second = np.int32(0)
    done = np.uint64(0)
    while done < steps:
        place = (tile & mask) + thread
        first = np.int32(first + values[place] + values[place + np.uint64(256)])
        second = np.int32(second + values[place + np.uint64(512)] + values[place + np.uint64(768)])
        first = np.int32(first + values[place + np.uint64(1024)] + values[place + np.uint64(1280)])
        second = np.int32(
            second + values[place + np.uint64(1536)] + values[place + np.uint64(1792)]
        )
        tile += np.uint64(2048)
        done += np.uint64(1)
    sums[cuda.grid(1)] = np.int32(first + second)


@cuda.jit(cache=True)  # type: ignore[untyped-decorator]
def read_shared(passes: Any, sums: Any) -> None:
    """Each thread reads SHARED_READS words of shared memory per pass, a warp 32 neighbouring ones:
    no bank conflict.

    Launched with SHARED_THREADS threads per block. passes: uint32.  sums: one int32 per thread.
    """
    cells = cuda.shared.array(8192, np.int32)  # SHARED_READS · SHARED_THREADS
    for i in range(cuda.threadIdx.x, 8192, 1024):
        cells[i] = i
    cuda.syncthreads()
    at = np.uint32(cuda.threadIdx.x)
    total = np.int32(0)
    done = np.uint32(0)
    while done < passes:
        total += cells[at] + cells[at + np.uint32(1024)]
        total += cells[at + np.uint32(2048)] + cells[at + np.uint32(3072)]
        total += cells[at + np.uint32(4096)] + cells[at + np.uint32(5120)]
        total += cells[at + np.uint32(6144)] + cells[at + np.uint32(7168)]
        at = (at + np.uint32(1)) & np.uint32(1023)
        done += np.uint32(1)
    sums[cuda.grid(1)] = total


@cuda.jit(cache=True)  # type: ignore[untyped-decorator]
def chase(following: Any, steps: Any, place: Any) -> None:
    """One thread follows `place = following[place]` for `steps` steps; each load depends on the
    previous one.

    following, place: uint32.  place: one element, the start and, afterwards, the end.
    """
    at = place[0]
    done = np.uint32(0)
    while done < steps:
        at = following[at]
        done += np.uint32(1)
    place[0] = at


@cuda.jit(cache=True)  # type: ignore[untyped-decorator]
def count_up(counters: Any, mask: Any, repeats: Any, seen: Any) -> None:
    """Each thread adds 1 to the counter (its index & mask) `repeats` times, and keeps the last
    value that it read.

    counters: int32, of length mask + 1, a power of two.  seen: one int32 per thread; without it the
    compiler may combine the additions of a warp.
    """
    i = cuda.grid(1)
    at = np.uint32(i) & mask
    found = np.int32(0)
    done = np.uint32(0)
    while done < repeats:
        found += cuda.atomic.add(counters, at, np.int32(1))
        done += np.uint32(1)
    seen[i] = found


@cuda.jit(cache=True)  # type: ignore[untyped-decorator]
def answer(post: Any, reply: Any, rounds: Any) -> None:
    """One thread waits for the numbers 1 to `rounds` in post[0] and writes each back to reply[0].

    post, reply: int32 in the host's pinned memory. Gives up after PATIENCE polls of one number.
    """
    number = np.int32(1)
    while number <= rounds:
        polls = np.int32(0)
        while load_volatile(post) != number and polls < PATIENCE:
            polls += np.int32(1)
        if polls == PATIENCE:
            break
        store_volatile(reply, number)
        number += np.int32(1)


@cuda.jit(cache=True)  # type: ignore[untyped-decorator]
def count_launch(counter: Any) -> None:
    """One thread adds 1 to counter[0]: a nearly empty kernel whose launches can be counted."""
    counter[0] += 1


@cuda.jit(cache=True)  # type: ignore[untyped-decorator]
def do_nothing() -> None:
    """A kernel without arguments or work."""
