"""The roofline model's formulas, and bytes and FLOP of single kernels from their shapes. Pure.

Source: Williams, Waterman, Patterson, "Roofline: An Insightful Visual Performance Model for Multicore Architectures",
CACM 52(4), 2009, pp. 65-76.
"""

from __future__ import annotations

#: One multiply-add is two floating-point operations, a multiplication and an addition.
FLOP_PER_MULTIPLY_ADD = 2


def intensity(flop: float, nbytes: float) -> float:
    """Operational (arithmetic) intensity, FLOP/B: FLOP per byte moved between memory and caches.

    Raises ValueError where no byte was moved: the roofline of the memory says nothing of such a program.
    """
    if nbytes <= 0:
        raise ValueError(f"{nbytes} B moved: intensity needs more than none")
    return flop / nbytes


def attainable(intensity: float, peak: float, bandwidth: float) -> float:
    """The roof over an intensity, FLOP/s: min(peak, intensity · bandwidth).

    intensity: FLOP/B.  peak: FLOP/s.  bandwidth: of the memory, B/s.
    A100 (19.5 TFLOP/s, 1555 GB/s) at 4 FLOP/B: 4 · 1555e9 = 6.22 TFLOP/s.
    """
    return min(peak, intensity * bandwidth)


def ridge_point(peak: float, bandwidth: float) -> float:
    """The least intensity at which the peak can be reached, FLOP/B: peak / bandwidth.

    V100: 15.7e12 / 900e9 = 17.44 FLOP/B.
    """
    return peak / bandwidth


def share_of_roof(rate: float, intensity: float, peak: float, bandwidth: float) -> float | None:
    """Achieved rate over what is attainable at its intensity; None without FLOP, where the roof is at 0."""
    roof = attainable(intensity, peak, bandwidth)
    return rate / roof if roof > 0 else None


def matmul_flop(n: int) -> int:
    """FLOP of the product of two n × n matrices: 2 n³, one multiply-add being 2."""
    return FLOP_PER_MULTIPLY_ADD * n**3


def matmul_bytes(n: int, itemsize: int) -> int:
    """Bytes that the product of two n × n matrices must move: two read, one written, 3 n² · itemsize."""
    return 3 * n**2 * itemsize
