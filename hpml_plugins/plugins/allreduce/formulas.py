"""Sizes as people write them, and nccl-tests' two bandwidths."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

from hpml_plugins import HpmlError

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
_POWERS = {"B": 0, "KiB": 1, "MiB": 2, "GiB": 3}


def size_in_bytes(size: str) -> int:
    """`"16MiB"` as 16 777 216 B. Raises HpmlError for what is no size."""
    found = re.fullmatch(r"([1-9]\d*) ?(B|KiB|MiB|GiB)", size)
    if not found:
        raise HpmlError(f"size {size!r} is not a number with B, KiB, MiB or GiB, such as '16MiB'")
    return int(found[1]) << 10 * _POWERS[found[2]]


def algorithm_bandwidth(nbytes: int, seconds: Any) -> Any:
    """S / t, B/s.

    nbytes: S, of the larger buffer on one rank: what is reduced or broadcast, all of what is gathered, or all of what
    is scattered.  seconds: t, a number or Samples; the result is of the same kind.  Source: as `bus_factor`.
    """
    return nbytes / seconds


def bus_factor(collective: str, ranks: int) -> Fraction:
    """What the algorithm bandwidth is multiplied by to give the bus bandwidth: the share of S that crosses a link.

    n ranks on equal links: all_reduce 2 (n − 1) / n, all_gather and reduce_scatter (n − 1) / n, broadcast 1.
    Raises HpmlError for fewer than two ranks, where nothing crosses a link, and for another collective.
    Source: NVIDIA, nccl-tests, doc/PERFORMANCE.md, "Bus bandwidth".
    """
    if ranks < 2:
        raise HpmlError(f"{ranks} rank has no bus bandwidth: nothing crosses a link; use two or more")
    factors = {
        "all_reduce": Fraction(2 * (ranks - 1), ranks),
        "all_gather": Fraction(ranks - 1, ranks),
        "reduce_scatter": Fraction(ranks - 1, ranks),
        "broadcast": Fraction(1),
    }
    if collective not in factors:
        raise HpmlError(f"no collective {collective!r}; use one of {', '.join(COLLECTIVES)}")
    return factors[collective]


def bus_bandwidth(collective: str, nbytes: int, seconds: Any, ranks: int) -> Any:
    """Algorithm bandwidth times `bus_factor`, B/s: comparable to the links' own, whatever the number of ranks."""
    return algorithm_bandwidth(nbytes, seconds) * float(bus_factor(collective, ranks))
