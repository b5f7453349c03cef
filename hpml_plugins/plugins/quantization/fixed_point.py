"""Multiplying integers by a real below or above 1 with integers alone. Imports torch: imported on use only.

Source: Jacob et al. 2018, section 2.2 and appendix B, and the functions of gemmlowp that it names.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from hpml_plugins import HpmlError

INT32_LOW, INT32_HIGH = -(2**31), 2**31 - 1


def multiplier(real: float) -> tuple[int, int]:
    """(M₀, n) with real ≈ M₀ · 2^(−31 − n), M₀ from 2^30 to 2^31 − 1: 30 bits of precision at least.

    n is the shift to the right; below 0, to the left, for reals of 1 and above, which the paper does not have.
    A real below 2^−62 is (0, 0).  Raises HpmlError when it is negative, not finite, or 2^31 and above.
    """
    if not (0 <= real < 2.0**31):
        raise HpmlError(f"no fixed-point multiplier for {real}: it must be from 0 to below 2^31")
    if real < 2.0**-62:
        return 0, 0
    fraction, exponent = math.frexp(real)  # fraction in [½, 1)
    mantissa = round(fraction * 2**31)
    if mantissa == 2**31:  # rounded up to 1
        mantissa, exponent = 2**30, exponent + 1
    return mantissa, -exponent


def rescale(values: Any, multipliers: Any, shifts: Any) -> Any:
    """round(values · M₀ · 2^(−31 − n)) as the paper computes it: two roundings to nearest, all of it in integers.

    values: holds int32, of any shape.  multipliers, shifts: int64 tensors that broadcast against it. Returns int64.
    """
    if bool((shifts < 0).any()):
        values = (values.long() << (-shifts).clamp(min=0)).clamp(INT32_LOW, INT32_HIGH)
        shifts = shifts.clamp(min=0)
    return divide_by_power(high_product(values, multipliers), shifts)


def high_product(a: Any, b: Any) -> Any:
    """round(a · b / 2^31), ties up, as ARM's SQRDMULH and gemmlowp's SaturatingRoundingDoublingHighMul. int64.

    a: holds int32.  b: from 0 to 2^31 − 1, so that the one product that overflows, (−2^31)², does not occur.
    """
    return (a.long() * b).add_(2**30).__irshift__(31)


def divide_by_power(values: Any, exponents: Any) -> Any:
    """round(values / 2^exponents), ties away from zero: gemmlowp's RoundingDivideByPOT. int64, in place.

    A shift to the right alone rounds down, and one with half a step added rounds ties up: on numbers with as many ties
    as these, appendix B found such a bias to cost accuracy.  exponents: int64, 0 to 62.
    """
    half = (torch.ones_like(exponents) << exponents) >> 1
    # Of a negative value one less: its tie then falls to the lower side. 2^0 has no ties.
    lower = (values >> 63).mul_((exponents > 0).long())
    return values.add_(lower).add_(half).__irshift__(exponents)
