"""The tiled product as a kernel, and the parts of it that numba would not compile as they must be: wide accesses, and
sums in registers.

Imports numba and llvmlite. The kernel runs in numba's simulator too.
"""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy
from llvmlite import ir
from numba import cuda, types

from hpml_plugins.plugins.mlp.tiles import ACCESS, ITEM, WARP_COLUMNS, WARP_ROWS, Kind, Operand

_INDEX = ir.IntType(64)
_TYPES = {"float32": (types.float32, ir.FloatType()), "float64": (types.float64, ir.DoubleType())}


def make_kernel(kind: Kind, access: Any, alignment: int | None = ACCESS) -> Any:
    """The uncompiled kernel `multiply(alpha, a, b, beta, c, m, n, k)`: C = alpha · op(A) op(B) + beta · C.

    access: `make_access` of this kind.  a, b, c: contiguous vectors that hold the matrices row by row; op transposes by
    the kind's variant.  m, n, k: op(A) is m × k.  Launched with `tile.threads` threads a block over (columns, rows) of
    blocks. While a tile is multiplied the next one is on its way: first into registers, then into the other half of
    shared memory.  alignment: of shared memory, B; None for the simulator, which knows none.
    """
    tile, width, lanes, dtype = kind.tile, kind.width, kind.lanes, kind.dtype
    rows, columns, depth = tile.rows, tile.columns, tile.depth
    a_turned, a_pitch, a_line = kind.a.turned, kind.a.pitch, kind.a.line
    b_turned, b_pitch, b_line = kind.b.turned, kind.b.pitch, kind.b.line
    a_rows, b_rows = tile.threads // a_line, tile.threads // b_line
    a_stage, b_stage = depth * a_pitch, depth * b_pitch
    of_a, of_b = 2 * a_stage, 2 * b_stage
    warp_rows, warp_columns, warps_across = WARP_ROWS, WARP_COLUMNS, columns // tile.wide // WARP_COLUMNS
    zeros = (getattr(numpy, dtype)(0),) * (tile.high * tile.wide)
    multiply_add, write = access.multiply_add, access.write
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

        sums = zeros
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


def make_access(kind: Kind, intrinsic: Any) -> Any:
    """`fetch_a`, `fetch_b`, `put_a`, `put_b`, `multiply_add` and `write` for this kind, which numba's kernels can call.

    They are straight-line code: every loop below runs while the code is made, so that nothing is indexed at run time
    and all sums stay in registers. Arrays are contiguous vectors of one dtype; nothing is checked.
    intrinsic: numba's decorator of that name, for CUDA or (in tests) for CPUs.

    fetch_x(x, at, step, row, rows, column, columns) → what a thread reads of a tile: accesses at at, at + step, …, as
    a tuple. row, column: where the first access is; where one is not inside rows × columns it gives zeros.
    put_x(shared, at, values): what was fetched into shared memory.
    multiply_add(a, a_at, b, b_at, sums) → the sums (high · wide) after one tile. a_at, b_at: the thread's own.
    write(c, sums, alpha, beta, row, column, m, n): C = alpha · sums + beta · C; C is not read where beta is 0.
    """
    return SimpleNamespace(
        fetch_a=_fetch(kind, intrinsic, kind.a), fetch_b=_fetch(kind, intrinsic, kind.b),
        put_a=_put(kind, intrinsic, kind.a), put_b=_put(kind, intrinsic, kind.b),
        multiply_add=_multiply_add(kind, intrinsic), write=_write(kind, intrinsic),
    )  # fmt: skip


def _fetch(kind: Kind, intrinsic: Any, operand: Operand) -> Any:
    own, machine = _TYPES[kind.dtype]
    row_step = kind.tile.threads // operand.line

    @intrinsic  # type: ignore[untyped-decorator]
    def fetch(typingctx: Any, x: Any, at: Any, step: Any, row: Any, rows: Any, column: Any, columns: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data = _data(context, builder, signature.args[0], args[0])
            at, step, row, rows, column, columns = args[1:]
            in_line = builder.icmp_signed("<", column, columns)
            values: list[Any] = []
            for i in range(operand.loads):
                place = builder.add(at, builder.mul(step, _INDEX(i)))
                if not kind.guarded:
                    values += _load(builder, data, place, kind.width)
                    continue
                inside = builder.icmp_signed("<", builder.add(row, _INDEX(i * row_step)), rows)
                inside = builder.and_(inside, in_line)
                # Outside of the matrix its first elements are read, and zeros taken: no branch for each access.
                loaded = _load(builder, data, builder.select(inside, place, _INDEX(0)), kind.width)
                values += [builder.select(inside, value, machine(0.0)) for value in loaded]
            return _tuple(builder, values)

        return types.UniTuple(own, operand.loads * kind.width)(x, *[types.int64] * 6), generate

    return fetch


def _put(kind: Kind, intrinsic: Any, operand: Operand) -> Any:
    width, row_step = kind.width, kind.tile.threads // operand.line

    @intrinsic  # type: ignore[untyped-decorator]
    def put(typingctx: Any, shared: Any, at: Any, values: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data = _data(context, builder, signature.args[0], args[0])
            for i in range(operand.loads):
                parts = [builder.extract_value(args[2], i * width + j) for j in range(width)]
                if operand.turned:
                    for j, part in enumerate(parts):
                        _store(builder, data, builder.add(args[1], _INDEX(i * row_step + j * operand.pitch)), [part])
                else:
                    _store(builder, data, builder.add(args[1], _INDEX(i * row_step * operand.pitch)), parts)
            return context.get_dummy_value()

        return types.void(shared, types.int64, values), generate

    return put


def _multiply_add(kind: Kind, intrinsic: Any) -> Any:
    tile, lanes = kind.tile, kind.lanes

    def fragment(builder: Any, data: Any, at: Any, start: int, extent: int, part: int) -> list[Any]:
        """A thread's rows (or columns) of one level, in accesses spread over the tile."""
        values: list[Any] = []
        for group in range(part // lanes):
            place = builder.add(at, _INDEX(start + group * _apart(kind, extent, part)))
            values += _load(builder, data, place, lanes)
        return values

    @intrinsic  # type: ignore[untyped-decorator]
    def multiply_add(typingctx: Any, a: Any, a_at: Any, b: Any, b_at: Any, sums: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            of_a = _data(context, builder, signature.args[0], args[0])
            of_b = _data(context, builder, signature.args[2], args[2])
            sums = [builder.extract_value(args[4], i) for i in range(tile.high * tile.wide)]
            for level in range(tile.depth):
                left = fragment(builder, of_a, args[1], level * kind.a.pitch, tile.rows, tile.high)
                right = fragment(builder, of_b, args[3], level * kind.b.pitch, tile.columns, tile.wide)
                for i, one in enumerate(left):
                    for j, other in enumerate(right):
                        sums[i * tile.wide + j] = builder.fma(one, other, sums[i * tile.wide + j])
            return _tuple(builder, sums)

        return sums(a, types.int64, b, types.int64, sums), generate

    return multiply_add


def _write(kind: Kind, intrinsic: Any) -> Any:
    tile, lanes, width = kind.tile, kind.lanes, kind.width
    own, machine = _TYPES[kind.dtype]

    @intrinsic  # type: ignore[untyped-decorator]
    def write(typingctx: Any, c: Any, sums: Any, alpha: Any, beta: Any, row: Any, column: Any, m: Any, n: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data = _data(context, builder, signature.args[0], args[0])
            _, sums, alpha, beta, row, column, m, n = args

            def store_row(i: int, *, keep: bool) -> None:
                down = i // lanes * _apart(kind, tile.rows, tile.high) + i % lanes
                line = builder.add(row, _INDEX(down))
                start = builder.mul(line, n)
                in_rows = builder.icmp_signed("<", line, m)
                for j in range(0, tile.wide, width):
                    across = j // lanes * _apart(kind, tile.columns, tile.wide) + j % lanes
                    place = builder.add(column, _INDEX(across))
                    own_sums = [builder.extract_value(sums, i * tile.wide + j + each) for each in range(width)]
                    parts = [builder.fmul(alpha, each) for each in own_sums]
                    inside = builder.and_(in_rows, builder.icmp_signed("<", place, n)) if kind.guarded else None
                    with builder.if_then(inside) if kind.guarded else nullcontext():
                        at = builder.add(start, place)
                        if keep:
                            old = _load(builder, data, at, width)
                            parts = [builder.fma(beta, was, part) for was, part in zip(old, parts, strict=True)]
                        _store(builder, data, at, parts)

            without_c = builder.fcmp_ordered("==", beta, machine(0.0))
            with builder.if_else(without_c) as branches:
                for branch, keep in zip(branches, (False, True), strict=True):
                    with branch:
                        for i in range(tile.high):
                            store_row(i, keep=keep)
            return context.get_dummy_value()

        return types.void(c, sums, own, own, *[types.int64] * 4), generate

    return write


def _apart(kind: Kind, extent: int, part: int) -> int:
    """Elements from one access of a thread to its next, of `part` elements spread over the tile."""
    return extent // (part // kind.lanes)


def _data(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    return context.make_array(kind)(context, builder, value=array).data


def _load(builder: Any, data: Any, at: Any, width: int) -> list[Any]:
    """So many elements by one instruction; `at` must be a multiple of the width."""
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
    return builder.bitcast(address, ir.VectorType(element, width).as_pointer(address.type.addrspace)), width * item


def _tuple(builder: Any, values: list[Any]) -> Any:
    whole: Any = ir.Constant(ir.ArrayType(values[0].type, len(values)), ir.Undefined)
    for i, value in enumerate(values):
        whole = builder.insert_value(whole, value, i)
    return whole
