"""`tile_kernel.make_access` in plain Python, for numba's simulator, which cannot run made machine
code.

Every access is held against its bounds and its border.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hpml_plugins.plugins.mlp.tiles import Kind


class PlainAccess:
    """The same functions, as methods."""

    def __init__(self, kind: Kind) -> None:
        self.kind, self.tile = kind, kind.tile
        self.number = np.dtype(kind.dtype).type

    def fetch_a(
        self, x: Any, at: int, step: int, row: int, rows: int, column: int, columns: int
    ) -> list[Any]:
        down = self.tile.threads // self.kind.a.line
        return self._fetch(self.kind.a.loads, down, x, at, step, row, rows, column, columns)

    def fetch_b(
        self, x: Any, at: int, step: int, row: int, rows: int, column: int, columns: int
    ) -> list[Any]:
        down = self.tile.threads // self.kind.b.line
        return self._fetch(self.kind.b.loads, down, x, at, step, row, rows, column, columns)

    def _fetch(
        self,
        loads: int,
        down: int,
        x: Any,
        at: int,
        step: int,
        row: int,
        rows: int,
        column: int,
        columns: int,
    ) -> list[Any]:
        values: list[Any] = []
        for i in range(loads):
            inside = row + i * down < rows and column < columns
            if not inside and self.kind.guarded:
                values += [self.number(0)] * self.kind.width
                continue
            place = at + i * step
            # the kernel's first, whose values it drops
            if (at, step, row, rows, column, columns) != (0,) * 6:
                assert place == (row + i * down) * columns + column, (
                    "row, column and place disagree"
                )
            assert place % self.kind.width == 0, "not aligned"
            values += [x[place + j] for j in range(self.kind.width)]
        return values

    def put_a(self, shared: Any, at: int, values: list[Any]) -> None:
        down = self.tile.threads // self.kind.a.line
        self._put(
            self.kind.a.loads,
            down,
            self.kind.a.pitch,
            self.kind.a.turned,
            shared,
            at,
            values,
        )

    def put_b(self, shared: Any, at: int, values: list[Any]) -> None:
        down = self.tile.threads // self.kind.b.line
        self._put(
            self.kind.b.loads,
            down,
            self.kind.b.pitch,
            self.kind.b.turned,
            shared,
            at,
            values,
        )

    def _put(
        self,
        loads: int,
        down: int,
        pitch: int,
        turned: bool,
        shared: Any,
        at: int,
        values: list[Any],
    ) -> None:
        for i in range(loads):
            for j in range(self.kind.width):
                place = at + i * down + j * pitch if turned else at + i * down * pitch + j
                shared[place] = values[i * self.kind.width + j]

    def multiply_add(
        self, a: Any, a_at: int, b: Any, b_at: int, sums: list[Any]
    ) -> list[Any]:
        tile, kind = self.tile, self.kind
        sums = list(sums)
        for level in range(tile.depth):
            left = [a[a_at + level * kind.a.pitch + self._row(i)] for i in range(tile.high)]
            right = [
                b[b_at + level * kind.b.pitch + self._column(j)] for j in range(tile.wide)
            ]
            for i in range(tile.high):
                for j in range(tile.wide):
                    sums[i * tile.wide + j] += left[i] * right[j]
        return sums

    def write(
        self,
        c: Any,
        sums: list[Any],
        alpha: Any,
        beta: Any,
        row: int,
        column: int,
        m: int,
        n: int,
    ) -> None:
        for i in range(self.tile.high):
            for j in range(self.tile.wide):
                y, x = row + self._row(i), column + self._column(j)
                if y < m and x < n:
                    kept = beta * c[y * n + x] if beta else self.number(0)
                    c[y * n + x] = alpha * sums[i * self.tile.wide + j] + kept
                else:
                    assert self.kind.guarded, "outside of C"

    def _row(self, i: int) -> int:
        lanes = self.kind.lanes
        return i // lanes * (self.tile.rows // (self.tile.high // lanes)) + i % lanes

    def _column(self, j: int) -> int:
        lanes = self.kind.lanes
        return j // lanes * (self.tile.columns // (self.tile.wide // lanes)) + j % lanes
