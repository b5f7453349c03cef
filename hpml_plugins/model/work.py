"""The work that a benchmark declares for one call of what it times, and the rates and shares that
follow from it."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import msgspec

from hpml_plugins.model.checking import Amount, Text


class Limit(NamedTuple):
    """The highest rates of a device. flop: FLOP/s in the precision that was asked for.  bytes: of
    its memory, B/s.

    None where it is not known.
    """

    flop: float | None
    bytes: float | None


class DeclaredWork(msgspec.Struct, frozen=True, omit_defaults=True):
    """The work of one call of a step. flop: operations (1 multiply-add = 2).  bytes: read and
    written in memory.

    dtype: the precision of the operations.  gpus: on how many GPUs, evenly; 0 for a CPU.
    roof: whether the step looks for the highest rate of the machine.
    """

    flop: Amount = 0.0
    bytes: Amount = 0.0
    dtype: Text = "float32"
    gpus: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 0
    roof: bool = False

    @property
    def intensity(self) -> float | None:
        """FLOP/B; None where one of the two is not declared."""
        return self.flop / self.bytes if self.flop and self.bytes else None

    def amount(self, unit: str) -> float:
        """What a metric of this unit is per second; 0 for one that does not follow from the
        work."""
        return {"FLOP/s": self.flop, "OP/s": self.flop, "B/s": self.bytes}.get(unit, 0.0)

    def share(self, seconds: float, limit: Limit) -> float | None:
        """The shortest time that the limits of each device allow, over the time taken, 0 to 1.

        That is the share of the roofline at this intensity; None where no limit of what was
        declared is known. Source: Williams, Waterman, Patterson, Roofline, Commun. ACM 52 (2009).
        """
        known = ((self.flop, limit.flop), (self.bytes, limit.bytes))
        shortest = max(
            (amount / highest for amount, highest in known if amount and highest),
            default=None,
        )
        return shortest / max(1, self.gpus) / seconds if shortest and seconds else None
