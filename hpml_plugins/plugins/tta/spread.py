"""Spread of times to accuracy: intervals of the coefficient of variation and of the share of success. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from hpml_plugins import Samples

METHOD = "Vangel's modification of McKay's chi-square interval, 95 %, times taken for normal"


def variation_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Interval of the coefficient of variation of what these values were drawn from.

    k / sqrt(((u + 2) / n − 1) k² + u / (n − 1)) with u the chi-square quantiles of n − 1 degrees of freedom, for k up
    to about 0.33 and normal values. The upper end is infinite where the root's argument is not positive.
    Raises ValueError for fewer than two values.
    Source: Vangel, Confidence Intervals for a Normal Coefficient of Variation, The American Statistician 50 (1996).
    """
    from scipy.special import chdtri

    n = len(values)
    if n < 2:
        raise ValueError("one value has no spread")
    k = Samples.of(values, "s").coefficient_of_variation

    def bound(above: float) -> float:
        u = float(chdtri(n - 1, above))
        under = ((u + 2) / n - 1) * k * k + u / (n - 1)
        return k / math.sqrt(under) if under > 0 else math.inf

    tail = (1 - confidence) / 2
    return bound(tail), bound(1 - tail)


def success_interval(reached: int, runs: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's interval of a share: of the runs that reach the target.

    Source: Wilson, Probable Inference, the Law of Succession, and Statistical Inference, JASA 22 (1927).
    """
    z = statistics.NormalDist().inv_cdf(0.5 + confidence / 2)
    share = reached / runs
    middle = (share + z * z / (2 * runs)) / (1 + z * z / runs)
    reach = z / (1 + z * z / runs) * math.sqrt(share * (1 - share) / runs + z * z / (4 * runs * runs))
    return max(0.0, middle - reach), min(1.0, middle + reach)
