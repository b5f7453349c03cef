"""Samples: repeated measurements of one quantity, with arithmetic applied sample by sample."""

from __future__ import annotations

import bisect
import functools
import math
import operator
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from hpml_plugins.errors import DefinitionError, ResultError
from hpml_plugins.model.units import is_rate
from hpml_plugins.model.units import unit as known_unit

Number = int | float
Operation = Callable[[float, float], float]
#: The autocorrelation of shorter series is not estimated: the result would be noise.
FEWEST_TO_CORRELATE = 15
#: The interval of a mean of at most this many values is their range.
FEW = 5
#: Of a 95 % interval.
NORMAL_QUANTILE = statistics.NormalDist().inv_cdf(0.975)
#: Lags whose autocorrelation is computed one at a time.
NEAR_LAGS = 64
#: Number of values from which computing all other lags at once (by FFT) pays off.
MANY_VALUES = 10_000
#: The `source` in the info of values from the processor's hardware counters.
PERF = "perf"


@dataclass(frozen=True)
class Samples:
    """Measured values of one quantity.

    values: one number per sample, in SI base units.  unit: its symbol; empty if unknown, as for
    products and quotients.  info: how the samples were taken (timer, batch, why sampling stopped).
    boost: for a step that the GPU's power regulator slows down, the values before it acts; `values`
    are then those at settled clocks, the regime `sustained`. Raises ResultError for values that are
    not numbers, and for info that is neither text nor a number. Non-finite numbers in info become
    the text "nan", "inf" or "-inf", because JSON has no such numbers.
    """

    values: tuple[float, ...]
    unit: str = ""
    info: Mapping[str, str | float] = field(default_factory=dict)
    boost: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.unit, str) or not isinstance(self.info, Mapping):
            raise ResultError(
                "Samples need text for the unit and a dict for info; Samples.of(values, 's') makes"
                " them"
            )
        for name in ("values", "boost"):
            values = getattr(self, name)
            if type(values) is not tuple or set(map(type, values)) - {float}:
                object.__setattr__(
                    self, name, tuple(as_number(value, "a sample") for value in values)
                )
        object.__setattr__(
            self,
            "info",
            {str(name): _as_info(name, value) for name, value in self.info.items()},
        )

    @classmethod
    def of(cls, values: Iterable[Number], symbol: str, **info: str | float) -> Samples:
        """Create samples with a unit. Raises DefinitionError for an unknown unit or no values."""
        samples = cls(tuple(values), known_unit(symbol).symbol, info)
        if not samples.values:
            raise DefinitionError("Samples need at least one value")
        return samples

    def note(self, **info: str | float) -> Samples:
        """The same samples with more info; replaces entries of the same name."""
        return replace(self, info={**self.info, **info})

    def __len__(self) -> int:
        return len(self.values)

    @property
    def median(self) -> float:
        """The median of the values."""
        return statistics.median(self.values)

    @property
    def mean(self) -> float:
        """The arithmetic mean of the values."""
        return statistics.fmean(self.values)

    @property
    def value(self) -> float:
        """What these samples measured, as of a Record's round: the median, at settled clocks the
        mean."""
        return settled_mean(self.values, self.unit) if self._settled else self.median

    @property
    def _settled(self) -> bool:
        return bool(self.boost) or self.info.get("regime") == "sustained"

    @property
    def coefficient_of_variation(self) -> float:
        """Standard deviation (n − 1) over mean; 0 for a single value or a mean of 0."""
        if len(self.values) < 2 or self.mean == 0:
            return 0.0
        return statistics.stdev(self.values) / abs(self.mean)

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """The order-statistic interval of the median: it contains the true median with at least
        this confidence.

        No distribution is assumed. Correlated values count as `effective_count` independent ones.
        If there are too few for the confidence (five or fewer at 95 %), the interval is the range
        of the values.
        """
        return median_interval(self.values, confidence)

    def value_interval(self) -> tuple[float, float]:
        """The 95 % interval of `value`."""
        if self._settled:
            return mean_interval(self.values, self.value)
        return self.interval()

    @property
    def effective_count(self) -> int:
        """The number of independent samples that would give the median the same precision; see
        `count_effective`."""
        return count_effective(self.values, sorted(self.values))

    @property
    def relative_precision(self) -> float:
        """Half the width of the 95 % interval of the median, relative to the median; 0 if that is
        0."""
        low, high = self.interval()
        return (high - low) / 2 / abs(self.median) if self.median else 0.0

    @property
    def outliers(self) -> int:
        """The number of values more than three interquartile ranges outside the quartiles (Tukey's
        far out).

        They are counted but kept: they do not affect the median.
        """
        if len(self.values) < 4:
            return 0
        low, _, high = statistics.quantiles(self.values, n=4)
        reach = 3 * (high - low)
        return sum(not low - reach <= value <= high + reach for value in self.values)

    def __mul__(self, other: Samples | Number) -> Samples:
        return self._combine(other, operator.mul)

    def __truediv__(self, other: Samples | Number) -> Samples:
        return self._combine(other, _divide)

    def __rmul__(self, other: Number) -> Samples:
        return self * other

    def __rtruediv__(self, other: Number) -> Samples:
        return self._combine(other, lambda value, number: _divide(number, value))

    def __add__(self, other: Samples | Number) -> Samples:
        return self._combine(other, operator.add, is_sum=True)

    def __radd__(self, other: Number) -> Samples:
        return self + other

    def __sub__(self, other: Samples | Number) -> Samples:
        return self._combine(other, operator.sub, is_sum=True)

    def __rsub__(self, other: Number) -> Samples:
        return replace(self * -1, unit=self.unit) + other

    def _combine(
        self, other: Samples | Number, operate: Operation, *, is_sum: bool = False
    ) -> Samples:
        """Combine sample by sample. is_sum: the unit is kept, and both must have the same."""
        if not isinstance(other, Samples):
            values = tuple(operate(value, other) for value in self.values)
            boost = tuple(operate(value, other) for value in self.boost)
            return replace(
                self, values=values, unit=self.unit if is_sum else "", boost=boost
            )
        if is_sum and self.unit and other.unit and self.unit != other.unit:
            raise ResultError(f"cannot add {self.unit} and {other.unit}")
        if len(self) != len(other):
            raise ResultError(
                f"samples of different length: {len(self)} and {len(other)}; use their medians"
                " instead"
            )
        values = tuple(map(operate, self.values, other.values))
        # The result has boost values only if both have equally many.
        if len(self.boost) == len(other.boost):
            boost = tuple(map(operate, self.boost, other.boost))
        else:
            boost = ()
        return Samples(
            values,
            (self.unit or other.unit) if is_sum else "",
            {**other.info, **self.info},
            boost,
        )


def as_number(value: Any, what: str) -> float:
    """Convert a number to a float, including NumPy scalars, tensors of one element and Decimal.

    Raises ResultError for anything else, including text and bools, which are not measurements.
    """
    dtype = str(getattr(value, "dtype", "")).removeprefix("torch.")
    # float would also accept text
    counts = hasattr(value, "__float__") or hasattr(value, "__index__")
    if (
        counts
        and not isinstance(value, bool | str | bytes)
        and not dtype.startswith(("bool", "complex"))
    ):
        with suppress(TypeError, ValueError, OverflowError):
            return float(value)
    raise ResultError(f"{what} is a {dtype or type(value).__name__}, not a number")


def _as_info(name: object, value: Any) -> str | float:
    if isinstance(value, str):
        return str(value)
    number = as_number(value, f"info {name!r} of Samples")
    if not math.isfinite(number):
        return str(number)
    return value if type(value) is int else number


def median_interval(
    values: Sequence[float], confidence: float = 0.95
) -> tuple[float, float]:
    """See `Samples.interval`."""
    ordered = sorted(values)
    effective = count_effective(values, ordered)
    rank = interval_rank(effective, confidence) * len(ordered) // effective
    return ordered[rank], ordered[-1 - rank]


def settled_mean(values: Sequence[float], symbol: str) -> float:
    """The mean of samples that each count the same work, at settled clocks: the power regulator
    slows some of them down, and how much is done in a long time depends on all. Of rates the
    harmonic mean.  symbol: of their unit."""
    if is_rate(symbol) and min(values) > 0:
        return statistics.harmonic_mean(values)
    return statistics.fmean(values)


def mean_interval(values: Sequence[float], mean: float) -> tuple[float, float]:
    """The 95 % interval of a mean of values, by the normal distribution, for as many independent
    ones as `count_effective` finds; of FEW or fewer their range.

    mean: the arithmetic one, or another that differs little.
    """
    low, high = min(values), max(values)
    count = count_effective(values, sorted(values))
    if count <= FEW:
        return low, high
    half = NORMAL_QUANTILE * statistics.stdev(values) / math.sqrt(count)
    return max(low, mean - half), min(high, mean + half)


@functools.lru_cache(maxsize=4096)
def interval_rank(count: int, confidence: float) -> int:
    """The rank (from 0) of the lower bound of the median's interval; the upper bound has the same
    rank from the top.

    For the largest r with P(Binomial(n, ½) ≤ r) ≤ (1 − confidence) / 2, the true median is below
    the (r + 1)-th value with at most that probability; 0 if even the smallest value does not
    satisfy this. Source: Conover, Practical Nonparametric Statistics, 3rd ed., 3.2.
    """
    tail, rank = 0.0, 0
    # With logarithms: 0.5**n would underflow beyond a thousand values, and exact integers take
    # seconds for ten thousand.
    whole = math.lgamma(count + 1) - count * math.log(2)
    for successes in range(count // 2):
        tail += math.exp(
            whole - math.lgamma(successes + 1) - math.lgamma(count - successes + 1)
        )
        if tail > (1 - confidence) / 2:
            break
        rank = successes
    return rank


def count_effective(values: Sequence[float], ordered: Sequence[float]) -> int:
    """The number of independent values that would give the median the same precision as this
    series: n / τ, rounded down, at least 1.

    ordered: the same values, sorted.  τ is the integrated autocorrelation time of a series of bits
    that say which values are in the lower half: the interval of the median is based on their mean,
    and outliers do not affect them. The sum over lags ends when two successive lags add nothing;
    for an uncorrelated series at the first or second. Sources: bits, Vehtari et al.,
    Rank-normalization, folding, and localization, Bayesian Analysis 16 (2021), on quantiles; end of
    the sum, Geyer, Practical Markov chain Monte Carlo, Statistical Science 7 (1992), initial
    positive sequence; correction for the mean being estimated, Wolff, Monte Carlo errors with less
    errors, Comput. Phys. Commun. 156 (2004).
    """
    count = len(values)
    if count < FEWEST_TO_CORRELATE:
        return count
    middle = ordered[count // 2]
    first = bisect.bisect_left(ordered, middle)
    end = bisect.bisect_right(ordered, middle)
    # Values equal to the middle one all go to the side that makes the halves more equal.
    bound = middle if first + end <= count else ordered[first - 1]
    bits = int("".join("1" if value <= bound else "0" for value in values), 2)
    share = bits.bit_count() / count
    variance = share * (1 - share)
    if not variance:
        return count

    far: list[tuple[int, int, int]] = []

    def autocorrelation(lag: int) -> float:
        if lag >= NEAR_LAGS and count > MANY_VALUES:
            if not far:
                far.extend(_overlaps(bits, count))
            both, in_late, in_early = far[lag]
        else:
            late = bits >> lag
            early = bits & ((1 << (count - lag)) - 1)
            both = (late & early).bit_count()
            in_late = late.bit_count()
            in_early = early.bit_count()
        products = both - share * (in_late + in_early)
        return (products + (count - lag) * share**2) / count / variance

    total, lag = 0.0, 0
    while lag + 1 < count and (pair := autocorrelation(lag) + autocorrelation(lag + 1)) > 0:
        total += pair
        lag += 2
    time = (2 * total - 1) * (1 + (2 * lag - 1) / count)
    return max(1, int(count / max(1.0, time)))


def _overlaps(bits: int, count: int) -> list[tuple[int, int, int]]:
    """For each lag: how many ones of the series meet a one, and how many are in its late and in its
    early part.

    The same integers as from shifting the series, but for all lags by one Fourier transform (Wiener
    and Khinchin), whose rounding errors are far below one half: n log n steps instead of n².
    """
    import numpy as np  # only needed for long series that are correlated over many lags

    series = np.frombuffer(f"{bits:0{count}b}".encode(), np.uint8) - ord("0")
    spectrum = np.fft.rfft(series.astype(float), 1 << (2 * count - 1).bit_length())
    meeting = np.rint(np.fft.irfft(spectrum * spectrum.conj())[:count]).astype(int)
    ones = np.concatenate([[0], np.cumsum(series, dtype=int)])
    # of the first and the last n - lag values
    leading = ones[count:0:-1]
    trailing = ones[count] - ones[:count]
    return list(zip(meeting.tolist(), leading.tolist(), trailing.tolist(), strict=True))


def _divide(a: float, b: float) -> float:
    # A zero time is a fault of the timer rather than of the plugin's arithmetic; the Record is
    # refused with the name of the metric.
    return a / b if b else math.copysign(math.inf, a) if a else math.nan
