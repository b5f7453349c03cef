"""The tiled product as a kernel, with generated code for the parts that numba would not compile
with wide accesses and with all sums in registers. Imports numba and llvmlite.
"""

from __future__ import annotations

import functools
import inspect
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy
from llvmlite import ir
from numba import cuda, types

from hpml_plugins.plugins.mlp.tiles import ACCESS, ITEM, WARP_COLUMNS, WARP_ROWS, Kind, Operand

_INDEX = ir.IntType(64)


def make_kernel(kind: Kind, access: Any, alignment: int | None = ACCESS) -> Any:
    """The uncompiled kernel `multiply(alpha, a, b, beta, c, m, n, k)`: C = alpha · op(A) op(B) +
    beta · C.

    access: `make_access` of this kind.  a, b, c: contiguous vectors with the matrices row by row.
    m, n, k: op(A) is m × k.  Launched with `tile.threads` threads over `tile.blocks`. The next tile
    is fetched during the multiplication of the current one: first into registers, then into the
    other half of shared memory.  A split kind computes one part of the depth per layer of the grid,
    each into an m × n matrix of its own in c, for `add_parts`.  alignment: of shared memory, B;
    None for numba's simulator, which has none.
    """
    tile, width, lanes, dtype, split = kind.tile, kind.width, kind.lanes, kind.dtype, kind.split
    rows, columns, depth = tile.rows, tile.columns, tile.depth
    a_turned, a_pitch, a_line = kind.a.turned, kind.a.pitch, kind.a.line
    b_turned, b_pitch, b_line = kind.b.turned, kind.b.pitch, kind.b.line
    a_rows, b_rows = tile.threads // a_line, tile.threads // b_line
    a_stage, b_stage = depth * a_pitch, depth * b_pitch
    of_a, of_b = 2 * a_stage, 2 * b_stage
    warp_rows, warp_columns, warps_across = (
        WARP_ROWS,
        WARP_COLUMNS,
        columns // tile.wide // WARP_COLUMNS,
    )
    zeros = (getattr(numpy, dtype)(0),) * (tile.high * tile.wide)
    multiply_add, write = access.multiply_add, access.write
    fetch_a, fetch_b, put_a, put_b = access.fetch_a, access.fetch_b, access.put_a, access.put_b

    def multiply(alpha: Any, a: Any, b: Any, beta: Any, c: Any, m: Any, n: Any, k: Any) -> None:
        shared_a = cuda.shared.array(of_a, dtype, alignment)
        shared_b = cuda.shared.array(of_b, dtype, alignment)
        thread = cuda.threadIdx.x
        top, left = cuda.blockIdx.y * rows, cuda.blockIdx.x * columns

        # The contiguous dimension is depth if the matrix must be transposed, else rows of A or
        # columns of B.
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
        tiles = (k + depth - 1) // depth
        if split:
            share = (tiles + cuda.gridDim.z - 1) // cuda.gridDim.z
            first = cuda.blockIdx.z * share
            tiles = min(share, tiles - first)
            a_row, a_column = a_row + first * a_down, a_column + first * a_right
            b_row, b_column = b_row + first * b_down, b_column + first * b_right
        a_step, b_step = a_rows * a_long, b_rows * b_long
        a_at, b_at = a_row * a_long + a_column, b_row * b_long + b_column
        a_move, b_move = a_down * a_long + a_right, b_down * b_long + b_right

        warp, lane = thread // 32, thread % 32
        a_read = (warp // warps_across * warp_rows + lane // warp_columns) * lanes
        b_read = (warp % warps_across * warp_columns + lane % warp_columns) * lanes

        sums = zeros
        put_a(shared_a, a_put, fetch_a(a, a_at, a_step, a_row, a_high, a_column, a_long))
        put_b(shared_b, b_put, fetch_b(b, b_at, b_step, b_row, b_high, b_column, b_long))
        cuda.syncthreads()
        next_a = fetch_a(a, 0, 0, 0, 0, 0, 0)
        next_b = fetch_b(b, 0, 0, 0, 0, 0, 0)
        half = 0
        for number in range(1, tiles + 1):
            if number < tiles:
                a_row, a_column, a_at = a_row + a_down, a_column + a_right, a_at + a_move
                b_row, b_column, b_at = b_row + b_down, b_column + b_right, b_at + b_move
                next_a = fetch_a(a, a_at, a_step, a_row, a_high, a_column, a_long)
                next_b = fetch_b(b, b_at, b_step, b_row, b_high, b_column, b_long)
            sums = multiply_add(
                shared_a, half * a_stage + a_read, shared_b, half * b_stage + b_read, sums
            )
            if number < tiles:
                half = 1 - half
                put_a(shared_a, half * a_stage + a_put, next_a)
                put_b(shared_b, half * b_stage + b_put, next_b)
                cuda.syncthreads()
        if split:
            write(
                c[cuda.blockIdx.z * m * n :], sums, alpha, beta, top + a_read, left + b_read, m, n
            )
        else:
            write(c, sums, alpha, beta, top + a_read, left + b_read, m, n)

    return multiply


def add_parts(alpha: Any, partial: Any, beta: Any, c: Any, parts: Any) -> None:
    """The uncompiled kernel C = alpha · (sum of `parts` matrices of C's size) + beta · C, one
    element per thread.

    partial: the matrices, one after the other, added in this order. C is not read if beta is 0.
    """
    i = cuda.grid(1)
    if i < c.size:
        total = partial[i]
        for part in range(1, parts):
            total += partial[part * c.size + i]
        total *= alpha
        if beta != 0:
            total += beta * c[i]
        c[i] = total


def make_access(kind: Kind, intrinsic: Any) -> Any:
    """`fetch_a`, `fetch_b`, `put_a`, `put_b`, `multiply_add` and `write` for this kind, which
    numba's kernels can call.

    They are straight-line code: every loop below runs during code generation, so that nothing is
    indexed at run time and all sums stay in registers. Arrays are contiguous vectors of one dtype;
    nothing is checked. intrinsic: numba's decorator of that name, for CUDA or (in tests) for CPUs.
    """
    own = getattr(types, kind.dtype)

    def make(emit: Any, *details: Kind | Operand, count: int = 0) -> Any:
        """The function whose code `emit(*details, builder, …)` makes from its arguments: arrays as
        pointers, tuples as lists. It returns a tuple of `count` numbers.
        """
        emit = functools.partial(emit, *details)

        def typed(typingctx: Any, *given: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                plain = []
                for its_type, value in zip(signature.args, args, strict=True):
                    if isinstance(its_type, types.Array):
                        value = context.make_array(its_type)(context, builder, value=value).data
                    elif isinstance(its_type, types.BaseTuple):
                        value = [builder.extract_value(value, i) for i in range(len(its_type))]
                    plain.append(value)
                found = emit(builder, *plain)
                return (
                    context.make_tuple(builder, signature.return_type, found)
                    if count
                    else context.get_dummy_value()
                )

            wanted = [types.int64 if isinstance(each, types.Integer) else each for each in given]
            return (types.UniTuple(own, count) if count else types.void)(*wanted), generate

        typed.__signature__ = inspect.signature(emit)  # type: ignore[attr-defined]  # numba asks for the arguments
        return intrinsic(typed)

    return SimpleNamespace(
        fetch_a=make(_fetch, kind, kind.a, count=kind.a.loads * kind.width),
        fetch_b=make(_fetch, kind, kind.b, count=kind.b.loads * kind.width),
        put_a=make(_put, kind, kind.a),
        put_b=make(_put, kind, kind.b),
        multiply_add=make(_multiply_add, kind, count=kind.tile.high * kind.tile.wide),
        write=make(_write, kind),
    )


def _fetch(
    kind: Kind,
    operand: Operand,
    builder: Any,
    x: Any,
    at: Any,
    step: Any,
    row: Any,
    rows: Any,
    column: Any,
    columns: Any,
) -> list[Any]:
    """The values that a thread reads of a tile: accesses at `at`, `at` + `step`, …; zeros for those
    outside of rows × columns.

    row, column: of the first access.
    """
    values: list[Any] = []
    in_line = builder.icmp_signed("<", column, columns)
    for i in range(operand.loads):
        place = builder.add(at, builder.mul(step, _INDEX(i)))
        if not kind.guarded:
            values += _load(builder, x, place, kind.width)
            continue
        down = _INDEX(i * (kind.tile.threads // operand.line))
        inside = builder.and_(builder.icmp_signed("<", builder.add(row, down), rows), in_line)
        # Outside of the matrix, the first elements are read and replaced by zeros, without a branch
        # per access.
        loaded = _load(builder, x, builder.select(inside, place, _INDEX(0)), kind.width)
        values += [builder.select(inside, value, value.type(0.0)) for value in loaded]
    return values


def _put(
    kind: Kind, operand: Operand, builder: Any, shared: Any, at: Any, values: list[Any]
) -> None:
    """Write the fetched values to shared memory."""
    row_step = kind.tile.threads // operand.line
    for i in range(operand.loads):
        parts = values[i * kind.width : (i + 1) * kind.width]
        if operand.turned:
            for j, part in enumerate(parts):
                _store(
                    builder,
                    shared,
                    builder.add(at, _INDEX(i * row_step + j * operand.pitch)),
                    [part],
                )
        else:
            _store(builder, shared, builder.add(at, _INDEX(i * row_step * operand.pitch)), parts)


def _multiply_add(
    kind: Kind, builder: Any, a: Any, a_at: Any, b: Any, b_at: Any, sums: list[Any]
) -> list[Any]:
    """The sums (high · wide) after one tile. a_at, b_at: the thread's first element."""
    tile, lanes = kind.tile, kind.lanes

    def fragment(data: Any, at: Any, start: int, extent: int, part: int) -> list[Any]:
        """A thread's rows (or columns) of one level, in accesses spread over the tile."""
        values: list[Any] = []
        for i in range(0, part, lanes):
            values += _load(
                builder,
                data,
                builder.add(at, _INDEX(start + _spread(kind, i, extent, part))),
                lanes,
            )
        return values

    for level in range(tile.depth):
        left = fragment(a, a_at, level * kind.a.pitch, tile.rows, tile.high)
        right = fragment(b, b_at, level * kind.b.pitch, tile.columns, tile.wide)
        for i, one in enumerate(left):
            for j, other in enumerate(right):
                sums[i * tile.wide + j] = builder.fma(one, other, sums[i * tile.wide + j])
    return sums


def _write(
    kind: Kind,
    builder: Any,
    c: Any,
    sums: list[Any],
    alpha: Any,
    beta: Any,
    row: Any,
    column: Any,
    m: Any,
    n: Any,
) -> None:
    """C = alpha · sums + beta · C; C is not read if beta is 0. row, column: of the thread's first
    element."""
    tile, width = kind.tile, kind.width

    def write_row(i: int, *, keep: bool) -> None:
        line = builder.add(row, _INDEX(_spread(kind, i, tile.rows, tile.high)))
        start = builder.mul(line, n)
        in_rows = builder.icmp_signed("<", line, m)
        for j in range(0, tile.wide, width):
            place = builder.add(column, _INDEX(_spread(kind, j, tile.columns, tile.wide)))
            first = i * tile.wide + j
            parts = [builder.fmul(alpha, each) for each in sums[first : first + width]]
            inside = (
                builder.and_(in_rows, builder.icmp_signed("<", place, n)) if kind.guarded else None
            )
            with builder.if_then(inside) if kind.guarded else nullcontext():
                at = builder.add(start, place)
                if keep:
                    old = _load(builder, c, at, width)
                    parts = [
                        builder.fma(beta, was, part) for was, part in zip(old, parts, strict=True)
                    ]
                _store(builder, c, at, parts)

    with builder.if_else(builder.fcmp_ordered("==", beta, beta.type(0.0))) as branches:
        for branch, keep in zip(branches, (False, True), strict=True):
            with branch:
                for i in range(tile.high):
                    write_row(i, keep=keep)


def _spread(kind: Kind, i: int, extent: int, part: int) -> int:
    """The position of the i-th of a thread's `part` rows (or columns): its accesses are spread over
    the tile's `extent`."""
    return i // kind.lanes * (extent // (part // kind.lanes)) + i % kind.lanes


def _load(builder: Any, data: Any, at: Any, width: int) -> list[Any]:
    """`width` elements by one instruction; `at` must be a multiple of it."""
    address, align = _wide(builder, data, at, width)
    loaded = builder.load(address, align=align)
    return [builder.extract_element(loaded, ir.IntType(32)(i)) for i in range(width)]


def _store(builder: Any, data: Any, at: Any, parts: list[Any]) -> None:
    address, align = _wide(builder, data, at, len(parts))
    value: Any = ir.Constant(address.type.pointee, ir.Undefined)
    for i, part in enumerate(parts):
        value = builder.insert_element(value, part, ir.IntType(32)(i))
    builder.store(value, address, align=align)


def _wide(builder: Any, data: Any, at: Any, width: int) -> tuple[Any, int]:
    """The address of a vector of `width` elements, and its alignment, B."""
    address = builder.gep(data, [at])
    element = address.type.pointee
    item = ITEM["float32" if isinstance(element, ir.FloatType) else "float64"]
    return builder.bitcast(
        address, ir.VectorType(element, width).as_pointer(address.type.addrspace)
    ), width * item
