"""A collective's buffers on one rank: filled with known numbers and poison, and held against the expected result.

Every element is a whole number below 1021 that depends on its place and its rank. Sums over up to 16 thousand ranks
are below 2^24 and so exact in float32: what comes out must equal the float64 reference, in whatever order it was added.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hpml_plugins import HpmlError, Rank

FLOAT32 = 4  # B
#: Elements that are filled or compared at a time: the reference of 8 GiB would not fit beside two buffers of them.
CHUNK = 1 << 22
#: A prime, so that no power of two of elements repeats the pattern: a piece in the wrong place is seen.
PERIOD = 1021


def value(rank: Any, place: Any) -> Any:
    """What a rank sends at a place, a whole number.  rank, place: numbers or integer tensors."""
    return (place * (2 * rank + 1) + rank) % PERIOD


class Buffers:
    """What one rank sends and receives.

    nbytes: of the larger buffer, as nccl-tests counts.  in_place: whether NCCL finds the result where the input was.
    send, receive: float32 tensors on the rank's device; one is part of the other, or both are the same, in place.
    """

    def __init__(self, rank: Rank, collective: str, nbytes: int, *, in_place: bool) -> None:
        import torch

        self.torch = torch
        self.rank = rank
        self.collective = collective
        self.in_place = in_place
        whole = nbytes // FLOAT32
        self.piece, left = divmod(whole, rank.count)
        if left or whole * FLOAT32 != nbytes:
            raise HpmlError(f"{nbytes} B of float32 cannot be shared out evenly over {rank.count} ranks")
        large = self._empty(whole)
        own = large.narrow(0, rank.index * self.piece, self.piece) if in_place else None
        if collective == "all_gather":
            self.send, self.receive = self._empty(self.piece) if own is None else own, large
        elif collective == "reduce_scatter":
            self.send, self.receive = large, self._empty(self.piece) if own is None else own
        else:
            self.send, self.receive = large, large if in_place else self._empty(whole)

    def fill(self) -> None:
        """Fresh input, and NaN wherever only the collective may put a number."""
        self.receive.fill_(float("nan"))
        if self.collective != "broadcast" or self.rank.index == 0:
            self._each_chunk(self.send, lambda chunk, places: chunk.copy_(value(self.rank.index, places)))

    def wrong(self) -> int:
        """How many received elements differ from the float64 reference."""
        differ = self.torch.zeros((), dtype=self.torch.int64, device=self.receive.device)

        def compare(chunk: Any, places: Any) -> None:
            differ.add_((chunk.double() != self._expected(places).double()).sum())

        self._each_chunk(self.receive, compare)
        return int(differ.item())

    def _expected(self, places: Any) -> Any:
        if self.collective == "broadcast":
            return value(0, places)
        if self.collective == "all_gather":
            return value(places // self.piece, places % self.piece)
        if self.collective == "reduce_scatter":
            places = places + self.rank.index * self.piece
        return sum(value(rank, places) for rank in range(self.rank.count))

    def _each_chunk(self, buffer: Any, do: Callable[[Any, Any], object]) -> None:
        for start in range(0, buffer.numel(), CHUNK):
            chunk = buffer[start : start + CHUNK]
            places = self.torch.arange(start, start + chunk.numel(), dtype=self.torch.int64, device=buffer.device)
            do(chunk, places)

    def _empty(self, elements: int) -> Any:
        return self.torch.empty(elements, dtype=self.torch.float32, device=self.rank.device)
