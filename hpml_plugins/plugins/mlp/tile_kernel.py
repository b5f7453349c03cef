"""The tiled product as a kernel. Imports numba.cuda: imported inside `measure` only. Runs in numba's simulator too."""

from __future__ import annotations

from typing import Any

from numba import cuda

from hpml_plugins.plugins.mlp.tiles import ACCESS, WARP_COLUMNS, WARP_ROWS, Kind


def make_kernel(kind: Kind, access: Any, alignment: int | None = ACCESS) -> Any:
    """The uncompiled kernel `multiply(alpha, a, b, beta, c, m, n, k)`: C = alpha · op(A) op(B) + beta · C.

    access: `tile_access.make_access` of this kind.  a, b, c: contiguous vectors that hold the matrices row by row; op
    transposes by the kind's variant.  m, n, k: op(A) is m × k.  Launched with `tile.threads` threads a block over
    (columns, rows) of blocks. While a tile is multiplied the next one is on its way: first into registers, then into
    the other half of shared memory.  alignment: of shared memory, B; None for the simulator, which knows none.
    """
    tile, width, lanes = kind.tile, kind.width, kind.lanes
    rows, columns, depth = tile.rows, tile.columns, tile.depth
    a_pitch, b_pitch, a_line, b_line = kind.a_pitch, kind.b_pitch, kind.a_line, kind.b_line
    a_rows, b_rows = tile.threads // a_line, tile.threads // b_line
    a_turned, b_turned = kind.a_turned, kind.b_turned
    a_stage, b_stage = depth * a_pitch, depth * b_pitch
    warps_across = columns // tile.wide // WARP_COLUMNS
    dtype = kind.dtype
    of_a, of_b = 2 * a_stage, 2 * b_stage
    warp_rows, warp_columns = WARP_ROWS, WARP_COLUMNS
    zeros, multiply_add, write = access.zeros, access.multiply_add, access.write
    fetch_a, fetch_b, put_a, put_b = access.fetch_a, access.fetch_b, access.put_a, access.put_b

    def multiply(alpha: Any, a: Any, b: Any, beta: Any, c: Any, m: Any, n: Any, k: Any) -> None:
        shared_a = cuda.shared.array(of_a, dtype, alignment)
        shared_b = cuda.shared.array(of_b, dtype, alignment)
        thread = cuda.threadIdx.x
        top, left = cuda.blockIdx.y * rows, cuda.blockIdx.x * columns

        # What lies in line is depth where the matrix must be turned, else rows of A or columns of B.
        line, place = thread // a_line, thread % a_line * width
        if a_turned:
            a_row, a_column, a_high, a_long, a_down, a_right = top + line, place, m, k, 0, depth
            a_put = place * a_pitch + line
        else:
            a_row, a_column, a_high, a_long, a_down, a_right = line, top + place, k, m, depth, 0
            a_put = line * a_pitch + place
        line, place = thread // b_line, thread % b_line * width
        if b_turned:
            b_row, b_column, b_high, b_long, b_down, b_right = left + line, place, n, k, 0, depth
            b_put = place * b_pitch + line
        else:
            b_row, b_column, b_high, b_long, b_down, b_right = line, left + place, k, n, depth, 0
            b_put = line * b_pitch + place
        a_step, b_step = a_rows * a_long, b_rows * b_long
        a_at, b_at = a_row * a_long + a_column, b_row * b_long + b_column
        a_move, b_move = a_down * a_long + a_right, b_down * b_long + b_right

        warp, lane = thread // 32, thread % 32
        a_read = (warp // warps_across * warp_rows + lane // warp_columns) * lanes
        b_read = (warp % warps_across * warp_columns + lane % warp_columns) * lanes

        sums = zeros()
        put_a(shared_a, a_put, fetch_a(a, a_at, a_step, a_row, a_high, a_column, a_long))
        put_b(shared_b, b_put, fetch_b(b, b_at, b_step, b_row, b_high, b_column, b_long))
        cuda.syncthreads()
        next_a = fetch_a(a, 0, 0, 0, 0, 0, 0)
        next_b = fetch_b(b, 0, 0, 0, 0, 0, 0)
        tiles = (k + depth - 1) // depth
        half = 0
        for number in range(1, tiles + 1):
            if number < tiles:
                a_row, a_column, a_at = a_row + a_down, a_column + a_right, a_at + a_move
                b_row, b_column, b_at = b_row + b_down, b_column + b_right, b_at + b_move
                next_a = fetch_a(a, a_at, a_step, a_row, a_high, a_column, a_long)
                next_b = fetch_b(b, b_at, b_step, b_row, b_high, b_column, b_long)
            sums = multiply_add(shared_a, half * a_stage + a_read, shared_b, half * b_stage + b_read, sums)
            if number < tiles:
                half = 1 - half
                put_a(shared_a, half * a_stage + a_put, next_a)
                put_b(shared_b, half * b_stage + b_put, next_b)
                cuda.syncthreads()
        write(c, sums, alpha, beta, top + a_read, left + b_read, m, n)

    return multiply
