"""Numbers as integers with a scale and a zero point: real = scale · (integer − zero point). Imports torch: on use only.

Source of all formulas: Jacob et al., Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference, CVPR 2018, arXiv 1712.05877, sections 2 and 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from hpml_plugins import HpmlError

#: What a range is taken from: the smallest and largest value, or three standard deviations around the mean.
RANGES = ("minmax", "sigma3")
GRANULARITIES = ("tensor", "channel")
BITS = (8, 6, 4, 2, 1)
#: A bias is an int32; the clamp keeps it one where a scale is tiny.
INT32 = 2**31 - 1


@dataclass(frozen=True)
class Grid:
    """The reals that integers can stand for.

    scale: of a step, above 0; a number for a tensor, or one a channel as a float64 tensor (channels, 1, …).
    zero_point: the integer that is 0.  lowest, highest: the integers, both included.
    """

    scale: Any
    zero_point: int
    lowest: int
    highest: int

    def quantize(self, values: Any) -> Any:
        """The nearest integers, int32, clamped to the grid. values: reals of any shape that fits the scale's."""
        steps = torch.round(values.double() / self.scale) + self.zero_point
        return steps.clamp(self.lowest, self.highest).to(torch.int32)

    def dequantize(self, integers: Any) -> Any:
        """The reals that these integers stand for, float64."""
        return self.scale * (integers.double() - self.zero_point)

    def rounded(self, values: Any) -> Any:
        """The values as the integers would have them, in their own dtype: simulated quantization."""
        scale = self.scale.to(values.dtype) if isinstance(self.scale, torch.Tensor) else self.scale
        steps = (values / scale).round_().clamp_(self.lowest - self.zero_point, self.highest - self.zero_point)
        return steps.mul_(scale)


@dataclass(frozen=True)
class Binary:
    """Weights of one bit: −scale or +scale, with scale = mean |w|, which is the nearest such tensor.

    A symmetric grid of one bit would be 0 alone. Source: Rastegari et al., XNOR-Net, ECCV 2016, equation 6.
    """

    scale: Any
    zero_point: int = 0

    def quantize(self, values: Any) -> Any:
        """−1 or 1, int32; 0 counts as 1."""
        return torch.where(values < 0, -1, 1).to(torch.int32)

    def dequantize(self, integers: Any) -> Any:
        """The reals that these integers stand for, float64."""
        return self.scale * integers.double()

    def rounded(self, values: Any) -> Any:
        """The values as the integers would have them, in their own dtype."""
        return self.dequantize(self.quantize(values)).to(values.dtype)


@dataclass(frozen=True)
class Profile:
    """What was seen of a tensor. count: of values; all reals."""

    low: float
    high: float
    mean: float
    deviation: float

    @classmethod
    def of(cls, values: Any) -> Profile:
        """Of these values. Raises HpmlError when one is not finite."""
        values = values.double()
        low, high = float(values.min()), float(values.max())
        if not (abs(low) < float("inf") and abs(high) < float("inf")):
            raise HpmlError("a value is not finite: nothing can be quantized that has no range")
        return cls(low, high, float(values.mean()), float(values.std(correction=0)))

    @property
    def constant(self) -> bool:
        """Whether every value was the same."""
        return self.low == self.high

    def range(self, kind: str) -> tuple[float, float]:
        """The lowest and highest real to keep; what lies outside is clamped. kind: of RANGES."""
        if kind == "minmax":
            return self.low, self.high
        if kind == "sigma3":
            reach = 3 * self.deviation
            return max(self.low, self.mean - reach), min(self.high, self.mean + reach)
        raise HpmlError(f"no range {kind!r}; use one of {', '.join(RANGES)}")


def affine_grid(low: float, high: float, bits: int) -> Grid:
    """The grid of `bits` bits over a range, widened to hold 0, which is then a whole step: padding is exact.

    scale = (high − low) / (2^bits − 1), zero point = round(lowest − low / scale), integers −2^(bits−1) … 2^(bits−1) − 1
    (the paper's less 2^(bits−1): int8 instead of uint8). A range of 0 alone has scale 1 and its
    zero at the lowest integer, where a ReLU's is.
    """
    low, high = min(low, 0.0), max(high, 0.0)
    lowest, highest = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    scale = (high - low) / (highest - lowest)
    # Subnormal ranges divide to 0 too.
    if scale < torch.finfo(torch.float32).tiny:
        return Grid(1.0, lowest, lowest, highest)
    zero_point = round(lowest - low / scale)
    return Grid(scale, max(lowest, min(zero_point, highest)), lowest, highest)


def weight_grid(weight: Any, bits: int, granularity: str, kind: str) -> Grid | Binary:
    """The symmetric grid of a weight (out, in, …): zero point 0, integers −(2^(bits−1) − 1) … 2^(bits−1) − 1.

    The lowest integer is left out, as in the paper.  granularity: "tensor", one scale; "channel", one an output
    channel.  kind: of RANGES.  One bit is Binary.  A channel of zeros alone has scale 1.
    """
    if granularity not in GRANULARITIES:
        raise HpmlError(f"no granularity {granularity!r}; use one of {', '.join(GRANULARITIES)}")
    rows = weight.detach().double().reshape(weight.shape[0] if granularity == "channel" else 1, -1)
    shape = (-1, *[1] * (weight.dim() - 1)) if granularity == "channel" else ()
    if bits == 1:
        return Binary(_nonzero(rows.abs().mean(1)).reshape(shape))
    reach = rows.abs().amax(1)
    if kind == "sigma3":
        mean, deviation = rows.mean(1), rows.std(1, correction=0)
        reach = torch.minimum(reach, torch.maximum((mean - 3 * deviation).abs(), (mean + 3 * deviation).abs()))
    elif kind != "minmax":
        raise HpmlError(f"no range {kind!r}; use one of {', '.join(RANGES)}")
    highest = 2 ** (bits - 1) - 1
    return Grid(_nonzero(reach / highest).reshape(shape), 0, -highest, highest)


def bias_grid(input_scale: float, weight_scale: Any) -> Grid:
    """The grid of a bias: int32, zero point 0, scale = the input's times the weight's, that of the products' sums."""
    return Grid(input_scale * torch.as_tensor(weight_scale).double().reshape(-1), 0, -INT32, INT32)


def _nonzero(scale: Any) -> Any:
    return torch.where(scale < torch.finfo(torch.float32).tiny, torch.ones_like(scale), scale)
