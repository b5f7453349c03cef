"""The closed set of units. Stored numbers are in these; scaling (ms, GB/s) is for display only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hpml_plugins.errors import DefinitionError

Dimension = dict[str, int]

#: Exponents that a plain number may not change silently: seconds and joules are measured, never declared.
PHYSICAL: Final = ("s", "J")


@dataclass(frozen=True)
class Unit:
    """A unit of the closed set.

    symbol: what plugins write.  dimension: base → exponent (s, B, FLOP, MAC, OP, J).  label: what a page shows.
    """

    symbol: str
    dimension: tuple[tuple[str, int], ...]
    label: str = ""

    def __str__(self) -> str:
        return self.label or self.symbol


def _unit(symbol: str, label: str = "", **dimension: int) -> tuple[str, Unit]:
    return symbol, Unit(symbol, tuple(sorted(dimension.items())), label)


UNITS: Final[dict[str, Unit]] = dict(
    [
        _unit("1"),
        _unit("s", s=1),
        _unit("B", B=1),
        _unit("B/s", B=1, s=-1),
        _unit("FLOP", "FLOP (1 multiply-add = 2 FLOP)", FLOP=1),
        _unit("FLOP/s", "FLOP/s (1 multiply-add = 2 FLOP)", FLOP=1, s=-1),
        _unit("FLOP/B", "FLOP/B (1 multiply-add = 2 FLOP)", FLOP=1, B=-1),
        _unit("MAC", "multiply-add", MAC=1),
        _unit("OP/s", "OP/s (1 multiply-add = 2 OP)", OP=1, s=-1),
        _unit("1/s", s=-1),
        _unit("Hz", s=-1),
        _unit("J", J=1),
        _unit("W", J=1, s=-1),
        _unit("degC", "°C"),
    ]
)


def unit(symbol: str) -> Unit:
    """The unit with this symbol. Raises DefinitionError that lists the known ones."""
    try:
        return UNITS[symbol]
    except KeyError:
        raise DefinitionError(f"unit {symbol!r} is not known; use one of {', '.join(UNITS)}") from None


def agrees(declared: Unit, measured: Dimension, *, declared_numbers: bool) -> bool:
    """Whether a measured dimension may be stored under a declared unit.

    declared_numbers: plain numbers took part in the arithmetic. They may stand for bytes, FLOP or images, so only
    the physical bases (s, J) are then held against the declaration.
    """
    wanted = dict(declared.dimension)
    bases = PHYSICAL if declared_numbers else {*wanted, *measured}
    return all(wanted.get(base, 0) == measured.get(base, 0) for base in bases)
