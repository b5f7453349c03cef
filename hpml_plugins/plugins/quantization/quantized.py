"""A network in integers: simulated in floating point step by step, and with integers alone.

Source: Jacob et al. 2018, sections 2.1 to 2.4. Imports torch: imported on use only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from hpml_plugins import HpmlError
from hpml_plugins.plugins.quantization.affine import Binary, Grid, Profile, affine_grid, bias_grid, weight_grid
from hpml_plugins.plugins.quantization.blocks import Block
from hpml_plugins.plugins.quantization.fixed_point import INT32_HIGH, INT32_LOW, multiplier, rescale
from hpml_plugins.plugins.quantization.network import INPUT_HIGH, INPUT_LOW

#: What is quantized after each step; "integer" computes with integers alone.
STEPS = ("weights", "activations", "biases", "integer")
#: Nothing reads the logits but the choice of the largest: they keep 16 bits, so that few of them tie.
LOGIT_BITS = 16
Product = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Quantized:
    """A block with its grids.

    given, result: of its input and result.  weight: the weight's grid.  integers: its weight, int8.  bias: int32, with
    −zero point · Σ weights of each channel added (equation 7).  multipliers, shifts: of the rescaling, one a channel.
    """

    block: Block
    given: Grid
    result: Grid
    weight: Grid | Binary | None = None
    integers: Any = None
    bias: Any = None
    multipliers: Any = None
    shifts: Any = None


def quantize(
    blocks: Sequence[Block], profiles: dict[str, Profile], *, bits: int, granularity: str, kind: str
) -> list[Quantized]:
    """Grids for every block: weights and activations of `bits` bits, biases of 32, the last result of LOGIT_BITS.

    profiles: of a calibration.  granularity: of the weights.  kind: how ranges are taken.  The input's range is that of
    the bytes. Raises HpmlError for a range without a fixed-point multiplier.
    """
    if not 1 <= bits <= 8:
        raise HpmlError(f"{bits} bits: integers of 1 to 8 bits are quantized here")
    given = affine_grid(INPUT_LOW, INPUT_HIGH, bits)
    last = [block.name for block in blocks if block.kind == "weights"][-1:]
    network = []
    for block in blocks:
        if block.kind == "shape":
            network.append(Quantized(block, given, given))
            continue
        low, high = profiles[block.name].range("minmax" if block.name in last else kind)
        result = affine_grid(low, high, LOGIT_BITS if block.name in last else bits)
        grids = (given, result)
        network.append(
            _with_weights(block, *grids, weight_grid(block.module.weight, bits, granularity, kind))
            if block.kind == "weights"
            else Quantized(block, *grids)
        )
        given = result
    return network


def _with_weights(block: Block, given: Grid, result: Grid, weight: Grid | Binary) -> Quantized:
    module = block.module
    channels = module.weight.shape[0]
    integers = weight.quantize(module.weight)
    grid = bias_grid(given.scale, weight.scale)
    bias = grid.quantize(module.bias).long() if module.bias is not None else torch.zeros_like(integers[:, 0]).long()
    bias = bias.reshape(channels, -1)[:, 0] - given.zero_point * integers.long().flatten(1).sum(1)
    factors = [multiplier(scale / result.scale) for scale in grid.scale.expand(channels).tolist()]
    device = module.weight.device
    mantissas, shifts = (torch.tensor(column, device=device) for column in zip(*factors, strict=True))
    return Quantized(
        block,
        given,
        result,
        weight,
        integers.to(torch.int8),
        bias.clamp(INT32_LOW, INT32_HIGH).to(torch.int32),
        mantissas,
        shifts,
    )


def simulate(network: Sequence[Quantized], images: Any, step: str) -> Any:
    """Logits in floating point with everything up to `step` rounded to its grid. images: reals.

    step: "weights"; "activations", these too; "biases", all three.
    """
    stage = STEPS.index(step)
    values = network[0].given.rounded(images) if stage >= 1 else images
    for each in network:
        block = each.block
        if each.weight is not None:
            weight, bias = each.weight.rounded(block.module.weight), block.module.bias
            if stage >= 2 and bias is not None:
                bias = bias_grid(each.given.scale, each.weight.scale).rounded(bias)
            values = _apply(block.module, values, weight, bias)
            values = torch.relu(values) if block.relu else values
        else:
            values = block.run(values)
        if stage >= 1 and block.kind != "shape":
            values = each.result.rounded(values)
    return values


def _apply(module: nn.Module, values: Any, weight: Any, bias: Any) -> Any:
    if isinstance(module, nn.Conv2d):
        return nn.functional.conv2d(values, weight, bias, module.stride, module.padding)
    return nn.functional.linear(values, weight, bias)


def to_integers(network: Sequence[Quantized], images: Any) -> Any:
    """The network's input: real images as int8."""
    return network[0].given.quantize(images).to(torch.int8)


def infer(network: Sequence[Quantized], values: Any, product: Product | None = None) -> Any:
    """Logits as integers from images as integers (int8), by integers alone, but for blocks that are left in float.

    product: int8 (m, k) times int8 (k, n) to int32; torch's own int8 product when left out.
    """
    for each in network:
        module = each.block.module
        if each.block.kind == "float":
            reals = module(each.given.dequantize(values).float())
            values = _stored(each.result.quantize(reals), each.result)
        elif isinstance(module, nn.Conv2d):
            values = _convolve(each, values, product or int8_product)
        elif isinstance(module, nn.Linear):
            values = _finish(each, (product or int8_product)(values, each.integers.t()))
        elif isinstance(module, nn.MaxPool2d):
            values = _largest(values, module.kernel_size)
        else:
            values = module(values)
    return values


def _convolve(each: Quantized, values: Any, product: Product) -> Any:
    """As a matrix product of patches; the padding is the integer that stands for 0."""
    module = each.block.module
    (high, wide), (down, right) = module.kernel_size, module.stride
    above, left = module.padding
    values = nn.functional.pad(values, (left, left, above, above), value=each.given.zero_point)
    patches = values.unfold(2, high, down).unfold(3, wide, right).permute(0, 2, 3, 1, 4, 5)
    images, rows, columns = patches.shape[:3]
    sums = product(patches.reshape(images * rows * columns, -1), each.integers.flatten(1).t())
    return _finish(each, sums).reshape(images, rows, columns, -1).permute(0, 3, 1, 2)


def _finish(each: Quantized, sums: Any) -> Any:
    """From int32 sums to the result's integers: bias, rescaling, zero point, clamp. A ReLU's grid begins at its 0."""
    total = sums.long().add_(each.bias).clamp_(INT32_LOW, INT32_HIGH)
    scaled = rescale(total, each.multipliers, each.shifts).add_(each.result.zero_point)
    return _stored(scaled.clamp_(each.result.lowest, each.result.highest), each.result)


def _stored(integers: Any, grid: Grid) -> Any:
    return integers.to(torch.int8 if grid.highest < 128 else torch.int16)


def _largest(values: Any, side: Any) -> Any:
    high, wide = (side, side) if isinstance(side, int) else side
    images, channels, rows, columns = values.shape
    values = values[:, :, : rows // high * high, : columns // wide * wide]
    return values.reshape(images, channels, rows // high, high, columns // wide, wide).amax((3, 5))


def int8_product(a: Any, b: Any) -> Any:
    """a (m, k) · b (k, n), int8 to int32, by `torch._int_mm`: on CUDA it wants multiples of 8, and m above 16."""
    (m, k), n = a.shape, b.shape[1]
    if a.device.type == "cpu":
        return torch._int_mm(a, b)
    a = nn.functional.pad(a, (0, -k % 16, 0, max(32 - m, -m % 16)))
    b = nn.functional.pad(b.t(), (0, -k % 16, 0, -n % 16)).t()
    return torch._int_mm(a.contiguous(), b)[:m, :n]


def exact_product(a: Any, b: Any) -> Any:
    """The same by 64-bit integers on the CPU: slow, and never wrong."""
    return (a.cpu().long() @ b.cpu().long()).to(torch.int32).to(a.device)
