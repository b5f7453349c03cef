"""The tilings of the product, and the search for the best one. Pure: nothing here uses a GPU."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from hpml_plugins import HpmlError

#: Whether A and B are used as stored or transposed, in BLAS notation.
Variant = Literal["nn", "nt", "tn"]
VARIANTS: tuple[Variant, ...] = ("nn", "nt", "tn")
Dtype = Literal["float32", "float64"]
ITEM = {"float32": 4, "float64": 8}
#: B in one access: the widest of a thread.
ACCESS = 16
#: Threads of a warp, as rows and columns of the tile's threads: 32 threads then read A and B in 4
#: and 8 accesses, one bank conflict fewer than in a line.
WARP_ROWS, WARP_COLUMNS = 4, 8


@dataclass(frozen=True)
class Tile:
    """One tiling of the product."""

    #: The tile of C that a block computes.
    rows: int
    columns: int
    #: The depth of A and B in shared memory at a time (twice).
    depth: int
    #: Rows and columns of C that a thread computes, in registers.
    high: int
    wide: int
    #: Registers that a thread may use; 0: chosen by the compiler. With 128 a multiprocessor holds
    #: two blocks of 256 threads.
    registers: int = 0
    #: The number of parts of the depth. Each has its own blocks; a second kernel adds up their
    #: sums.
    parts: int = 1

    @property
    def threads(self) -> int:
        """Of a block."""
        return (self.rows // self.high) * (self.columns // self.wide)

    def blocks(self, m: int, n: int) -> tuple[int, int, int]:
        """The grid over an m × n product: across, down, and parts of its depth."""
        return -(-n // self.columns), -(-m // self.rows), self.parts

    def waste(self, m: int, n: int) -> float:
        """Computed over needed elements."""
        across, down, _ = self.blocks(m, n)
        return across * down * self.rows * self.columns / (m * n)

    def __str__(self) -> str:
        limit = f", {self.registers} registers" if self.registers else ""
        parts = f", {self.parts} parts" if self.parts > 1 else ""
        return (
            f"{self.rows}x{self.columns}x{self.depth}, {self.high}x{self.wide} a"
            f" thread{limit}{parts}"
        )


#: The tiles to try. The large ones are for large products: 64 to 128 sums per thread for 16 to 24
#: values read.
TILES: Mapping[Dtype, tuple[Tile, ...]] = {
    "float32": (
        Tile(128, 128, 8, 8, 8),
        Tile(128, 128, 8, 8, 8, 128),
        Tile(128, 128, 16, 8, 8),
        Tile(128, 128, 16, 8, 8, 128),
        Tile(128, 256, 8, 8, 16),
        Tile(64, 64, 16, 8, 4),
        Tile(32, 32, 16, 4, 4),
    ),
    "float64": (
        Tile(64, 64, 8, 4, 4),
        Tile(128, 64, 8, 8, 4),
        Tile(64, 64, 16, 8, 4),
        Tile(32, 32, 16, 4, 4),
    ),
}
#: A tile that computes more than this multiple of the needed elements is not tried if another
#: wastes less.
MOST_WASTE = 2.0
#: If every tile gives fewer blocks than a large card has multiprocessors, the product is also tried
#: in parts.
FEW_BLOCKS = 128
PARTS = (4, 8, 16, 32)
#: The tiles for a network's products, two of which are 10 wide; few, because each is compiled for
#: each kind of product.
FEW: Mapping[Dtype, tuple[Tile, ...]] = {
    "float32": (Tile(128, 128, 8, 8, 8, 128), Tile(64, 64, 16, 8, 4), Tile(32, 32, 16, 4, 4)),
    "float64": (Tile(128, 64, 8, 8, 4), Tile(32, 32, 16, 4, 4)),
}


@dataclass(frozen=True)
class Operand:
    """How a block reads its tile of A or B."""

    #: Whether depth is contiguous, so that the tile must be transposed on its way to shared memory.
    turned: bool
    #: Elements from one row in shared memory to the next: one access more than its length, for
    #: other banks.
    pitch: int
    #: Accesses along the contiguous dimension, and of each thread.
    line: int
    loads: int


@dataclass(frozen=True)
class Kind:
    """A compiled kernel: a tile for a variant, a dtype, and the shapes that it is safe for."""

    tile: Tile
    variant: Variant
    dtype: Dtype
    #: Elements in one access to A and B: all that fit, or 1 if rows are not aligned to accesses.
    width: int
    #: Whether the product may end inside a tile.
    guarded: bool
    #: Whether it computes the sums of one part of the depth, for any number of parts.
    split: bool = False

    @property
    def lanes(self) -> int:
        """Elements in one access to shared memory."""
        return ACCESS // ITEM[self.dtype]

    @property
    def a(self) -> Operand:
        """A is stored by rows unless it is transposed."""
        return self._operand(self.tile.rows, turned=self.variant[0] == "n")

    @property
    def b(self) -> Operand:
        """B is stored by depth unless it is transposed."""
        return self._operand(self.tile.columns, turned=self.variant[1] == "t")

    def _operand(self, extent: int, *, turned: bool) -> Operand:
        line = (self.tile.depth if turned else extent) // self.width
        return Operand(
            turned,
            extent + self.lanes,
            line,
            extent * self.tile.depth // (self.tile.threads * self.width),
        )


def kind_of(
    tile: Tile, variant: Variant, dtype: Dtype, m: int, n: int, k: int, *, aligned: bool = True
) -> Kind:
    """The fastest kind of the tile that is safe for op(A) m × k, op(B) k × n.

    aligned: whether all three are aligned to accesses. Raises HpmlError for an empty product.
    """
    if min(m, n, k) < 1:
        raise HpmlError(f"a product of {m} × {k} and {k} × {n} is empty")
    lanes = ACCESS // ITEM[dtype]
    in_line = (k if variant[0] == "n" else m, k if variant[1] == "t" else n, n)
    width = lanes if aligned and not any(extent % lanes for extent in in_line) else 1
    guarded = bool(m % tile.rows or n % tile.columns or k % tile.depth)
    return Kind(replace(tile, parts=1), variant, dtype, width, guarded, split=tile.parts > 1)


def worth_trying(tiles: Iterable[Tile], m: int, n: int, k: int) -> list[Tile]:
    """Tiles without much wasted work, unlike wide ones for ten columns; at least the most
    efficient.

    If even the smallest of them gives too few blocks to occupy the card, they are also tried in
    parts.
    """
    thriftiest = min(tile.waste(m, n) for tile in tiles)
    chosen = [tile for tile in tiles if tile.waste(m, n) <= max(MOST_WASTE, thriftiest)]
    if max(math.prod(tile.blocks(m, n)) for tile in chosen) >= FEW_BLOCKS:
        return chosen
    return chosen + list(dict.fromkeys(part for tile in chosen for part in in_parts(tile, k)))


def in_parts(tile: Tile, k: int) -> list[Tile]:
    """The tile with the depth k divided into each number of PARTS, or fewer parts, each of at least
    two tiles."""
    tiles = -(-k // tile.depth)
    counts = (-(-tiles // -(-tiles // parts)) for parts in PARTS if 2 * parts <= tiles)
    return [replace(tile, parts=count) for count in counts]
