"""The plugin `quantization` by hand: scales, zero points, fixed-point multipliers, and a network in
integers alone."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from hpml_plugins import HpmlError
from hpml_plugins.plugins.quantization.integers import (
    Binary,
    FloatDetector,
    Grid,
    Profile,
    affine_grid,
    bias_grid,
    blocks_of,
    calibrate,
    divide_by_power,
    exact_product,
    high_product,
    infer,
    int8_product,
    multiplier,
    quantize,
    remarks,
    rescale,
    simulate,
    to_integers,
    weight_grid,
)
from hpml_plugins.plugins.quantization.networks import (
    INPUT_HIGH,
    INPUT_LOW,
    as_reals,
    simple_network,
)
from hpml_plugins.plugins.quantization.steps import bin_shares

REALS = st.floats(-1e3, 1e3, allow_subnormal=False)


# Grids


def test_scale_and_zero_point_by_hand() -> None:
    grid = affine_grid(-0.5, 1.5, 8)
    # (1.5 + 0.5) / 255; −128 + 0.5 · 255 / 2 = −128 + 63.75 = −64.25
    assert grid == Grid(2 / 255, -64, -128, 127)
    # 1 / (2 / 255) = 127.5 → 128 (to even) − 64; 1.5 · 127.5 = 191.25 − 64 = 127.25; beyond the
    # range it is clamped
    values = torch.tensor([0.0, 1.0, 1.5, -0.5, 9.0])
    assert grid.quantize(values).tolist() == [-64, 64, 127, -128, 127]
    assert grid.dequantize(torch.tensor([-64, 61])).tolist() == pytest.approx(
        [0.0, 250 / 255]
    )


def test_a_result_of_relu_has_its_zero_at_the_lowest_integer() -> None:
    assert affine_grid(0.0, 6.0, 8) == Grid(6 / 255, -128, -128, 127)
    # A range above 0 is widened to hold it.
    assert affine_grid(2.0, 6.0, 4) == Grid(6 / 15, -8, -8, 7)
    assert affine_grid(0.0, 3.0, 1) == Grid(3.0, -1, -1, 0)


def test_bytes_are_integers_of_eight_bits_without_any_error() -> None:
    grid = affine_grid(INPUT_LOW, INPUT_HIGH, 8)
    assert (grid.scale, grid.zero_point) == (
        1 / 64,
        0,
    )  # (127 / 64 + 2) / 255 = (255 / 64) / 255
    every = torch.arange(256, dtype=torch.uint8)
    assert torch.equal(grid.quantize(as_reals(every)), every.int() - 128)


def test_weights_of_eight_bits_by_hand() -> None:
    weight = torch.tensor([[0.51, -1.28], [2.54, 0.0]])
    of_tensor = weight_grid(weight, 8, "tensor", "minmax")
    # 2.54 / 127 = 0.02: 25.5 → 26 in float32's 0.51, −64, 127, 0
    assert float(of_tensor.scale) == pytest.approx(0.02)
    assert of_tensor.quantize(weight).tolist()[1] == [127, 0]
    of_channel = weight_grid(weight, 8, "channel", "minmax")
    assert of_channel.scale.flatten().tolist() == pytest.approx([1.28 / 127, 0.02])
    # 0.51 · 127 / 1.28 = 50.6
    assert of_channel.quantize(weight).tolist() == [[51, -127], [127, 0]]
    assert of_channel.zero_point == 0


def test_weights_of_two_bits_and_of_one() -> None:
    weight = torch.tensor([[0.3, -0.9, 0.5, 0.1]])
    # −1, 0, 1 times 0.9
    assert weight_grid(weight, 2, "tensor", "minmax").quantize(weight).tolist() == [
        [0, -1, 1, 0]
    ]
    binary = weight_grid(weight, 1, "tensor", "minmax")
    assert isinstance(binary, Binary)
    # (0.3 + 0.9 + 0.5 + 0.1) / 4
    assert binary.rounded(weight).tolist() == [pytest.approx([0.45, -0.45, 0.45, 0.45])]


def test_three_deviations_by_hand() -> None:
    weight = torch.zeros(1, 100)
    weight[0, 0] = 10.0
    # mean 0.1, deviation √(100 / 100 − 0.01) = 0.994987; 0.1 + 3 · 0.994987 = 3.084962
    grid = weight_grid(weight, 8, "tensor", "sigma3")
    assert float(grid.scale) == pytest.approx(3.084962 / 127, rel=1e-6)
    assert Profile.of(weight).range("sigma3") == (0.0, pytest.approx(3.084962, rel=1e-6))
    assert Profile.of(weight).range("minmax") == (0.0, 10.0)


def test_a_bias_has_the_scale_of_the_products() -> None:
    grid = bias_grid(0.5, torch.tensor([[0.1], [0.2]]))
    assert grid.scale.tolist() == pytest.approx([0.05, 0.1])
    assert grid.quantize(torch.tensor([1.0, -1.0])).tolist() == [20, -10]


def test_a_value_that_is_not_finite_has_no_range() -> None:
    with pytest.raises(HpmlError, match="a value is not finite"):
        Profile.of(torch.tensor([1.0, float("inf")]))
    with pytest.raises(HpmlError, match="a value is not finite"):
        Profile.of(torch.tensor([1.0, float("nan")]))


@given(st.tuples(REALS, REALS), st.sampled_from([2, 4, 6, 8, 16]), st.floats(0, 1))
def test_there_and_back_is_within_half_a_step(
    ends: tuple[float, float], bits: int, share: float
) -> None:
    low, high = sorted(ends)
    grid = affine_grid(low, high, bits)
    value = torch.tensor([low + share * (high - low)], dtype=torch.float64)
    back = grid.dequantize(grid.quantize(value))
    if grid.scale != 1.0:  # a range of 0 alone
        assert float((back - value).abs()) <= grid.scale / 2 * (1 + 1e-9) + 1e-12
    assert float(grid.dequantize(grid.quantize(torch.zeros(1)))) == 0.0


@given(
    st.lists(st.floats(-50, 50, width=32, allow_subnormal=False), min_size=4, max_size=4),
    st.sampled_from([2, 4, 8]),
)
def test_weights_there_and_back_are_within_half_a_step(
    values: list[float], bits: int
) -> None:
    weight = torch.tensor(values, dtype=torch.float64).reshape(2, 2)
    grid = weight_grid(weight, bits, "channel", "minmax")
    assert bool(
        ((grid.rounded(weight) - weight).abs() <= grid.scale / 2 * (1 + 1e-9) + 1e-30).all()
    )


@pytest.mark.parametrize("bits", [1, 2, 8])
def test_a_range_of_zero_is_no_division_by_zero(bits: int) -> None:
    grid = affine_grid(0.0, 0.0, bits)
    assert (grid.scale, float(grid.rounded(torch.zeros(1)))) == (1.0, 0.0)
    weight = torch.tensor([[0.0, 0.0], [1.0, -1.0]])
    rounded = weight_grid(weight, bits, "channel", "minmax").rounded(weight)
    assert bool(torch.isfinite(rounded).all())
    assert rounded[1].tolist() == [1.0, -1.0]


# Fixed point


@pytest.mark.parametrize(
    ("real", "mantissa", "shift"),
    [
        (0.5, 2**30, 0),
        (0.25, 2**30, 1),
        (0.75, 1_610_612_736, 0),  # 0.75 · 2^31
        (1 / 3, 1_431_655_765, 1),  # 2/3 · 2^31 = 1,431,655,765.33
        (3.0, 1_610_612_736, -2),  # 0.75 · 2^2
        (1 - 2**-40, 2**30, -1),  # rounds to 2^31, which int32 does not hold: ½ · 2
        (0.0, 0, 0),
        (2.0**-70, 0, 0),
    ],
)
def test_multipliers_by_hand(real: float, mantissa: int, shift: int) -> None:
    assert multiplier(real) == (mantissa, shift)


@pytest.mark.parametrize("real", [-0.1, float("nan"), float("inf"), 2.0**31])
def test_a_real_without_multiplier_is_refused(real: float) -> None:
    with pytest.raises(HpmlError, match="no fixed-point multiplier"):
        multiplier(real)


def test_high_products_by_hand() -> None:
    # 3 · 2^30 / 2^31 = 1.5 → 2; −1.5 → −1, ties up; 5 · 2^29 / 2^31 = 1.25 → 1; the largest and
    # smallest int32
    a = torch.tensor([3, -3, 5, -(2**31), 2**31 - 1])
    b = torch.tensor([2**30, 2**30, 2**29, 2**30, 2**30])
    assert high_product(a, b).tolist() == [2, -1, 1, -(2**30), 2**30]


def test_dividing_by_a_power_rounds_ties_away_from_zero() -> None:
    values = torch.tensor([5, -5, 4, -4, 3, -3, 7, -7])
    exponents = torch.tensor([1, 1, 3, 3, 3, 3, 0, 0])
    # 2.5, −2.5, 0.5, −0.5, 0.375, −0.375, 7, −7
    assert divide_by_power(values, exponents).tolist() == [3, -3, 1, -1, 0, 0, 7, -7]


def test_rescaling_rounds_twice_as_the_paper_does() -> None:
    mantissa, shift = (torch.tensor([number]) for number in multiplier(0.384))
    # 0.768 · 2^31 and a shift of 1: 1 → round(0.768) = 1 → round(1 / 2) = 1, though 0.384 itself is
    # nearer to 0
    assert rescale(torch.tensor([1], dtype=torch.int32), mantissa, shift).tolist() == [1]
    # 1000: round(768.0) / 2 = 384
    assert rescale(torch.tensor([1000], dtype=torch.int32), mantissa, shift).tolist() == [
        384
    ]


@given(st.integers(-(2**31), 2**31 - 1), st.floats(2.0**-20, 0.999))
def test_rescaling_is_within_two_roundings(value: int, real: float) -> None:
    mantissa, shift = (torch.tensor([number]) for number in multiplier(real))
    found = int(rescale(torch.tensor([value], dtype=torch.int32), mantissa, shift))
    # half of the last step, half of the one before it, and 31 bits of the multiplier
    assert (
        abs(found - value * real)
        <= 0.5 + 0.5 * 2.0 ** -int(shift) + abs(value * real) * 2.0**-30
    )


# Networks


def network_of(**modules: nn.Module) -> nn.Sequential:
    return nn.Sequential(OrderedDict(modules)).eval().requires_grad_(False)


def in_integers(
    network: nn.Sequential, images: Any, bits: int = 8, granularity: str = "channel"
) -> Any:
    blocks = blocks_of(network)
    seen = calibrate(blocks, images)
    return quantize(blocks, seen, bits=bits, granularity=granularity, kind="minmax")


def test_a_linear_layer_in_integers_by_hand() -> None:
    linear = nn.Linear(2, 1)
    linear.weight.data = torch.tensor([[1.27, -0.64]])
    linear.bias.data = torch.tensor([0.5])
    # [1, −1], [0, 127 / 64]
    images = as_reals(torch.tensor([[192, 64], [128, 255]], dtype=torch.uint8))
    (each,) = in_integers(network_of(linear=linear), images)
    # weight scale 0.01: 127, −64.  bias 0.5 / (0.01 / 64) = 3200, less 0 · Σ weights
    assert each.integers.tolist() == [[127, -64]]
    assert each.bias.tolist() == [3200]
    # results 2.41 and 0.5 − 0.64 · 127 / 64 = −0.77, 16 bits: scale 3.18 / 65535
    assert each.result.scale == pytest.approx(3.18 / 65535, rel=1e-6)
    logits = infer([each], to_integers([each], images))
    assert logits.dtype == torch.int16
    # 64 · 127 + 64 · 64 + 3200 = 15424 of 0.01 / 64: 2.41; 127 · −64 + 3200 = −4928: −0.77
    assert each.result.dequantize(logits).flatten().tolist() == pytest.approx(
        [2.41, -0.77], abs=each.result.scale
    )


def test_padding_is_the_integer_that_stands_for_zero() -> None:
    convolution = nn.Conv2d(1, 1, 3, padding=1, bias=False)
    convolution.weight.data.fill_(1.0)
    network = network_of(first=nn.Conv2d(1, 1, 1), relu=nn.ReLU(), second=convolution)
    network.first.weight.data.fill_(1.0)
    network.first.bias.data.fill_(1.0)
    images = torch.ones(1, 1, 2, 2)
    integers = in_integers(network, images)
    assert integers[1].given.zero_point == -128  # ReLU's
    # each of the four sees all four twos, and zeros around them
    found = integers[-1].result.dequantize(infer(integers, to_integers(integers, images)))
    assert found.flatten().tolist() == pytest.approx([8.0] * 4, rel=0.02)


@pytest.mark.parametrize("granularity", ["tensor", "channel"])
def test_integers_alone_agree_with_the_network_and_have_no_floating_point_tensor(
    granularity: str,
) -> None:
    torch.manual_seed(1)
    # an odd side: pooling leaves a row out
    network = simple_network((3, 9, 8), 5).eval().requires_grad_(False)
    images = as_reals(torch.randint(0, 256, (50, 3, 9, 8), dtype=torch.uint8))
    integers = in_integers(network, images, granularity=granularity)
    given = to_integers(integers, images)
    with FloatDetector() as tensors:
        logits = infer(integers, given)
    assert (tensors.floating, tensors.operations > 50) == ({}, True)
    wanted = network(images)
    found = integers[-1].result.dequantize(logits)
    assert float((found - wanted).norm() / wanted.norm()) < 0.05
    assert torch.equal(infer(integers, given, exact_product), logits)
    simulated = simulate(integers, images, "biases")
    assert float((found - simulated).norm() / simulated.norm()) < 0.01


def test_a_floating_point_tensor_among_integers_is_seen() -> None:
    with FloatDetector() as tensors:
        torch.tensor([1, 2]) * 0.5
    assert {"torch.float32"} in tensors.floating.values()


def test_int8_products_are_exact() -> None:
    a = torch.randint(-128, 128, (5, 27), dtype=torch.int8)
    b = torch.randint(-127, 128, (27, 3), dtype=torch.int8)
    assert torch.equal(int8_product(a, b), exact_product(a, b))


def test_activations_that_are_all_zero_are_said_and_divide_nothing() -> None:
    network = network_of(
        flatten=nn.Flatten(),
        linear1=nn.Linear(4, 4),
        relu=nn.ReLU(),
        linear2=nn.Linear(4, 2),
    )
    network.linear1.bias.data.fill_(-1e3)  # nothing passes the ReLU
    network.linear2.bias.data = torch.tensor([1.0, 2.0])
    images = as_reals(torch.randint(0, 256, (6, 1, 2, 2), dtype=torch.uint8))
    seen = calibrate(blocks_of(network), images)
    assert remarks(seen, torch.tensor([0, 1]), ["no", "yes"]) == [
        (
            "linear1: all activations of the calibration set are 0, a range of zero; it was widened"
            " to hold 0, and its scale set to 1"
        ),
    ]
    integers = in_integers(network, images)
    assert infer(integers, to_integers(integers, images)).argmax(1).tolist() == [1] * 6


def test_a_class_that_the_calibration_set_lacks_is_named() -> None:
    seen = calibrate(
        blocks_of(network_of(flatten=nn.Flatten())), torch.tensor([[0.0, 1.0]])
    )
    assert remarks(seen, torch.tensor([0, 2]), ["cat", "dog", "ship", "frog"]) == [
        "the 2 calibration images show no dog, frog: what only these would reach is clamped"
    ]


def test_shares_of_a_histogram_are_of_all_values() -> None:
    found = bin_shares(torch.tensor([0.0, 0.1, 1.0, 7.0]), 0.0, 4.0)
    # bins of 0.1: 0; 0.1; 1.0; and 7 in the outermost
    assert (found[0], found[-1], sum(found)) == (0.25, 0.25, pytest.approx(1.0))
