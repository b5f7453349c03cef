"""The work that a benchmark declares for one call, and the rates and shares derived from it."""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

import msgspec

from hpml_plugins.model.checking import Amount, Text


class Limit(NamedTuple):
    """The highest rates of a device. flop: FLOP/s in the requested precision.  bytes: of its
    memory, B/s.

    None if unknown.
    """

    flop: float | None
    bytes: float | None


class DeclaredWork(msgspec.Struct, frozen=True, omit_defaults=True):
    """The work of one call of a step. flop: operations (1 multiply-add = 2).  bytes: read and
    written in memory.

    dtype: the precision of the operations.  gpus: the number of GPUs that share it evenly; 0 for a
    CPU.  roof: whether the step measures the highest rate of the machine.
    """

    flop: Amount = 0.0
    bytes: Amount = 0.0
    dtype: Text = "float32"
    gpus: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 0
    roof: bool = False

    @property
    def intensity(self) -> float | None:
        """FLOP/B; None if one of the two is not declared."""
        return self.flop / self.bytes if self.flop and self.bytes else None

    def amount(self, unit: str) -> float:
        """The amount that a metric of this unit counts per second; 0 for a unit not derived from
        work."""
        return {"FLOP/s": self.flop, "OP/s": self.flop, "B/s": self.bytes}.get(unit, 0.0)

    def share(self, seconds: float, limit: Limit) -> float | None:
        """The shortest time that the limits of each device allow, divided by the measured time, 0
        to 1.

        This is the share of the roofline at this intensity; None without declared work, and if one
        of its limits is unknown, because that one may be what bounds it. Source: Williams,
        Waterman, Patterson, Roofline, Commun. ACM 52 (2009).
        """
        limits = ((self.flop, limit.flop), (self.bytes, limit.bytes))
        shortest = max(
            (
                amount / highest if highest else math.inf
                for amount, highest in limits
                if amount
            ),
            default=0.0,
        )
        if not seconds or not 0 < shortest < math.inf:
            return None
        return shortest / max(1, self.gpus) / seconds
