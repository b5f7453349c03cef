"""Who trains together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Crew:
    """Who trains together. index, count: this process among them.  wrap: makes the network one that shares gradients.

    total: adds numbers up over all.
    """

    index: int = 0
    count: int = 1
    wrap: Callable[[Any], Any] = lambda network: network
    total: Callable[[list[float]], list[float]] = lambda numbers: numbers


ALONE = Crew()
