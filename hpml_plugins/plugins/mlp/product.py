"""C = alpha · op(A) op(B) + beta · C of torch tensors by the tiled kernel. Imports torch and numba.cuda."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy
import torch

from hpml_plugins import HpmlError
from hpml_plugins.plugins.mlp.holding import hold_back
from hpml_plugins.plugins.mlp.tiles import (
    ACCESS,
    FEW,
    TILES,
    Dtype,
    Kind,
    Tile,
    Variant,
    kind_of,
    tune,
    worth_trying,
)

#: How long each tile is tried on a shape, s, and how often it is launched first.
TRIAL, WARM_UP = 5e-3, 2
MOST_LAUNCHES = 50
#: Longer than numba needs for a launch, s.
A_LAUNCH = 2e-4
#: Launches that are kept ready: each keeps its matrices alive.
MOST_BOUND = 64

Key = tuple[Variant, Dtype, int, int, int]


class Tiled:
    """The same by our kernel, each shape with the tile that was fastest on it; the choices are in `chosen`.

    many: whether all tiles are tried, or the few that a network needs. All matrices must be contiguous and on the
    current GPU; launches are on torch's current stream.
    """

    def __init__(self, *, many: bool = False) -> None:
        from numba import cuda

        cuda.select_device(torch.cuda.current_device())  # a rank's card need not be the first
        self._tiles = TILES if many else FEW
        self._compiled: dict[Kind, Any] = {}
        self._bound: dict[tuple[Any, ...], Callable[[], None]] = {}
        self.chosen: dict[Key, Tile] = {}
        self.tried: dict[Key, dict[Tile, float]] = {}

    def __call__(self, c: Any, a: Any, b: Any, variant: Variant, alpha: float = 1.0, beta: float = 0.0) -> None:
        """C = alpha · op(A) op(B) + beta · C. A shape that is new is tuned first."""
        stream = torch.cuda.current_stream().cuda_stream
        known = (variant, c.data_ptr(), a.data_ptr(), b.data_ptr(), c.shape, a.shape, c.dtype, alpha, beta, stream)
        if known not in self._bound:
            m, n, k, dtype = shape_of(c, a, b, variant)
            key = (variant, dtype, m, n, k)
            if key not in self.chosen:
                tiles = worth_trying(self._tiles[dtype], m, n)
                self.tried[key] = tune(tiles, lambda tile: self._seconds(tile, a, b, c, variant))
                self.chosen[key] = next(iter(self.tried[key]))
            if len(self._bound) >= MOST_BOUND:
                self._bound.clear()
            self._bound[known] = self.bound(self.chosen[key], c, a, b, variant, alpha, beta)
        self._bound[known]()

    def bound(
        self, tile: Tile, c: Any, a: Any, b: Any, variant: Variant, alpha: float = 1.0, beta: float = 0.0
    ) -> Callable[[], None]:
        """What does it with this tile, on the stream that is current now. Wrapping matrices for numba takes longer than
        launching, so it is done once.
        """
        from numba import cuda

        m, n, k, dtype = shape_of(c, a, b, variant)
        aligned = not any(x.data_ptr() % ACCESS for x in (a, b, c))
        kernel = self._kernel(kind_of(tile, variant, dtype, m, n, k, aligned=aligned))
        blocks = (-(-n // tile.columns), -(-m // tile.rows))
        handle = torch.cuda.current_stream().cuda_stream
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a small product has few blocks, and that is no news
            launch = kernel[blocks, tile.threads, cuda.external_stream(handle) if handle else 0]
        of_a, of_b, of_c = (cuda.as_cuda_array(x.detach().view(-1)) for x in (a, b, c))
        one, other = (_NUMBERS[dtype](value) for value in (alpha, beta))
        return lambda: launch(one, of_a, of_b, other, of_c, m, n, k)

    def _kernel(self, kind: Kind) -> Any:
        if kind not in self._compiled:
            self._compiled[kind] = compiled(kind)
        return self._compiled[kind]

    def _seconds(self, tile: Tile, a: Any, b: Any, c: Any, variant: Variant) -> float:
        """A first look at how long one product takes, s, into a C of its own."""
        into = torch.empty_like(c)
        return seconds_of(self.bound(tile, into, a, b, variant))


_NUMBERS = {"float32": numpy.float32, "float64": numpy.float64}


def compiled(kind: Kind) -> Any:
    """The kind's kernel, to be launched. Raises HpmlError for a kind that cannot be."""
    from numba import cuda
    from numba.cuda.extending import intrinsic

    from hpml_plugins.plugins.mlp.tile_access import make_access
    from hpml_plugins.plugins.mlp.tile_kernel import make_kernel

    if flaw := kind.flaw():
        raise HpmlError(flaw)
    options = {"max_registers": kind.tile.registers} if kind.tile.registers else {}
    return cuda.jit(**options)(make_kernel(kind, make_access(kind, intrinsic)))


def shape_of(c: Any, a: Any, b: Any, variant: Variant) -> tuple[int, int, int, Dtype]:
    """m, n, k and dtype of C = op(A) op(B). Raises HpmlError where the matrices do not fit, and for another dtype."""
    m, k = reversed(a.shape) if variant[0] == "t" else a.shape
    k_of_b, n = reversed(b.shape) if variant[1] == "t" else b.shape
    dtype = str(a.dtype).removeprefix("torch.")
    if k != k_of_b or tuple(c.shape) != (m, n) or not a.dtype == b.dtype == c.dtype or dtype not in TILES:
        told = " and ".join(f"{tuple(x.shape)} {x.dtype}" for x in (a, b))
        raise HpmlError(f"no product {variant} of {told} into {tuple(c.shape)} {c.dtype}")
    if not all(x.is_contiguous() for x in (a, b, c)):
        raise HpmlError("the tiled product takes contiguous matrices; call .contiguous() before")
    return int(m), int(n), int(k), "float64" if dtype == "float64" else "float32"


def seconds_of(step: Callable[[], object]) -> float:
    """A first look at how long a step takes on the GPU, s: some in a row, between two events, launches hidden."""
    for _ in range(WARM_UP):
        step()

    def taken(count: int) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        hold_back(A_LAUNCH * (count + 2))
        start.record()
        for _ in range(count):
            step()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3 / count

    return taken(max(3, min(MOST_LAUNCHES, round(TRIAL / max(taken(1), 1e-6)))))
