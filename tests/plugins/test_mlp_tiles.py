"""The tiled product of `mlp`: its indices in the simulator, its code on the CPU, its PTX, the
choice of tiles."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hpml_plugins import HpmlError
from hpml_plugins.plugins.mlp import gemm
from hpml_plugins.plugins.mlp.tiles import (
    FEW,
    ITEM,
    TILES,
    VARIANTS,
    WARP_COLUMNS,
    WARP_ROWS,
    Kind,
    Tile,
    kind_of,
    worth_trying,
)

#: Small, and as the large ones: whole warps, several accesses and groups a thread.
SMALL = Tile(64, 64, 8, 8, 8)
SMALL64 = Tile(16, 32, 8, 4, 4)

IN_THE_SIMULATOR = """
import warnings
import numpy as np
from numba import cuda
from hpml_plugins.plugins.mlp.tiles import Tile, kind_of
from hpml_plugins.plugins.mlp.tile_kernel import add_parts, make_kernel
from plain_access import PlainAccess

warnings.simplefilter("ignore")
random = np.random.RandomState(0)
cases = [
    ("float32", Tile(64, 64, 8, 8, 8), (64, 64, 16), 1, 0),
    ("float32", Tile(64, 64, 8, 8, 8), (36, 68, 20), 1, 0),
    ("float32", Tile(64, 64, 8, 8, 8), (33, 35, 9), 0.5, -2),
    ("float64", Tile(16, 32, 8, 4, 4), (16, 64, 16), 0.5, -2),
    ("float64", Tile(16, 32, 8, 4, 4), (18, 36, 10), 1, 0),
    ("float32", Tile(64, 64, 8, 8, 8, parts=3), (10, 36, 50), 0.5, -2),
    ("float64", Tile(16, 32, 8, 4, 4, parts=2), (16, 32, 32), 1, 0),
]
for variant in ("nn", "nt", "tn"):
    for dtype, tile, (m, n, k), alpha, beta in cases:
        kind = kind_of(tile, variant, dtype, m, n, k)
        number = np.dtype(dtype).type
        a, b, before = (random.randn(*shape).astype(dtype) for shape in ((m, k), (k, n), (m, n)))
        lying = [a.T if variant[0] == "t" else a, b.T if variant[1] == "t" else b]
        lying = [cuda.to_device(np.ascontiguousarray(x).reshape(-1)) for x in lying]
        start = np.full_like(before, np.nan) if beta == 0 else before
        c = cuda.to_device(start.reshape(-1).copy())
        kernel = cuda.jit(make_kernel(kind, PlainAccess(kind), alignment=None))[tile.blocks(m, n), tile.threads]
        if tile.parts == 1:
            kernel(number(alpha), *lying, number(beta), c, m, n, k)
        else:
            partial = cuda.to_device(np.full(tile.parts * m * n, np.nan, dtype))
            kernel(number(1), *lying, number(0), partial, m, n, k)
            cuda.jit(add_parts)[-(-m * n // 64), 64](number(alpha), partial, number(beta), c, tile.parts)
        wanted = alpha * (a.astype(float) @ b) + (beta * before.astype(float) if beta else 0)
        error = abs(c.copy_to_host().reshape(m, n) - wanted).max() / abs(wanted).max()
        limit = {"float32": 1e-5, "float64": 1e-14}[dtype]
        print(variant, dtype, m, n, k, kind.width, kind.guarded, "right" if error < limit else f"wrong: {error}")
"""  # noqa: E501

TO_PTX = """
import sys
from numba import cuda, types
from numba.cuda.extending import intrinsic
from hpml_plugins.plugins.mlp.tiles import Kind, Tile
from hpml_plugins.plugins.mlp.tile_kernel import add_parts, make_access, make_kernel

for dtype, tile, width in (("float32", Tile(128, 128, 8, 8, 8), 4), ("float64", Tile(128, 64, 8, 8, 4), 2)):
    kind = Kind(tile, "nn", dtype, width, False)
    number = getattr(types, dtype)
    vector, count = number[::1], types.int64
    signature = (number, vector, vector, number, vector, count, count, count)
    multiply = make_kernel(kind, make_access(kind, intrinsic))
    try:
        text, _ = cuda.compile(multiply, signature, cc=(9, 0), device=False, abi="numba", output="ptx")
    except Exception as error:
        if "nvvm" not in f"{type(error).__name__} {error}".lower():
            raise
        sys.exit("no NVVM")
    print(f"// {dtype}")
    print(text)
    multiply = make_kernel(Kind(tile, "nn", dtype, width, True, True), make_access(kind, intrinsic))
    split, _ = cuda.compile(multiply, signature, cc=(9, 0), device=False, abi="numba", output="ptx")
    adding = (number, vector, number, vector, count)
    adds, _ = cuda.compile(add_parts, adding, cc=(9, 0), device=False, abi="numba", output="ptx")
    assert "ctaid.z" in split and ".local" not in split
    assert "f64" not in adds or dtype == "float64", "float32 is added up in float32"
"""  # noqa: E501


def run(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), **env}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False
    )


def test_the_kernel_is_right_for_every_variant_and_shape_in_the_simulator() -> None:
    done = run(IN_THE_SIMULATOR, NUMBA_ENABLE_CUDASIM="1")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if not line.endswith("right")] == []
    assert len(lines) == 3 * 7
    # Whole tiles, tiles cut off between accesses, and inside them: all three kinds were there.
    assert {tuple(line.split()[5:7]) for line in lines} == {
        ("4", "False"),
        ("4", "True"),
        ("1", "True"),
        ("2", "False"),
        ("2", "True"),
    }


def test_sums_stay_in_registers_and_accesses_are_wide_in_ptx() -> None:
    done = run(TO_PTX)
    if done.stderr.strip() == "no NVVM":
        pytest.skip("numba finds no NVVM to compile with")
    assert done.returncode == 0, done.stderr
    float32, float64 = done.stdout.split("// float64")
    assert not re.search(r"^\s*\.local", done.stdout, re.MULTILINE)
    # 8 levels of 8 × 8 sums, and 64 to add beta · C.
    assert len(re.findall(r"fma\.rn\.f32", float32)) == 8 * 64 + 64
    # A level reads two accesses of A and two of B.
    assert len(re.findall(r"ld\.shared\.v4\.f32", float32)) == 8 * 4
    # The first tile of A and B, the next ones (and those that are dropped), 16 accesses to C.
    assert len(re.findall(r"ld\.global(\.nc)?\.v4\.f32", float32)) >= 4 + 16
    assert len(re.findall(r"fma\.rn\.f64", float64)) == 8 * 32 + 32
    # Four accesses of A and two of B.
    assert len(re.findall(r"ld\.shared\.v2\.f64", float64)) == 8 * 6


def by_machine_code(
    kind: Kind, alpha: float, a: Any, b: Any, beta: float, c: Any, m: int, n: int, k: int
) -> None:
    """The kernel's steps for all threads in turn, with the made code compiled for this CPU."""
    import numba
    from numba.extending import intrinsic

    from hpml_plugins.plugins.mlp.tile_kernel import make_access

    access, tile = make_access(kind, intrinsic), kind.tile
    multiply_add, write = access.multiply_add, access.write
    fetch_a, fetch_b, put_a, put_b = (
        access.fetch_a,
        access.fetch_b,
        access.put_a,
        access.put_b,
    )

    @numba.njit  # type: ignore[untyped-decorator]
    def stage(
        a: Any,
        of_a: Any,
        put_at_a: Any,
        shared_a: Any,
        b: Any,
        of_b: Any,
        put_at_b: Any,
        shared_b: Any,
    ) -> None:
        put_a(
            shared_a,
            put_at_a,
            fetch_a(a, of_a[0], of_a[1], of_a[2], of_a[3], of_a[4], of_a[5]),
        )
        put_b(
            shared_b,
            put_at_b,
            fetch_b(b, of_b[0], of_b[1], of_b[2], of_b[3], of_b[4], of_b[5]),
        )

    @numba.njit  # type: ignore[untyped-decorator]
    def advance(shared_a: Any, a_at: Any, shared_b: Any, b_at: Any, sums: Any) -> Any:
        return multiply_add(shared_a, a_at, shared_b, b_at, sums)

    @numba.njit  # type: ignore[untyped-decorator]
    def finish(
        c: Any, sums: Any, alpha: Any, beta: Any, row: Any, column: Any, m: Any, n: Any
    ) -> None:
        write(c, sums, alpha, beta, row, column, m, n)

    def place(
        thread: int,
        line: int,
        turned: bool,
        first: int,
        level: int,
        extent: int,
        pitch: int,
        count: int,
    ) -> Any:
        down, right = thread // line, thread % line * kind.width
        step = tile.threads // line
        if turned:  # rows of the matrix, its columns are depth
            row, column, rows, columns, put = (
                first + down,
                level + right,
                extent,
                k,
                right * pitch + down,
            )
        else:
            row, column, rows, columns, put = (
                level + down,
                first + right,
                k,
                extent,
                down * pitch + right,
            )
        return (row * columns + column, step * columns, row, rows, column, columns), put

    shared_a = np.zeros(tile.depth * kind.a.pitch, kind.dtype)
    shared_b = np.zeros(tile.depth * kind.b.pitch, kind.dtype)
    number = np.dtype(kind.dtype).type
    across = tile.columns // tile.wide
    for top, left in itertools.product(range(0, m, tile.rows), range(0, n, tile.columns)):
        sums = [(number(0),) * (tile.high * tile.wide)] * tile.threads
        for level in range(0, k, tile.depth):
            for thread in range(tile.threads):
                of_a, at_a = place(
                    thread,
                    kind.a.line,
                    kind.a.turned,
                    top,
                    level,
                    m,
                    kind.a.pitch,
                    kind.a.loads,
                )
                of_b, at_b = place(
                    thread,
                    kind.b.line,
                    kind.b.turned,
                    left,
                    level,
                    n,
                    kind.b.pitch,
                    kind.b.loads,
                )
                stage(a, of_a, at_a, shared_a, b, of_b, at_b, shared_b)
            for thread in range(tile.threads):
                read_a, read_b = thread // across * kind.lanes, thread % across * kind.lanes
                # numba gives float32 back as Python's floats
                held = tuple(map(number, sums[thread]))
                sums[thread] = advance(shared_a, read_a, shared_b, read_b, held)
        for thread in range(tile.threads):
            row, column = (
                top + thread // across * kind.lanes,
                left + thread % across * kind.lanes,
            )
            finish(
                c,
                tuple(map(number, sums[thread])),
                number(alpha),
                number(beta),
                row,
                column,
                m,
                n,
            )


@pytest.mark.parametrize(
    ("variant", "dtype", "shape", "width", "guarded"),
    [
        ("nn", "float32", (64, 64, 16), 4, False),
        ("nt", "float32", (68, 36, 20), 4, True),
        ("tn", "float32", (33, 70, 9), 1, True),
        ("tn", "float64", (18, 34, 10), 2, True),
    ],
)
def test_the_made_code_is_right_on_the_cpu(
    variant: Any, dtype: Any, shape: tuple[int, int, int], width: int, guarded: bool
) -> None:
    m, n, k = shape
    kind = kind_of(SMALL if dtype == "float32" else SMALL64, variant, dtype, m, n, k)
    assert (kind.width, kind.guarded) == (width, guarded)
    random = np.random.RandomState(0)
    a, b, before = (random.randn(*size).astype(dtype) for size in ((m, k), (k, n), (m, n)))
    turned = (a.T if variant[0] == "t" else a, b.T if variant[1] == "t" else b)
    lying = [np.ascontiguousarray(x).reshape(-1) for x in turned]
    beyond = np.full(64, 7, dtype)
    for alpha, beta in ((1.0, 0.0), (0.5, -2.0)):
        c = np.concatenate(
            [before.reshape(-1) if beta else np.full(m * n, np.nan, dtype), beyond]
        )
        by_machine_code(kind, alpha, lying[0], lying[1], beta, c, m, n, k)
        wanted = alpha * (a.astype(float) @ b) + (
            beta * before.astype(float) if beta else 0
        )
        assert c[: m * n].reshape(m, n) == pytest.approx(
            wanted, rel=1e-5 if dtype == "float32" else 1e-13, abs=1e-5
        )
        assert (c[m * n :] == 7).all()  # nothing is written beyond C


def flaw(kind: Kind) -> str:
    """Why it cannot be compiled; empty where it can."""
    tile, threads = kind.tile, kind.tile.threads
    for extent, part, warp in (
        (tile.rows, tile.high, WARP_ROWS),
        (tile.columns, tile.wide, WARP_COLUMNS),
    ):
        if extent % part or part % kind.lanes or extent // part % warp:
            return f"{tile}: {extent} cannot be shared out by {part} to whole accesses and warps"
    for extent, operand in ((tile.rows, kind.a), (tile.columns, kind.b)):
        if (
            threads % operand.line
            or operand.loads * threads * kind.width != extent * tile.depth
        ):
            return f"{tile}: {threads} threads cannot share out a tile of {extent} × {tile.depth}"
    return ""


def shared_bytes(kind: Kind) -> int:
    """Shared memory of a block, B: two stages of A and B."""
    return 2 * kind.tile.depth * (kind.a.pitch + kind.b.pitch) * ITEM[kind.dtype]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_tile_can_be_shared_out_in_every_variant_and_width(dtype: Any) -> None:
    lanes = 16 // ITEM[dtype]
    for tile, variant, width in itertools.product(
        (*TILES[dtype], *FEW[dtype]), VARIANTS, (lanes, 1)
    ):
        assert flaw(Kind(tile, variant, dtype, width, True)) == ""
        # what a block has without asking
        assert shared_bytes(Kind(tile, variant, dtype, width, True)) <= 48 * 1024


def test_a_tile_by_hand() -> None:
    tile = Tile(128, 128, 8, 8, 8)
    assert tile.threads == 16 * 16
    assert tile.blocks(4096, 4096) == (32, 32, 1)
    # 1500 × 10 in tiles of 128 × 128: 12 blocks of 16,384 for 15,000.
    assert tile.waste(1500, 10) == pytest.approx(12 * 128 * 128 / 15_000)
    kind = Kind(tile, "nn", "float32", 4, False)
    # Two stages of 8 rows of 128 + 4 of A and of B, 4 B each.
    assert shared_bytes(kind) == 2 * 8 * 2 * 132 * 4
    # A tile of A is 128 × 8 = 1024 elements: one access of 4 for each of 256 threads, two in line.
    assert (kind.a.loads, kind.a.line, kind.a.turned) == (1, 2, True)
    # B lies as it is wanted: 128 columns are 32 accesses.
    assert (kind.b.loads, kind.b.line, kind.b.turned) == (1, 32, False)
    assert str(Tile(128, 128, 8, 8, 8, 128)) == "128x128x8, 8x8 a thread, 128 registers"


def test_tiles_that_cannot_be_shared_out_say_why() -> None:
    assert (
        flaw(Kind(Tile(64, 64, 8, 4, 4), "nn", "float32", 4, False))
        == "64x64x8, 4x4 a thread: 256 threads cannot share out a tile of 64 × 8"
    )
    assert "whole accesses and warps" in flaw(
        Kind(Tile(64, 64, 8, 2, 4), "nn", "float32", 4, False)
    )


@pytest.mark.parametrize(
    ("shape", "variant", "width", "guarded"),
    [
        ((256, 256, 64), "nn", 4, False),
        ((256, 252, 64), "nn", 4, True),  # 252 is no whole tile, but 63 accesses
        ((1500, 10, 512), "nt", 1, True),  # rows of 10 do not begin on a border
        ((10, 512, 1500), "tn", 1, True),
        ((1500, 512, 784), "nt", 4, True),
    ],
)
def test_a_product_gets_the_widest_accesses_that_are_safe(
    shape: tuple[int, int, int], variant: Any, width: int, guarded: bool
) -> None:
    kind = kind_of(Tile(128, 128, 8, 8, 8), variant, "float32", *shape)
    assert (kind.width, kind.guarded) == (width, guarded)


def test_matrices_off_the_border_are_read_one_by_one_and_empty_ones_refused() -> None:
    tile = Tile(128, 128, 8, 8, 8)
    assert kind_of(tile, "nn", "float32", 256, 256, 64, aligned=False).width == 1
    with pytest.raises(HpmlError, match="a product of 4 × 0 and 0 × 4 is empty"):
        kind_of(tile, "nn", "float32", 4, 4, 0)


def test_wasteful_tiles_are_not_tried() -> None:
    # Ten columns: tiles of 32 waste 3.3 times as much as is wanted, those of 64 and 128 more.
    assert worth_trying(TILES["float32"], 15000, 10, 512) == [Tile(32, 32, 16, 4, 4)]
    assert worth_trying(TILES["float32"], 4096, 4096, 4096) == list(TILES["float32"])


def test_a_product_of_few_blocks_is_tried_in_parts_none_of_which_is_empty() -> None:
    # 10 × 512 are 16 tiles of 32 × 32; 1500 deep are 94 tiles of 16: in shares of 24, 12, 6 and 3.
    tried = worth_trying(TILES["float32"], 10, 512, 1500)
    assert tried == [Tile(32, 32, 16, 4, 4, parts=parts) for parts in (1, 4, 8, 16, 32)]
    # 10 tiles deep: shares of 3 and (for 8 parts) none of at least two.
    assert [tile.parts for tile in worth_trying(TILES["float32"], 10, 512, 160)] == [1, 4]
    assert str(tried[1]) == "32x32x16, 4x4 a thread, 4 parts"
    one, other = (kind_of(tile, "nn", "float32", 10, 512, 1500) for tile in tried[1:3])
    assert one == other  # compiled once for all numbers of parts
    assert one.split


def test_a_shape_is_spelled_m_x_n_x_k() -> None:
    assert gemm.parse_shape("1500x10x512") == (1500, 10, 512)
    with pytest.raises(HpmlError, match="shape '4096' is not spelled m x n x k"):
        gemm.parse_shape("4096")


def test_a_wrong_product_gives_no_number(node: Any) -> None:
    import torch

    from hpml_plugins import Bench
    from hpml_plugins.plugins.mlp.network import multiply_by_torch

    def multiply(c: Any, a: Any, b: Any, variant: Any, alpha: float, beta: float) -> None:
        before = beta * c
        multiply_by_torch(c, a, b, variant)
        c.mul_(alpha).add_(before)

    bench = Bench(node, {})
    a, b = gemm.operands(40, 30, 20, "tn", "float32", 0, "cpu")
    assert (tuple(a.shape), tuple(b.shape)) == ((20, 40), (20, 30))
    c = torch.empty(40, 30)
    multiply_by_torch(c, a, b, "tn")
    gemm.check_product(bench, multiply, c, a, b, "tn")
    assert len(bench.collected.checks) == 2
    c[39, 29] += 1e-2
    with pytest.raises(HpmlError, match="check failed: the product differs from float64's"):
        gemm.check_product(bench, multiply, c, a, b, "tn")
    c[39, 29] -= 1e-2

    def forgets_c(c: Any, a: Any, b: Any, variant: Any, alpha: float, beta: float) -> None:
        multiply(c, a, b, variant, alpha, 0.0)

    with pytest.raises(HpmlError, match="C differs from float64's"):
        gemm.check_product(bench, forgets_c, c, a, b, "tn")
