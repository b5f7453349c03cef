"""Numbers as integers with a scale and a zero point, and a sequential network computed only with
integers.

Source of all formulas: Jacob et al., Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference, CVPR 2018, arXiv 1712.05877, sections 2 and 3 and appendix B, and
the functions of gemmlowp that it names. Imports torch: imported on use only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hpml_plugins import HpmlError
from hpml_plugins.plugins.quantization.networks import INPUT_HIGH, INPUT_LOW

#: The source of a range: the smallest and largest value, or three standard deviations around the
#: mean.
RANGES = ("minmax", "sigma3")
GRANULARITIES = ("tensor", "channel")
#: The part that is quantized after each step; "integer" computes only with integers.
STEPS = ("weights", "activations", "biases", "integer")
#: Logits are only used to choose the largest: they keep 16 bits, so that ties are rare.
LOGIT_BITS = 16
INT32_LOW, INT32_HIGH = -(2**31), 2**31 - 1
#: A smaller scale, which a subnormal range gives, is replaced by 1.
SMALLEST_SCALE = torch.finfo(torch.float32).tiny
#: The name of the network's input, as that of a block.
INPUT = "input"
Product = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Grid:
    """The reals that the integers lowest … highest represent: real = scale · (integer − zero
    point).

    scale: above 0; a number for a tensor, or one per channel as a float64 tensor (channels, 1, …).
    """

    scale: Any
    zero_point: int
    lowest: int
    highest: int

    def quantize(self, values: Any) -> Any:
        """The nearest integers, int32, clamped to the grid."""
        steps = torch.round(values.double() / self.scale) + self.zero_point
        return steps.clamp(self.lowest, self.highest).to(torch.int32)

    def dequantize(self, integers: Any) -> Any:
        """The reals that these integers represent, float64."""
        return self.scale * (integers.double() - self.zero_point)

    def rounded(self, values: Any) -> Any:
        """Simulated quantization: the values rounded to the grid, in their own dtype."""
        scale = self.scale.to(values.dtype) if isinstance(self.scale, torch.Tensor) else self.scale
        steps = (
            (values / scale)
            .round_()
            .clamp_(self.lowest - self.zero_point, self.highest - self.zero_point)
        )
        return steps.mul_(scale)


class Binary(Grid):
    """Weights of one bit, −scale or +scale. Source: Rastegari et al., XNOR-Net, ECCV 2016, equation
    6."""

    def quantize(self, values: Any) -> Any:
        """−1 or 1, int32; 0 counts as 1."""
        return torch.where(values < 0, -1, 1).to(torch.int32)

    def rounded(self, values: Any) -> Any:
        return self.dequantize(self.quantize(values)).to(values.dtype)


@dataclass(frozen=True)
class Profile:
    """A tensor and how its values are distributed."""

    values: Any
    low: float
    high: float
    mean: float
    deviation: float

    @classmethod
    def of(cls, values: Any) -> Profile:
        """The profile of these values. Raises HpmlError if one is not finite."""
        doubles = values.double()
        low, high = float(doubles.min()), float(doubles.max())
        if not (math.isfinite(low) and math.isfinite(high)):
            raise HpmlError("a value is not finite: nothing can be quantized that has no range")
        return cls(values, low, high, float(doubles.mean()), float(doubles.std(correction=0)))

    def range(self, kind: str) -> tuple[float, float]:
        """The lowest and highest real to keep; values outside are clamped. kind: of RANGES."""
        reach = math.inf if kind == "minmax" else 3 * self.deviation
        return max(self.low, self.mean - reach), min(self.high, self.mean + reach)


def affine_grid(low: float, high: float, bits: int) -> Grid:
    """The grid of `bits` bits over a range, widened to include 0, which is then an exact step, so
    that padding is exact.

    scale = (high − low) / (2^bits − 1), zero point = round(lowest − low / scale), integers
    −2^(bits−1) … 2^(bits−1) − 1 (the paper's less 2^(bits−1)). A range of 0 alone has scale 1 and
    its zero at the lowest integer, as for a ReLU.
    """
    low, high = min(low, 0.0), max(high, 0.0)
    lowest, highest = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    scale = (high - low) / (highest - lowest)
    if scale < SMALLEST_SCALE:
        return Grid(1.0, lowest, lowest, highest)
    zero_point = round(lowest - low / scale)
    return Grid(scale, max(lowest, min(zero_point, highest)), lowest, highest)


def weight_grid(weight: Any, bits: int, granularity: str, kind: str) -> Grid:
    """The symmetric grid of a weight (out, in, …): zero point 0, integers −(2^(bits−1) − 1) …
    2^(bits−1) − 1.

    kind: of RANGES.  One bit is Binary with scale = mean |w|, the nearest such tensor.  A channel
    of zeros has scale 1.
    """
    rows = weight.detach().double().reshape(weight.shape[0] if granularity == "channel" else 1, -1)
    reach = rows.abs().amax(1)
    if kind == "sigma3":
        mean, deviation = rows.mean(1), rows.std(1, correction=0)
        reach = torch.minimum(
            reach, torch.maximum((mean - 3 * deviation).abs(), (mean + 3 * deviation).abs())
        )
    highest = 1 if bits == 1 else 2 ** (bits - 1) - 1
    scale = rows.abs().mean(1) if bits == 1 else reach / highest
    scale = torch.where(scale < SMALLEST_SCALE, torch.ones_like(scale), scale)
    scale = scale.reshape((-1, *[1] * (weight.dim() - 1)) if granularity == "channel" else ())
    return (Binary if bits == 1 else Grid)(scale, 0, -highest, highest)


def bias_grid(input_scale: float, weight_scale: Any) -> Grid:
    """The grid of a bias: int32, zero point 0, scale = the input's times the weight's, that of the
    products' sums."""
    return Grid(
        input_scale * torch.as_tensor(weight_scale).double().reshape(-1), 0, -INT32_HIGH, INT32_HIGH
    )


def multiplier(real: float) -> tuple[int, int]:
    """(M₀, n) with real ≈ M₀ · 2^(−31 − n), M₀ from 2^30 to 2^31 − 1; n is below 0 for reals of 1
    and above.

    A real below 2^−62 is (0, 0).  Raises HpmlError if it is negative, not finite, or 2^31 and
    above.
    """
    if not (0 <= real < 2.0**31):
        raise HpmlError(f"no fixed-point multiplier for {real}: it must be from 0 to below 2^31")
    if real < 2.0**-62:
        return 0, 0
    fraction, exponent = math.frexp(real)  # fraction in [½, 1)
    mantissa = round(fraction * 2**31)
    return (2**30, -exponent - 1) if mantissa == 2**31 else (mantissa, -exponent)


def rescale(values: Any, multipliers: Any, shifts: Any) -> Any:
    """round(values · M₀ · 2^(−31 − n)) as the paper computes it, by two roundings. values: hold
    int32.  All int64."""
    if bool((shifts < 0).any()):
        values = (values.long() << (-shifts).clamp(min=0)).clamp(INT32_LOW, INT32_HIGH)
        shifts = shifts.clamp(min=0)
    return divide_by_power(high_product(values, multipliers), shifts)


def high_product(a: Any, b: Any) -> Any:
    """round(a · b / 2^31), ties up, as ARM's SQRDMULH and gemmlowp's
    SaturatingRoundingDoublingHighMul.

    a: holds int32.  b: int64 from 0 to 2^31 − 1, so that the one product that overflows, (−2^31)²,
    does not occur.
    """
    return (a.long() * b).add_(2**30).__irshift__(31)


def divide_by_power(values: Any, exponents: Any) -> Any:
    """round(values / 2^exponents), ties away from zero: gemmlowp's RoundingDivideByPOT. int64, in
    place.

    Ties up would bias the many ties of small numbers, which costs accuracy (appendix B).
    exponents: int64, 0 to 62.
    """
    half = (torch.ones_like(exponents) << exponents) >> 1
    # One less for a negative value, so that its tie is rounded down. 2^0 has no ties.
    lower = (values >> 63).mul_((exponents > 0).long())
    return values.add_(lower).add_(half).__irshift__(exponents)


@dataclass(frozen=True)
class Block:
    """One module, with the ReLU after it; after `quantize` also the grids of its input, result and
    weight.

    weighted: whether it has weights; other modules only select or move integers. integers: its
    weight, int8.  bias: int32, with −zero point · Σ weights of each channel added (equation 7).
    multipliers, shifts: of the rescaling, one per channel.
    """

    name: str
    module: Any
    weighted: bool
    relu: bool = False
    given: Any = None
    result: Any = None
    weight: Grid | None = None
    integers: Any = None
    bias: Any = None
    multipliers: Any = None
    shifts: Any = None

    def run(self, values: Any, parameters: Mapping[str, Any] | None = None) -> Any:
        """Compute in floating point. parameters: by name, in place of the module's own."""
        values = torch.func.functional_call(self.module, dict(parameters or {}), (values,))
        return torch.relu(values) if self.relu else values


def blocks_of(network: nn.Sequential) -> list[Block]:
    """The modules in order: the kinds in `simple_network`. The ReLU after a module with weights is
    part of its block: the clamp of its result does it.
    """
    blocks: list[Block] = []
    for name, module in network.named_children():
        if isinstance(module, nn.ReLU):
            blocks[-1] = replace(blocks[-1], relu=True)
        else:
            blocks.append(Block(name, module, isinstance(module, nn.Conv2d | nn.Linear)))
    return blocks


def calibrate(blocks: Sequence[Block], images: Any) -> dict[str, Profile]:
    """The input, and the result in floating point of each block with weights, by name."""
    profiles = {INPUT: Profile.of(images)}
    for block in blocks:
        images = block.run(images)
        if block.weighted:
            profiles[block.name] = Profile.of(images)
    return profiles


def remarks(profiles: Mapping[str, Profile], labels: Any, classes: Sequence[str]) -> list[str]:
    """Warnings: classes missing in the calibration set, and results that were all the same."""
    said = []
    present = set(labels.tolist())
    if missing := ", ".join(name for number, name in enumerate(classes) if number not in present):
        said.append(
            f"the {len(labels)} calibration images show no {missing}: what only these would reach"
            " is clamped"
        )
    for name, profile in profiles.items():
        if profile.low == profile.high:
            said.append(
                f"{name}: all activations of the calibration set are {profile.low:g}, a range of"
                " zero; it was widened to hold 0"
                + ("" if profile.low else ", and its scale set to 1")
            )
    return said


def quantize(
    blocks: Sequence[Block],
    profiles: Mapping[str, Profile],
    *,
    bits: int,
    granularity: str,
    kind: str,
) -> list[Block]:
    """The blocks with grids: weights and activations of 1 to 8 bits, biases of 32, the last result
    of LOGIT_BITS.

    granularity: of the weights.  kind: of RANGES.  Raises HpmlError for a range without a
    fixed-point multiplier.
    """
    given = affine_grid(INPUT_LOW, INPUT_HIGH, bits)
    last = [block for block in blocks if block.weighted][-1:]
    network = []
    for block in blocks:
        quantized = replace(block, given=given, result=given)
        if block.weighted:
            low, high = profiles[block.name].range("minmax" if block in last else kind)
            quantized = replace(
                quantized, result=affine_grid(low, high, LOGIT_BITS if block in last else bits)
            )
            quantized = _with_weight(
                quantized, weight_grid(block.module.weight, bits, granularity, kind)
            )
        network.append(quantized)
        given = quantized.result
    return network


def _with_weight(block: Block, weight: Grid) -> Block:
    integers = weight.quantize(block.module.weight)
    grid = bias_grid(block.given.scale, weight.scale)
    bias = grid.quantize(block.module.bias).long() if block.module.bias is not None else 0
    bias = (bias - block.given.zero_point * integers.long().flatten(1).sum(1)).clamp(
        INT32_LOW, INT32_HIGH
    )
    factors = [
        multiplier(scale / block.result.scale)
        for scale in grid.scale.expand(len(integers)).tolist()
    ]
    multipliers, shifts = torch.tensor(factors, device=integers.device).unbind(1)
    constants = {"integers": integers.to(torch.int8), "bias": bias.to(torch.int32)}
    return replace(block, weight=weight, multipliers=multipliers, shifts=shifts, **constants)


def simulate(network: Sequence[Block], images: Any, step: str) -> Any:
    """Logits in floating point with everything up to `step` of STEPS rounded to its grid. images:
    reals."""
    stage = STEPS.index(step)
    values = network[0].given.rounded(images) if stage >= 1 else images
    for block in network:
        module, parameters = block.module, {}
        if block.weight is not None:
            parameters["weight"] = block.weight.rounded(module.weight)
            if stage >= 2 and module.bias is not None:
                parameters["bias"] = bias_grid(block.given.scale, block.weight.scale).rounded(
                    module.bias
                )
        values = block.run(values, parameters)
        if stage >= 1 and block.weighted:
            values = block.result.rounded(values)
    return values


def to_integers(network: Sequence[Block], images: Any) -> Any:
    """The network's input: real images as int8."""
    return network[0].given.quantize(images).to(torch.int8)


def infer(network: Sequence[Block], values: Any, product: Product | None = None) -> Any:
    """Logits from images, both as integers, using only integers.

    product: int8 (m, k) times int8 (k, n) to int32; default: `int8_product`.
    """
    product = product or int8_product
    for block in network:
        module = block.module
        if isinstance(module, nn.Conv2d):
            values = _convolve(block, values, product)
        elif isinstance(module, nn.Linear):
            values = _finish(block, product(values, block.integers.t()))
        elif isinstance(module, nn.MaxPool2d):
            side = module.kernel_size
            values = values.unfold(2, side, side).unfold(3, side, side).amax((4, 5))
        else:
            values = module(values)
    return values


def _convolve(block: Block, values: Any, product: Product) -> Any:
    """As a matrix product of patches; the padding is the integer that represents 0."""
    module = block.module
    (high, wide), (down, right), (above, left) = module.kernel_size, module.stride, module.padding
    values = nn.functional.pad(values, (left, left, above, above), value=block.given.zero_point)
    patches = values.unfold(2, high, down).unfold(3, wide, right).permute(0, 2, 3, 1, 4, 5)
    sums = product(patches.flatten(3).flatten(0, 2), block.integers.flatten(1).t())
    return _finish(block, sums).unflatten(0, patches.shape[:3]).permute(0, 3, 1, 2)


def _finish(block: Block, sums: Any) -> Any:
    """From int32 sums to the result's integers: bias, rescaling, zero point, clamp. A ReLU's grid
    begins at its 0."""
    total = sums.long().add_(block.bias).clamp_(INT32_LOW, INT32_HIGH)
    scaled = rescale(total, block.multipliers, block.shifts).add_(block.result.zero_point)
    return _stored(scaled.clamp_(block.result.lowest, block.result.highest), block.result)


def _stored(integers: Any, grid: Grid) -> Any:
    return integers.to(torch.int8 if grid.highest < 128 else torch.int16)


def int8_product(a: Any, b: Any) -> Any:
    """a (m, k) · b (k, n), int8 to int32, by `torch._int_mm`: on CUDA it needs multiples of 8, and
    m above 16."""
    (m, k), n = a.shape, b.shape[1]
    if a.device.type == "cpu":
        return torch._int_mm(a, b)
    a = nn.functional.pad(a, (0, -k % 16, 0, max(32 - m, -m % 16)))
    b = nn.functional.pad(b.t(), (0, -k % 16, 0, -n % 16)).t()
    return torch._int_mm(a.contiguous(), b)[:m, :n]


def exact_product(a: Any, b: Any) -> Any:
    """The same by 64-bit integers on the CPU: slow, but always exact."""
    return (a.cpu().long() @ b.cpu().long()).to(torch.int32).to(a.device)


class FloatDetector(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped to mypy here
    """Inspects every tensor that torch reads or creates. floating: operation → dtypes of
    floating-point or complex ones."""

    def __init__(self) -> None:
        super().__init__()
        self.floating: dict[str, set[str]] = {}
        self.operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called by torch for each operation."""
        results = func(*args, **(kwargs or {}))
        self.operations += 1
        for each in tree_leaves((args, kwargs, results)):
            if isinstance(each, torch.Tensor) and (each.is_floating_point() or each.is_complex()):
                self.floating.setdefault(str(func), set()).add(str(each.dtype))
        return results
