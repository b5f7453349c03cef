"""The parts of the tiled product that numba would not compile as they must be: wide loads, and sums in registers.

Each is a function that numba's kernels can call, made as straight-line code: every loop below runs while the code is
made, so that nothing is indexed at run time and all sums stay in registers. Arrays are contiguous vectors of one
dtype; nothing is checked. Imports numba and llvmlite: imported inside `measure` only.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from llvmlite import ir
from numba import types

from hpml_plugins.plugins.mlp.tiles import ACCESS, Kind

_INDEX = ir.IntType(64)
_TYPES = {"float32": (types.float32, ir.FloatType()), "float64": (types.float64, ir.DoubleType())}


def make_access(kind: Kind, intrinsic: Any) -> Any:
    """`zeros`, `fetch_a`, `fetch_b`, `put_a`, `put_b`, `multiply_add` and `write` for this kind.

    intrinsic: numba's decorator of that name, for CUDA or (in tests) for CPUs.

    zeros() → the tile's sums of a thread, a tuple of high · wide.
    fetch_x(x, at, step, row, rows, column, columns) → what a thread reads of a tile: accesses at at, at + step, …, as
    a tuple. row, column: where the first access is; where one is not inside rows × columns it gives zeros.
    put_x(shared, at, values): what was fetched into shared memory.
    multiply_add(a, a_at, b, b_at, sums) → the sums after one tile. a_at, b_at: the thread's first element.
    write(c, sums, alpha, beta, row, column, m, n): C = alpha · sums + beta · C; C is not read where beta is 0.
    """
    tile = kind.tile
    a_rows, b_rows = tile.threads // kind.a_line, tile.threads // kind.b_line
    return SimpleNamespace(
        zeros=_zeros(kind, intrinsic),
        fetch_a=_fetch(kind, intrinsic, kind.a_loads, a_rows),
        fetch_b=_fetch(kind, intrinsic, kind.b_loads, b_rows),
        put_a=_put(kind, intrinsic, kind.a_loads, a_rows, kind.a_pitch, kind.a_turned),
        put_b=_put(kind, intrinsic, kind.b_loads, b_rows, kind.b_pitch, kind.b_turned),
        multiply_add=_multiply_add(kind, intrinsic),
        write=_write(kind, intrinsic),
    )


def _zeros(kind: Kind, intrinsic: Any) -> Any:
    own, machine = _TYPES[kind.dtype]
    count = kind.tile.high * kind.tile.wide

    @intrinsic  # type: ignore[untyped-decorator]
    def zeros(typingctx: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return ir.Constant(ir.ArrayType(machine, count), [machine(0.0)] * count)

        return types.UniTuple(own, count)(), generate

    return zeros


def _fetch(kind: Kind, intrinsic: Any, loads: int, row_step: int) -> Any:
    own, machine = _TYPES[kind.dtype]
    width = kind.width

    @intrinsic  # type: ignore[untyped-decorator]
    def fetch(typingctx: Any, x: Any, at: Any, step: Any, row: Any, rows: Any, column: Any, columns: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data = _data(context, builder, signature.args[0], args[0])
            at, step, row, rows, column, columns = args[1:]
            in_line = builder.icmp_signed("<", column, columns)
            values: list[Any] = []
            for i in range(loads):
                place = builder.add(at, builder.mul(step, _INDEX(i)))
                if not kind.guarded:
                    values += _load(builder, data, place, width, machine)
                    continue
                inside = builder.icmp_signed("<", builder.add(row, _INDEX(i * row_step)), rows)
                inside = builder.and_(inside, in_line)
                # Outside of the matrix its first elements are read, and zeros taken: no branch for each access.
                loaded = _load(builder, data, builder.select(inside, place, _INDEX(0)), width, machine)
                values += [builder.select(inside, value, machine(0.0)) for value in loaded]
            return _tuple(builder, values, machine)

        return types.UniTuple(own, loads * width)(x, *[types.int64] * 6), generate

    return fetch


def _put(kind: Kind, intrinsic: Any, loads: int, row_step: int, pitch: int, turned: bool) -> Any:
    width = kind.width

    @intrinsic  # type: ignore[untyped-decorator]
    def put(typingctx: Any, shared: Any, at: Any, values: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data = _data(context, builder, signature.args[0], args[0])
            at, values = args[1], args[2]
            for i in range(loads):
                parts = [builder.extract_value(values, i * width + j) for j in range(width)]
                if turned:
                    for j, part in enumerate(parts):
                        builder.store(part, builder.gep(data, [builder.add(at, _INDEX(i * row_step + j * pitch))]))
                else:
                    _store(builder, data, builder.add(at, _INDEX(i * row_step * pitch)), parts)
            return context.get_dummy_value()

        return types.void(shared, types.int64, values), generate

    return put


def _multiply_add(kind: Kind, intrinsic: Any) -> Any:
    tile, lanes = kind.tile, kind.lanes
    _, machine = _TYPES[kind.dtype]

    def fragment(builder: Any, data: Any, at: Any, level: int, pitch: int, extent: int, part: int) -> list[Any]:
        """A thread's rows (or columns) of one level, in accesses spread over the tile."""
        apart = extent // (part // lanes)
        values: list[Any] = []
        for group in range(part // lanes):
            values += _load(builder, data, builder.add(at, _INDEX(level * pitch + group * apart)), lanes, machine)
        return values

    @intrinsic  # type: ignore[untyped-decorator]
    def multiply_add(typingctx: Any, a: Any, a_at: Any, b: Any, b_at: Any, sums: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            of_a = _data(context, builder, signature.args[0], args[0])
            of_b = _data(context, builder, signature.args[2], args[2])
            sums = [builder.extract_value(args[4], i) for i in range(tile.high * tile.wide)]
            for level in range(tile.depth):
                left = fragment(builder, of_a, args[1], level, kind.a_pitch, tile.rows, tile.high)
                right = fragment(builder, of_b, args[3], level, kind.b_pitch, tile.columns, tile.wide)
                for i, one in enumerate(left):
                    for j, other in enumerate(right):
                        sums[i * tile.wide + j] = builder.fma(one, other, sums[i * tile.wide + j])
            return _tuple(builder, sums, machine)

        return sums(a, types.int64, b, types.int64, sums), generate

    return multiply_add


def _write(kind: Kind, intrinsic: Any) -> Any:
    tile, lanes, width = kind.tile, kind.lanes, kind.width
    own, machine = _TYPES[kind.dtype]
    groups_down, groups_across = tile.high // lanes, tile.wide // lanes

    @intrinsic  # type: ignore[untyped-decorator]
    def write(typingctx: Any, c: Any, sums: Any, alpha: Any, beta: Any, row: Any, column: Any, m: Any, n: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data = _data(context, builder, signature.args[0], args[0])
            _, sums, alpha, beta, row, column, m, n = args

            def store_all(keep: bool) -> None:
                for i in range(tile.high):
                    down = i // lanes * (tile.rows // groups_down) + i % lanes
                    line = builder.add(row, _INDEX(down))
                    start = builder.mul(line, n)
                    in_rows = builder.icmp_signed("<", line, m)
                    for j in range(0, tile.wide, width):
                        across = j // lanes * (tile.columns // groups_across) + j % lanes
                        place = builder.add(column, _INDEX(across))
                        parts = [
                            builder.fmul(alpha, builder.extract_value(sums, i * tile.wide + j + each))
                            for each in range(width)
                        ]
                        if kind.guarded:
                            with builder.if_then(builder.and_(in_rows, builder.icmp_signed("<", place, n))):
                                store_some(builder.add(start, place), parts, keep)
                        else:
                            store_some(builder.add(start, place), parts, keep)

            def store_some(at: Any, parts: list[Any], keep: bool) -> None:
                if keep:
                    old = _load(builder, data, at, width, machine)
                    parts = [builder.fma(beta, was, part) for was, part in zip(old, parts, strict=True)]
                _store(builder, data, at, parts)

            nothing = builder.fcmp_ordered("==", beta, machine(0.0))
            with builder.if_else(nothing) as (without, with_c):
                with without:
                    store_all(keep=False)
                with with_c:
                    store_all(keep=True)
            return context.get_dummy_value()

        return types.void(c, sums, own, own, *[types.int64] * 4), generate

    return write


def _data(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    return context.make_array(kind)(context, builder, value=array).data


def _load(builder: Any, data: Any, at: Any, width: int, machine: Any) -> list[Any]:
    """So many elements by one instruction; `at` must be a multiple of the width."""
    address = builder.gep(data, [at])
    if width == 1:
        return [builder.load(address)]
    loaded = builder.load(builder.bitcast(address, _wide(address, width, machine)), align=ACCESS)
    return [builder.extract_element(loaded, ir.IntType(32)(i)) for i in range(width)]


def _store(builder: Any, data: Any, at: Any, parts: list[Any]) -> None:
    address = builder.gep(data, [at])
    if len(parts) == 1:
        builder.store(parts[0], address)
        return
    machine = parts[0].type
    value: Any = ir.Constant(ir.VectorType(machine, len(parts)), ir.Undefined)
    for i, part in enumerate(parts):
        value = builder.insert_element(value, part, ir.IntType(32)(i))
    builder.store(value, builder.bitcast(address, _wide(address, len(parts), machine)), align=ACCESS)


def _wide(address: Any, width: int, machine: Any) -> Any:
    return ir.VectorType(machine, width).as_pointer(address.type.addrspace)


def _tuple(builder: Any, values: list[Any], machine: Any) -> Any:
    whole: Any = ir.Constant(ir.ArrayType(machine, len(values)), ir.Undefined)
    for i, value in enumerate(values):
        whole = builder.insert_value(whole, value, i)
    return whole
