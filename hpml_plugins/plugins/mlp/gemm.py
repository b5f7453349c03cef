"""`mlp_gemm`: the tiled product and torch's, in one process, on the same matrices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

from hpml_plugins import Bench, Benchmark, HpmlError, Metric, Requires, Samples
from hpml_plugins.plugins.mlp.tiles import VARIANTS, Dtype, Tile, Variant

#: m × n × k: squares, and the products of the coursework's network, 784 – 512 – 10 with 1500
#: pictures on each GPU: both of the forward pass, the first and the last of the backward pass
#: (which as a rule are nt, nt, tn, tn).
SHAPES = (
    "1024x1024x1024",
    "4096x4096x4096",
    "8192x8192x8192",
    "1500x512x784",
    "1500x10x512",
    "10x512x1500",
    "512x784x1500",
)
#: |C − C64| over |A| |B| row by column may be this many roundings of the dtype for any order of the
#: sum: with random signs it grows with √k, and this is far above that.
ROUNDINGS = 64


def measure_gemm(
    bench: Bench, *, shape: str, dtype: Dtype, variant: Variant
) -> Mapping[str, Samples | float]:
    """Time C = op(A) op(B). variant: "nn", "nt" (B given transposed) or "tn" (A given
    transposed)."""
    m, n, k = parse_shape(shape)

    import torch

    from hpml_plugins.plugins.mlp.network import multiply_by_torch
    from hpml_plugins.plugins.mlp.product import Tiled, bound

    torch.backends.cuda.matmul.allow_tf32 = False
    a, b = operands(m, n, k, variant, dtype, bench.seed, bench.device)
    own, theirs = (torch.empty(m, n, dtype=a.dtype, device=bench.device) for _ in range(2))
    bench.progress("trying tiles", 0.1)
    tiled = Tiled(bench, many=True)
    tried = find_tiles(bench, tiled, own, a, b, variant)
    best = tiled.chosen[variant, dtype, m, n, k] = next(iter(tried))
    bench.series(
        "tuning",
        {
            "tile": [str(tile) for tile in tried],
            "time": list(tried.values()),
            "waste": [t.waste(m, n) for t in tried],
        },
        {"time": "s", "waste": "1"},
    )
    bench.progress("checking", 0.4)
    tiled(own, a, b, variant)
    check_product(bench, tiled, own, a, b, variant)
    bench.progress("timing", 0.5)
    time = bench.time(bound(best, own, a, b, variant)).note(tile=str(best))
    other = bench.time(lambda: multiply_by_torch(theirs, a, b, variant), name="torch")
    bench.work(flop=2.0 * m * n * k, dtype=dtype)  # computes the rate
    return {"time": time, "torch": other, "vs_torch": other.median / time.median}


def find_tiles(
    bench: Bench, tiled: Any, c: Any, a: Any, b: Any, variant: Variant
) -> dict[Tile, float]:
    """The time of a product with each tile, s, the fastest first, measured by `tiled` in the first
    round of the point."""

    def search() -> list[tuple[list[int], float]]:
        return [
            (list(astuple(tile)), seconds)
            for tile, seconds in tiled.tried(c, a, b, variant).items()
        ]

    return {Tile(*fields): seconds for fields, seconds in bench.once("tuning", search)}


def parse_shape(shape: str) -> tuple[int, int, int]:
    """m, n, k of "mxnxk". Raises HpmlError for other texts."""
    try:
        m, n, k = map(int, shape.split("x"))
    except ValueError:
        raise HpmlError(f"shape {shape!r} is not spelled m x n x k, as in 4096x4096x4096") from None
    return m, n, k


def operands(
    m: int, n: int, k: int, variant: Variant, dtype: Dtype, seed: int, device: str
) -> tuple[Any, Any]:
    """A and B in their stored layout, normally distributed."""
    import torch

    generator = torch.Generator(device=device).manual_seed(seed)
    shapes = ((k, m) if variant[0] == "t" else (m, k), (n, k) if variant[1] == "t" else (k, n))
    left, right = (
        torch.randn(shape, generator=generator, dtype=getattr(torch, dtype), device=device)
        for shape in shapes
    )
    return left, right


def check_product(bench: Bench, multiply: Any, c: Any, a: Any, b: Any, variant: Variant) -> None:
    """Compare C, which `multiply` computed, and alpha · op(A) op(B) + beta · C with float64; rows
    at both ends of C."""
    import torch

    rows = min(len(c), 256)
    chosen = (
        torch.cat([torch.arange(rows), torch.arange(len(c) - rows, len(c))]).unique().to(c.device)
    )
    left = (a.T if variant[0] == "t" else a)[chosen].double()
    right = (b.T if variant[1] == "t" else b).double()
    wanted, scale = left @ right, left.abs() @ right.abs()
    limit = ROUNDINGS * torch.finfo(c.dtype).eps
    error = float(((bench.result(c[chosen]).double() - wanted).abs() / scale).max())
    bench.check(
        error <= limit, f"the product differs from float64's by more than {ROUNDINGS} roundings"
    )
    before = torch.randn_like(c)
    after = before.clone()
    multiply(after, a, b, variant, 0.5, -2.0)
    wanted, scale = (
        0.5 * wanted - 2 * before[chosen].double(),
        0.5 * scale + 2 * before[chosen].double().abs(),
    )
    error = float(((after[chosen].double() - wanted).abs() / scale).max())
    bench.check(
        error <= limit,
        f"alpha · A B + beta · C differs from float64's by more than {ROUNDINGS} roundings",
    )


GEMM = Benchmark(
    "mlp_gemm",
    measure_gemm,
    (
        Metric("time", "s", "lower", "one product by the tiled kernel"),
        Metric("rate", "FLOP/s", "higher", "2 m n k over that time"),
        Metric("torch", "s", "lower", "the same by torch (cuBLAS), without tf32"),
        Metric("vs_torch", "1", "higher", "torch's time over ours: 1 is as fast"),
    ),
    {"shape": SHAPES, "dtype": ("float32", "float64"), "variant": VARIANTS},
    Requires(gpus=1, modules=("numba.cuda", "torch")),
    timeout=120,
    description="A tiled matrix product in numba CUDA, tuned for the card, and torch's.",
)
