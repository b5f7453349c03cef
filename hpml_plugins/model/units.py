"""The closed set of units. Stored numbers use these; scaling (ms, GB/s) is only for display."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hpml_plugins.errors import DefinitionError


@dataclass(frozen=True)
class Unit:
    """A unit of the closed set.

    symbol: what plugins write.  label: what pages write after a number.  lowest, highest: the
    powers of ten for which prefixes are used.  count: whether whole numbers of it are exact, unlike
    those of a measured time.  text: the unit in words, if the label is not clear.  better: the only
    direction that a metric in it can have, besides none; empty if both are possible.
    """

    symbol: str
    label: str
    lowest: int = 0
    highest: int = 0
    count: bool = False
    text: str = ""
    better: str = ""

    def __str__(self) -> str:
        return self.text or self.label or self.symbol


def _flop(symbol: str, base: str = "FLOP") -> str:
    return f"{symbol} (1 multiply-add = 2 {base})"


UNITS: Final = {
    each.symbol: each
    for each in (
        Unit("1", "", count=True),
        Unit("s", "s", -12, 0, better="lower"),  # kiloseconds are not used
        Unit("B", "B", 0, 18, count=True),
        Unit("B/s", "B/s", 0, 18, better="higher"),
        Unit("FLOP", "FLOP", 0, 18, count=True, text=_flop("FLOP")),
        Unit("FLOP/s", "FLOP/s", 0, 18, text=_flop("FLOP/s"), better="higher"),
        Unit("FLOP/B", "FLOP/B", text=_flop("FLOP/B")),
        Unit("MAC", "MAC", 0, 18, count=True, text="multiply-add"),
        Unit("OP/s", "OP/s", 0, 18, text=_flop("OP/s", "OP"), better="higher"),
        Unit("1/s", "/s", 0, 18, text="1/s"),
        Unit("Hz", "Hz", 0, 18),
        Unit("J", "J", -6, 18, better="lower"),
        Unit("W", "W", -3, 18),
        Unit("degC", "°C"),
    )
}


#: Units whose values may be negative unless their metric says otherwise.
SIGNED = ("1", "degC")


def may_be_negative(symbol: str, direction: str | None) -> bool:
    """Whether a metric of this unit may be below 0: differences may, that is counts, and metrics
    that are not ranked.

    A ranked time, rate, energy or power is a measurement and cannot be negative.
    """
    return direction is None or symbol in SIGNED or UNITS[symbol].count


def is_right_direction(symbol: str, direction: str | None) -> bool:
    """Whether a metric of this unit can have this direction: a longer time, for example, is never
    better."""
    better = UNITS[symbol].better
    return direction is None or not better or direction == better


def is_rate(symbol: str) -> bool:
    """Whether the unit is of something per second."""
    return symbol == "Hz" or symbol.endswith("/s")


def unit(symbol: str) -> Unit:
    """The unit with this symbol. Raises DefinitionError that lists the known ones."""
    try:
        return UNITS[symbol]
    except KeyError:
        raise DefinitionError(
            f"unit {symbol!r} is not known; use one of {', '.join(UNITS)}"
        ) from None
