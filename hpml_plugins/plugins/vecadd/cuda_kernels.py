"""The kernels, and features that numba lacks: wide accesses, immediate freeing and prefetching.

Imports numba.cuda: imported inside `measure` only. Runs in numba's simulator too, except for the
wide accesses.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from llvmlite import ir
from numba import cuda, types
from numba.cuda.extending import intrinsic

from hpml_plugins.plugins.vecadd.vectors import LENGTHS, is_sum, shape, vectors

#: Cache operators of (load, store), see `tuned.CACHINGS`. `nc` is allowed: nothing writes a or b
#: during the kernel. Source: PTX ISA, "Data Movement and Conversion Instructions: ld, ld.global.nc,
#: st", "Cache Operators".
OPERATORS = {
    "default": ("", ""),
    "streaming": (".cs", ".cs"),
    "bypass": (".nc.L1::no_allocate", ".cs"),
}

# Few blocks are intended here.
warnings.filterwarnings("ignore", message="Grid size .* low occupancy")


@cuda.jit(cache=True)  # type: ignore[untyped-decorator]
def add_striding(a: Any, b: Any, c: Any) -> None:
    """c = a + b for any length and any launch: each thread strides over the vector by the size of
    the grid.

    Source: Harris, "An Even Easier Introduction to CUDA", NVIDIA, 2017.
    """
    for i in range(cuda.grid(1), c.size, cuda.gridsize(1)):
        c[i] = a[i] + b[i]


@cuda.jit(cache=True)  # type: ignore[untyped-decorator]
def add_one_each(a: Any, b: Any, c: Any) -> None:
    """c = a + b, one element per thread; the grid may have more threads than there are elements."""
    i = cuda.grid(1)
    if i < c.size:
        c[i] = a[i] + b[i]


def launcher(launch: str, elements: int) -> Any:
    """`add(a, b, c)` for vectors of `elements` elements, asynchronous. Raises HpmlError for an
    unknown launch."""
    return (add_one_each if launch == "grid" else add_striding)[shape(launch, elements)]


def make_kernel(width: int, unroll: int, add_wide: Any) -> Any:
    """The uncompiled kernel `add(a, b, c)`: c = a + b for any length and any grid of
    one-dimensional blocks.

    add_wide: `make_add_wide` of the same width and unroll. A block adds one tile after another, and
    a partial tile at the end element by element. The vectors must be contiguous and begin on 16
    bytes, as every CUDA allocation does.
    """

    def add(a: Any, b: Any, c: Any) -> None:
        step = width * cuda.blockDim.x  # neighbouring threads read neighbouring addresses
        tile = unroll * step
        start = cuda.blockIdx.x * tile
        while start < c.size:
            if start + tile <= c.size:
                add_wide(a, b, c, start + width * cuda.threadIdx.x, step)
            else:
                i = start + cuda.threadIdx.x
                while i < c.size:
                    c[i] = a[i] + b[i]
                    i += cuda.blockDim.x
            start += tile * cuda.gridDim.x

    return add


def make_add_wide(width: int, unroll: int, caching: str) -> Any:
    """`add_wide(a, b, c, first, step)`: c = a + b at `unroll` places, `width` float32 at each.

    numba's arrays only guarantee alignment to an element, so its compiler may not combine loads:
    the instructions are PTX. All loads precede all stores. The places first, first + step, … must
    be multiples of `width` inside contiguous vectors: nothing is checked.
    """
    load, store = OPERATORS[caching]
    kind = {1: "f32", 2: "v2.f32", 4: "v4.f32"}[width]
    places, numbers = range(unroll), range(width * unroll)

    def registers(vector: str, place: int) -> str:
        names = ", ".join(f"{vector}{width * place + i}" for i in range(width))
        return names if width == 1 else f"{{{names}}}"

    # The operands are the addresses of a at each place, then of b, then of c.
    instructions = [
        *(f".reg .f32 a{i}, b{i};" for i in numbers),
        *(f"ld.global{load}.{kind} {registers('a', i)}, [${i}];" for i in places),
        *(f"ld.global{load}.{kind} {registers('b', i)}, [${unroll + i}];" for i in places),
        *(f"add.rn.f32 a{i}, a{i}, b{i};" for i in numbers),
        *(f"st.global{store}.{kind} [${2 * unroll + i}], {registers('a', i)};" for i in places),
    ]
    text = "\n".join(["{", *instructions, "}"])
    constraints = ",".join([*["l"] * 3 * unroll, "~{memory}"])

    @intrinsic  # type: ignore[untyped-decorator]
    def add_wide(typingctx: Any, a: Any, b: Any, c: Any, first: Any, step: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            *vectors, place, step = args
            offsets = [place]
            for _ in range(unroll - 1):
                offsets.append(builder.add(offsets[-1], step))
            data = [
                context.make_array(kind)(context, builder, value=vector).data
                for kind, vector in zip(signature.args, vectors, strict=False)
            ]
            addresses = [builder.gep(pointer, [offset]) for pointer in data for offset in offsets]
            signature = ir.FunctionType(ir.VoidType(), [address.type for address in addresses])
            builder.call(ir.InlineAsm(signature, text, constraints, side_effect=True), addresses)
            return context.get_dummy_value()

        return types.void(a, b, c, types.int64, types.int64), generate

    return add_wide


def try_lengths(
    launcher: Callable[[int], Callable[..., None]], seed: int
) -> Iterator[tuple[int, bool, float]]:
    """(elements, whether the sum equals NumPy's, seconds of the launch) for each of LENGTHS."""
    for elements in LENGTHS:
        a, b, c = vectors(elements, seed)
        on_gpu = [cuda.to_device(vector) for vector in (a, b, c)]
        add = launcher(elements)
        cuda.synchronize()
        started = time.perf_counter()
        add(*on_gpu)
        cuda.synchronize()
        seconds = time.perf_counter() - started
        on_gpu[2].copy_to_host(c)
        yield elements, is_sum(a, b, c), seconds


def free(arrays: list[Any]) -> None:
    """Free arrays that only the list refers to immediately: numba defers it until enough of them
    have accumulated."""
    arrays.clear()
    if hasattr(cuda.current_context(), "deallocations"):  # the simulator has none
        cuda.current_context().deallocations.clear()


def prefetch(arrays: Iterable[Any], *, to_gpu: bool) -> None:
    """Enqueue the move of managed arrays to the GPU or to the host on the default stream."""
    from cuda.bindings import driver

    # The call with a location: CUDA 13 has removed the older one and the suffix.
    enqueue = getattr(driver, "cuMemPrefetchAsync_v2", None) or driver.cuMemPrefetchAsync
    kind = driver.CUmemLocationType
    location = driver.CUmemLocation()
    location.type = kind.CU_MEM_LOCATION_TYPE_DEVICE if to_gpu else kind.CU_MEM_LOCATION_TYPE_HOST
    location.id = cuda.get_current_device().id if to_gpu else 0
    for array in arrays:
        (answer,) = enqueue(array.ctypes.data, array.nbytes, location, 0, driver.CUstream(0))
        if answer != driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"cuMemPrefetchAsync: {answer!r}")
