"""Spread of times to accuracy: the coefficient of variation and how well it is known. Pure."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence

METHOD = "Vangel's modification of McKay's chi-square interval, 95 %, times taken for normal"


def coefficient_of_variation(values: Sequence[float]) -> float:
    """Standard deviation (n − 1) over mean; 0 for a single value.  values: positive."""
    return statistics.stdev(values) / statistics.fmean(values) if len(values) > 1 else 0.0


def variation_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Interval of the coefficient of variation of what these values were drawn from.

    k / sqrt(((u + 2) / n − 1) k² + u / (n − 1)) with u the chi-square quantiles of n − 1 degrees of freedom, for k up
    to about 0.33 and normal values. The upper end is infinite where the root's argument is not positive.
    Raises ValueError for fewer than two values.
    Source: Vangel, Confidence Intervals for a Normal Coefficient of Variation, The American Statistician 50 (1996).
    """
    n = len(values)
    if n < 2:
        raise ValueError("one value has no spread")
    k = coefficient_of_variation(values)
    tail = (1 - confidence) / 2
    low, high = (_bound(k, n, chi_square_quantile(share, n - 1)) for share in (1 - tail, tail))
    return low, high


def _bound(k: float, n: int, u: float) -> float:
    under = ((u + 2) / n - 1) * k * k + u / (n - 1)
    if not k:
        return 0.0
    return k / math.sqrt(under) if under > 0 else math.inf


@functools.lru_cache(maxsize=256)
def chi_square_quantile(share: float, degrees: int) -> float:
    """The value below which a chi-square variable lies with this probability (0 < share < 1).

    By bisection of the regularised incomplete gamma function P(degrees / 2, x / 2).
    """
    import torch

    half = torch.tensor(degrees / 2, dtype=torch.float64)

    def below(x: float) -> float:
        return float(torch.special.gammainc(half, torch.tensor(x / 2, dtype=torch.float64)))

    low, high = 0.0, float(degrees)
    while below(high) < share:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) < share else (low, middle)
    return (low + high) / 2


def success_interval(reached: int, runs: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's interval of a share: of the runs that reach the target.

    Source: Wilson, Probable Inference, the Law of Succession, and Statistical Inference, JASA 22 (1927).
    """
    z = statistics.NormalDist().inv_cdf(0.5 + confidence / 2)
    share = reached / runs
    middle = (share + z * z / (2 * runs)) / (1 + z * z / runs)
    reach = z / (1 + z * z / runs) * math.sqrt(share * (1 - share) / runs + z * z / (4 * runs * runs))
    return max(0.0, middle - reach), min(1.0, middle + reach)
