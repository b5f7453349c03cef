"""Numbers as a reader wants them: scaled, with unit, interval and ratio. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

DIGITS: Final = 4
MINUS: Final = "\u2212"
THIN_SPACE: Final = "\u202f"
Judgement = Literal["better", "worse", "equal"]

_PREFIXES: Final = {
    -12: "p",
    -9: "n",
    -6: "µ",
    -3: "m",
    0: "",
    3: "k",
    6: "M",
    9: "G",
    12: "T",
    15: "P",
    18: "E",
}


@dataclass(frozen=True)
class Shown:
    """How a unit is shown: its symbol, the lowest and highest power of ten that a prefix may stand for.

    count: whole numbers of it are exact, as those of a measured time are not.
    """

    label: str
    lowest: int = 0
    highest: int = 0
    count: bool = False


_UNITS: Final = {
    "1": Shown("", count=True),
    "s": Shown("s", -12, 0),  # nobody reads a kilosecond
    "B": Shown("B", 0, 18, count=True),
    "B/s": Shown("B/s", 0, 18),
    "FLOP": Shown("FLOP", 0, 18, count=True),
    "FLOP/s": Shown("FLOP/s", 0, 18),
    "FLOP/B": Shown("FLOP/B"),
    "MAC": Shown("MAC", 0, 18, count=True),
    "OP/s": Shown("OP/s", 0, 18),
    "1/s": Shown("/s", 0, 18),
    "Hz": Shown("Hz", 0, 18),
    "J": Shown("J", -6, 18),
    "W": Shown("W", -3, 18),
    "degC": Shown("°C"),
}


def shown_unit(symbol: str) -> Shown:
    """How a unit is shown. One outside the closed set (of a plain asv project) is shown as it is, unscaled."""
    return _UNITS.get(symbol) or Shown(symbol, count=True)


def quantity(value: float, unit: str) -> str:
    """A value with its unit: `quantity(0.00123, "s")` is "1.230 ms". Four significant digits."""
    shown = shown_unit(unit)
    power = _power(value, shown)
    return _with_unit(_digits(value / 10.0**power, DIGITS, count=shown.count), power, shown)


def estimate(value: float, low: float | None, high: float | None, unit: str) -> str:
    """A value with its unit and half the width of its interval: `750.7 TFLOP/s ± 0.8 %`.

    Every command and page writes measured numbers by this function. Without an interval (a count, too few samples)
    it is `quantity` alone.
    """
    text = quantity(value, unit)
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)) or not value:
        return text
    percent = (high - low) / 2 / abs(value) * 100
    return f"{text} ± {percent:.0f} %" if percent >= 10 else f"{text} ± {percent:.2g} %"


def better_by(value: float, base: float, direction: str | None) -> float | None:
    """How many times better than the base: above 1 is better, whichever direction is.

    direction: "lower" or "higher". None where no ratio can be formed: the direction is unknown, or a
    number is not above 0.
    """
    if direction not in ("lower", "higher") or not (_positive(value) and _positive(base)):
        return None
    return base / value if direction == "lower" else value / base


def ratio(times: float) -> str:
    """A ratio with its sign: "▲ 2.00×" better, "▼ 0.50×" worse, "= 1.00×" where no difference shows."""
    return f"{_SIGNS[judge(times)]} {_times(times)}×"


def judge(times: float) -> Judgement:
    """Whether a ratio is better, worse or, at the digits shown, equal."""
    if _times(times) == "1.00":
        return "equal"
    return "better" if times > 1 else "worse"


def format_point(params: Mapping[str, object]) -> str:
    """A point as text: `rows=4096, mode=fast`. Empty for a benchmark without parameters."""
    return format_point_texts({name: repr(value) for name, value in params.items()})


def format_point_texts(texts: Mapping[str, str]) -> str:
    """The same where values are spelled as Python's repr, as asv spells them."""
    return ", ".join(f"{name}={unquoted(text)}" for name, text in texts.items())


def unquoted(value: str) -> str:
    """Python's repr of a value without the quotes of a string."""
    if len(value) > 2 and value[0] == value[-1] and value[0] in "'\"":
        return value[1:-1]
    return value


_SIGNS: Final[dict[Judgement, str]] = {"better": "▲", "worse": "▼", "equal": "="}


def _times(times: float) -> str:
    # static/gpus.js repeats this; tests/report/site/test_browser.py holds the two together.
    if times < 0.0001:
        return "<0.0001"
    return f"{times:.{0 if times >= 100 else 1 if times >= 10 else 2 if times >= 0.1 else 4}f}"


def _positive(value: float) -> bool:
    return math.isfinite(value) and value > 0


def _power(value: float, shown: Shown) -> int:
    """The power of ten, a multiple of three, whose prefix makes the value read well."""
    if value == 0 or not math.isfinite(value):
        return 0
    # Rounded first: 999.96 µs is shown as 1.000 ms, not as 1000 µs.
    exponent = math.floor(math.log10(float(f"{abs(value):.{DIGITS}g}")) + 1e-9)
    return max(shown.lowest, min(shown.highest, 3 * (exponent // 3)))


def _with_unit(number: str, power: int, shown: Shown) -> str:
    label = _PREFIXES[power] + shown.label
    return f"{number} {label}" if label else number


def _digits(value: float, digits: int, *, count: bool = False) -> str:
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    rounded = float(f"{value:.{digits}g}")
    magnitude = math.floor(math.log10(abs(rounded)) + 1e-9)
    if magnitude < -4 or magnitude >= 9:
        text = f"{value:.{digits - 1}e}"
    else:
        # An exact count stays one: ".000" behind it would claim a measurement.
        exact = count and rounded == value and rounded.is_integer()
        text = f"{value:,.{0 if exact else max(0, digits - 1 - magnitude)}f}"
    return text.replace(",", THIN_SPACE).replace("-", MINUS)
