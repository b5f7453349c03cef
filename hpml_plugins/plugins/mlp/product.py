"""C = alpha · op(A) op(B) + beta · C of torch tensors by the tiled kernel. Imports torch and
numba.cuda."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy
import torch
from numba import cuda
from numba.cuda.extending import intrinsic

from hpml_plugins import Bench
from hpml_plugins.plugins.mlp.tile_kernel import add_parts, make_access, make_kernel
from hpml_plugins.plugins.mlp.tiles import (
    ACCESS,
    FEW,
    TILES,
    Dtype,
    Kind,
    Tile,
    Variant,
    kind_of,
    worth_trying,
)

#: Time for trying each tile on a shape, s, and for its warm-up.
TRIAL, WARM_UP = 5e-3, 2e-3
#: Threads of a block that adds up the parts of a product.
ADDING = 256
#: Limit of cached launches: each keeps its matrices alive.
MOST_BOUND = 64


class Tiled:
    """The product by our kernel, using the fastest tile for each shape: `chosen`.

    many: whether to try all tiles, or only the few that a network needs. Matrices must be
    contiguous, on the current GPU.
    """

    def __init__(self, bench: Bench, *, many: bool = False) -> None:
        cuda.select_device(torch.cuda.current_device())  # a rank's card may not be the first
        self._bench = bench
        self._tiles = TILES if many else FEW
        self._bound: dict[tuple[Any, ...], Callable[[], None]] = {}
        self.chosen: dict[tuple[Variant, Dtype, int, int, int], Tile] = {}

    def __call__(
        self, c: Any, a: Any, b: Any, variant: Variant, alpha: float = 1.0, beta: float = 0.0
    ) -> None:
        """C = alpha · op(A) op(B) + beta · C. A new shape is tuned first."""
        stream = torch.cuda.current_stream().cuda_stream
        known = (
            variant,
            c.data_ptr(),
            a.data_ptr(),
            b.data_ptr(),
            c.shape,
            a.shape,
            c.dtype,
            alpha,
            beta,
            stream,
        )
        if known not in self._bound:
            m, n, k, dtype = shape_of(c, a, variant)
            key = (variant, dtype, m, n, k)
            if key not in self.chosen:
                self.chosen[key] = next(iter(self.tried(c, a, b, variant)))
            if len(self._bound) >= MOST_BOUND:
                self._bound.clear()
            self._bound[known] = bound(self.chosen[key], c, a, b, variant, alpha, beta)
        self._bound[known]()

    def tried(self, c: Any, a: Any, b: Any, variant: Variant) -> dict[Tile, float]:
        """A short timing of a product of this shape with each tile, s, the fastest first."""
        m, n, k, dtype = shape_of(c, a, variant)
        into, plan = (
            torch.empty_like(c),
            self._bench.plan.but(budget=TRIAL, warm_up=WARM_UP, fewest=3),
        )

        def seconds(tile: Tile) -> float:
            return self._bench.time(bound(tile, into, a, b, variant), plan=plan, quiet=True).median

        times = {tile: seconds(tile) for tile in worth_trying(self._tiles[dtype], m, n, k)}
        return dict(sorted(times.items(), key=lambda item: item[1]))


def bound(
    tile: Tile, c: Any, a: Any, b: Any, variant: Variant, alpha: float = 1.0, beta: float = 0.0
) -> Callable[[], None]:
    """A function that multiplies with this tile on the current stream; matrices are wrapped for
    numba only once."""
    m, n, k, dtype = shape_of(c, a, variant)
    aligned = not any(x.data_ptr() % ACCESS for x in (a, b, c))
    kernel = compiled(kind_of(tile, variant, dtype, m, n, k, aligned=aligned))
    handle = torch.cuda.current_stream().cuda_stream
    stream = cuda.external_stream(handle) if handle else 0
    parts = tile.parts
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a small product has few blocks, as expected
        launch = kernel[tile.blocks(m, n), tile.threads, stream]
        add_up = compiled_add_parts()[-(-m * n // ADDING), ADDING, stream] if parts > 1 else None
    of_a, of_b, of_c = (cuda.as_cuda_array(x.detach().view(-1)) for x in (a, b, c))
    number = getattr(numpy, dtype)
    one, other = number(alpha), number(beta)
    if not add_up:
        return lambda: launch(one, of_a, of_b, other, of_c, m, n, k)
    partial = cuda.as_cuda_array(torch.empty(parts * m * n, dtype=c.dtype, device=c.device))

    def launch_both() -> None:
        launch(number(1), of_a, of_b, number(0), partial, m, n, k)
        add_up(one, partial, other, of_c, parts)

    return launch_both


@functools.cache
def compiled(kind: Kind) -> Any:
    """The launchable kernel of this kind."""
    options = {"max_registers": kind.tile.registers} if kind.tile.registers else {}
    return cuda.jit(**options)(make_kernel(kind, make_access(kind, intrinsic)))


@functools.cache
def compiled_add_parts() -> Any:
    """The kernel that adds up the parts of a product."""
    return cuda.jit(add_parts)


def shape_of(c: Any, a: Any, variant: Variant) -> tuple[int, int, int, Dtype]:
    """m, n, k and dtype of C = op(A) op(B)."""
    (m, n), k = c.shape, a.shape[0 if variant[0] == "t" else 1]
    return m, n, k, "float64" if c.dtype == torch.float64 else "float32"
