"""Format numbers for readers: scaled, with unit, interval and ratio. Pure functions."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from hpml_plugins.model.units import UNITS, Unit
from hpml_plugins.terminal import THIN_SPACE as THIN_SPACE

if TYPE_CHECKING:
    from hpml_plugins.model.record import Estimate

DIGITS: Final = 4
#: An interval is written by its ends if its longer side is at least this many per cent of the value
#: and SKEWED times as long as the other side.
WIDE = 10
SKEWED = 1.5
#: A larger ratio says only that one of the values is near 0: it is written as `>1000000`.
LARGEST_RATIO: Final = 1_000_000
MINUS: Final = "\u2212"

#: Texts that keep their quotes, because without them they can be read as a number or as several
#: values.
_READS_OTHERWISE: Final = re.compile(
    r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?inf|nan|true|false|none|['\"(\[{].*|.*, .*",
    re.IGNORECASE | re.DOTALL,
)
#: A number with the prefix of a unit, or the text between numbers.
_PIECES: Final = re.compile(r"(\d+(?:\.\d+)?)((?:[KMGT]i?(?=B))?)|(\D+)")
_SCALES: Final = {"K": 1, "M": 2, "G": 3, "T": 4}
_PREFIXES: Final = dict(
    zip(
        range(-12, 21, 3),
        ["p", "n", "µ", "m", "", "k", "M", "G", "T", "P", "E"],
        strict=True,
    )
)


def shown_unit(symbol: str | Unit) -> Unit:
    """The display form of a unit. A unit outside the closed set (of a plain asv project) is shown
    unchanged and unscaled."""
    if isinstance(symbol, Unit):
        return symbol
    return UNITS.get(symbol) or Unit(symbol, symbol, count=True)


@functools.lru_cache(maxsize=1 << 16)  # pages format each value about three times
def quantity(value: float, unit: str | Unit) -> str:
    """A value with its unit: `quantity(0.00123, "s")` is "1.230 ms". Four significant digits."""
    shown = shown_unit(unit)
    power = _power(value, shown)
    number = _digits(value / 10.0**power, count=shown.count)
    return f"{number} {_PREFIXES[power]}{shown.label}".rstrip()


def exact(value: float, unit: str) -> str:
    """A published, not measured, figure: `3.35 TB/s`, `700 W`."""
    number, space, label = quantity(value, unit).partition(" ")
    return (number.rstrip("0").rstrip(".") if "." in number else number) + space + label


def estimate(found: Estimate, unit: str) -> str:
    """A median with its unit and its interval: `750.7 TFLOP/s ± 0.8 %`.

    The longer side of the interval is used, rounded up, so the range written contains the interval.
    A wide, asymmetric interval is written by its bounds: `7.950 ms (41.50 µs to 7.980 ms)`. Every
    command and page formats measured numbers with this function. Without an interval (a count, too
    few samples) the result is that of `quantity`.
    """
    value = found.value
    low = found.low
    high = found.high
    text = quantity(value, unit)
    if low is None or high is None or not value or not math.isfinite(high - low):
        return text
    shorter, longer = sorted((abs(value - low), abs(high - value)))
    percent = longer / abs(value) * 100
    if percent >= WIDE and longer > SKEWED * shorter:
        return f"{text} ({quantity(low, unit)} to {quantity(high, unit)})"
    return f"{text} ± {_rounded_up(percent)} %"


def split_estimate(text: str) -> tuple[str, str]:
    """Split the output of `estimate` into the value and its interval; empty if there is none."""
    value, sign, interval = text.partition(" ± ")
    if sign:
        return value, f"± {interval}"
    value, sign, interval = text.partition(" (")
    return value, f"({interval}" if sign else ""


def half_width(share: float) -> str:
    """Half the width of an interval relative to the value: `± 8.3 %`; `± >100 %` beyond that."""
    return f"± {_rounded_up(100 * share) if share <= 1 else '>100'} %"


def _rounded_up(percent: float) -> str:
    """Two digits, whole numbers from 10 on; never below the number, apart from rounding errors."""
    if not percent:
        return "0"
    digits = 0 if percent >= 10 else 1 - math.floor(math.log10(percent))
    rounded = math.ceil(percent * 10.0**digits * (1 - 1e-6)) / 10.0**digits
    text = f"{rounded:.{digits}f}"
    return text.rstrip("0").rstrip(".") if digits else text


def times(ratio: float) -> str:
    """A ratio as text: at most four digits, or LARGEST_RATIO: `1.04`."""
    if ratio < 0.0001:
        return "<0.0001"
    if ratio > LARGEST_RATIO:
        return f">{LARGEST_RATIO}"
    return f"{ratio:.{_decimals_of_ratio(ratio)}f}"


def bounded_times(ratio: float, *, up: bool) -> str:
    """A bound of a ratio with the digits of `times`, rounded so that it remains valid: a lower
    bound down, an upper one up. Where that would give 1, it has up to four decimals: `0.9962`."""
    if ratio < 0.0001:
        return "0" if not up else "0.0001"
    if ratio > LARGEST_RATIO:
        return times(ratio if up else LARGEST_RATIO)
    bound = _rounded_bound(ratio, _decimals_of_ratio(ratio), up)
    if bound != 1 or math.isclose(ratio, 1, rel_tol=1e-4):
        return times(bound)
    return f"{_rounded_bound(ratio, 4, up):.4f}".rstrip("0")


def _rounded_bound(ratio: float, decimals: int, up: bool) -> float:
    scale = 10.0**decimals
    digits = ratio * scale
    slip = 1e-9 * digits
    rounded = math.ceil(digits - slip) if up else math.floor(digits + slip)
    return rounded / scale


def least_times(ratio: float) -> str:
    """The bound of a ratio in words: `at least 1.10×`, `at most 0.90×`."""
    words = "least" if ratio > 1 else "most"
    return f"at {words} {bounded_times(ratio, up=ratio < 1)}×"


def change(ratio: float, what: str = "") -> str:
    """A ratio of two values of the same quantity: `1.21× the time (+21 %)`. The only format for
    this.

    what: the quantity, or the name of its metric; "" if it is shown beside the ratio.
    """
    of = f" the {what}" if what else ""
    if ratio > LARGEST_RATIO:
        return f"{times(ratio)}×{of}"
    percent = 100 * (ratio - 1)
    digits = 0 if abs(percent) >= 10 else 1
    rounded = f"{percent:+.{digits}f}".replace("-", MINUS)
    return f"{times(ratio)}×{of} ({rounded} %)"


def _decimals_of_ratio(ratio: float) -> int:
    if ratio >= 100:
        return 0
    if ratio >= 10:
        return 1
    return 2 if ratio >= 0.1 else 4


def counted(number: int, noun: str) -> str:
    """`1 point`, `2 points`."""
    return f"{number} {noun}{'s' * (number != 1)}"


def format_point(params: Mapping[str, object]) -> str:
    """A point as text: `rows=4096, mode=fast`. Empty for a benchmark without parameters.

    Different points have different texts: `x=1` is the number, `x='1'` the text.
    """
    return format_point_texts({name: repr(value) for name, value in params.items()})


def name_point(benchmark: str, params: Mapping[str, object]) -> str:
    """A point with its benchmark: `mlp_gemm rows=4096, mode=fast`."""
    return f"{benchmark} {format_point(params)}".rstrip()


def format_point_texts(texts: Mapping[str, str]) -> str:
    """`format_point` for values given as Python's repr, as asv writes them."""
    return ", ".join(f"{name}={unquoted(text)}" for name, text in texts.items())


def unquoted(value: str) -> str:
    """Python's repr of a value, without quotes for a text that cannot be mistaken for another
    value."""
    if len(value) > 2 and value[0] == value[-1] and value[0] in "'\"":
        return value if _READS_OTHERWISE.fullmatch(value[1:-1]) else value[1:-1]
    return value


def format_choice(value: object) -> str:
    """A parameter's value as in `-p` and in the registry: YAML's true, not Python's True.

    A text that can be read as another value keeps its quotes: `-p "x='1'"` is not `-p x=1`.
    """
    return str(value).lower() if isinstance(value, bool) else unquoted(repr(value))


def natural_key(value: object) -> list[tuple[bool, float, str]]:
    """Sort key for values and points: numbers by size (`2` before `16`, `64KiB` before `1MiB`), the
    rest as text, quoted or not."""
    found = []
    for number, prefix, text in _PIECES.findall(str(value).replace("'", "")):
        scale = _SCALES.get(prefix[:1], 0) * math.log(1024 if prefix[1:] else 1000)
        found.append((not number, float(number or 0) * math.exp(scale), text))
    return found


def _power(value: float, shown: Unit) -> int:
    """The power of ten, a multiple of three, whose prefix suits the value."""
    if value == 0 or not math.isfinite(value):
        return 0
    # Round first: 999.96 µs is shown as 1.000 ms, not as 1000 µs.
    exponent = math.floor(math.log10(float(f"{abs(value):.{DIGITS}g}")) + 1e-9)
    return max(shown.lowest, min(shown.highest, 3 * (exponent // 3)))


def _digits(value: float, *, count: bool) -> str:
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    rounded = float(f"{value:.{DIGITS}g}")
    magnitude = math.floor(math.log10(abs(rounded)) + 1e-9)
    if magnitude < -4 or magnitude >= 9:
        text = f"{value:.{DIGITS - 1}e}"
    else:
        # No decimals for an exact count: ".000" would suggest a measurement.
        exact = count and rounded == value and rounded.is_integer()
        text = f"{value:,.{0 if exact else max(0, DIGITS - 1 - magnitude)}f}"
    return text.replace(",", THIN_SPACE).replace("-", MINUS)
