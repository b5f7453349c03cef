"""Loads and stores of one, two or four float32 in one instruction, as a function that numba's kernels can call.

numba has no such access: its arrays promise alignment to an element only, so that its compiler may not join four
loads into one. These instructions are therefore written in PTX. Imports numba.cuda: imported inside `measure` only.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.cuda.extending import intrinsic

#: Cache operators of (load, store), see `configurations.CACHINGS`. `nc` is right as nobody writes a or b meanwhile.
#: Source: PTX ISA, "Data Movement and Conversion Instructions: ld, ld.global.nc, st", "Cache Operators".
OPERATORS = {"default": ("", ""), "streaming": (".cs", ".cs"), "bypass": (".nc.L1::no_allocate", ".cs")}

_FLOAT = ir.FloatType()


def make_add_wide(width: int, unroll: int, caching: str) -> Any:
    """`add_wide(a, b, c, first, step)`: c = a + b at `unroll` places, `width` float32 at each.

    All is loaded before anything is stored. The places are first, first + step, …; each must lie on a multiple of
    4 · width bytes, and all of it inside the contiguous float32 vectors: nothing is checked.
    """
    load_operator, store_operator = OPERATORS[caching]
    kind = {1: "f32", 2: "v2.f32", 4: "v4.f32"}[width]
    loaded = _FLOAT if width == 1 else ir.LiteralStructType([_FLOAT] * width)
    load_text = f"ld.global{load_operator}.{kind} {_registers(0, width)}, [${width}];"
    store_text = f"st.global{store_operator}.{kind} [$0], {_registers(1, width)};"

    def load(builder: Any, address: Any) -> list[Any]:
        signature = ir.FunctionType(loaded, [address.type])
        asm = ir.InlineAsm(signature, load_text, ",".join(["=f"] * width + ["l"]))
        value = builder.call(asm, [address])
        return [value] if width == 1 else [builder.extract_value(value, i) for i in range(width)]

    def store(builder: Any, address: Any, values: list[Any]) -> None:
        signature = ir.FunctionType(ir.VoidType(), [address.type] + [_FLOAT] * width)
        constraints = ",".join(["l"] + ["f"] * width + ["~{memory}"])
        asm = ir.InlineAsm(signature, store_text, constraints, side_effect=True)
        builder.call(asm, [address, *values])

    @intrinsic  # type: ignore[untyped-decorator]
    def add_wide(typingctx: Any, a: Any, b: Any, c: Any, first: Any, step: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            *vectors, place, step = args
            data = [
                context.make_array(kind)(context, builder, value=vector).data
                for kind, vector in zip(signature.args, vectors, strict=False)
            ]
            places = [place]
            for _ in range(unroll - 1):
                places.append(builder.add(places[-1], step))
            of_a, of_b = ([load(builder, builder.gep(pointer, [i])) for i in places] for pointer in data[:2])
            for i, left, right in zip(places, of_a, of_b, strict=True):
                store(
                    builder, builder.gep(data[2], [i]), [builder.fadd(*pair) for pair in zip(left, right, strict=True)]
                )
            return context.get_dummy_value()

        return types.void(a, b, c, types.int64, types.int64), generate

    return add_wide


def _registers(first: int, count: int) -> str:
    """The operands of inline PTX: "$1", or "{$1, $2}" for a vector."""
    names = ", ".join(f"${first + i}" for i in range(count))
    return names if count == 1 else f"{{{names}}}"
