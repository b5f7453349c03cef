"""Multiply-adds from shapes alone. fvcore counts the same; these are what its counts are held against."""

from __future__ import annotations

import math
from collections.abc import Sequence

#: One multiply-add is two floating-point operations, a multiplication and an addition.
FLOP_PER_MULTIPLY_ADD = 2


def convolution_multiply_adds(
    out_channels: int, out_height: int, out_width: int, in_channels: int, kernel: int, groups: int = 1
) -> int:
    """Multiply-adds of one square 2-d convolution on one image; the bias is not counted.

    out_height, out_width: size of the result.  kernel: side of the square window.  groups: of the channels.
    VGG's second layer: 64 · 224 · 224 · 64 · 3² = 1,849,688,064.
    Source: torch/utils/flop_counter.py, conv_flop_count: a dot product over kernel² · in_channels / groups an output.
    """
    return out_channels * out_height * out_width * (in_channels // groups) * kernel**2


def linear_multiply_adds(in_features: int, out_features: int, rows: int = 1) -> int:
    """Multiply-adds of a fully connected layer; the bias is not counted.

    rows: how many vectors pass, 1 for one image.  VGG's first: 25,088 · 4,096 = 102,760,448.
    """
    return rows * in_features * out_features


def attention_multiply_adds(batch_heads: int, queries: int, keys: int, key_size: int, value_size: int) -> int:
    """Multiply-adds of scaled dot-product attention: Q Kᵀ and its product with V; the softmax is not counted.

    batch_heads: batch · heads.  ViT-B/16, one layer: 12 · 197 · 197 · (64 + 64) = 59,610,624.
    Source: torch/utils/flop_counter.py, sdpa_flop_count, which counts 2 FLOP each.
    """
    return batch_heads * queries * keys * (key_size + value_size)


def batched_product_multiply_adds(left: Sequence[int], right: Sequence[int]) -> int:
    """Multiply-adds of a batch of matrix products, shapes (b, n, k) and (b, k, m): b · n · k · m."""
    return math.prod(left) * right[-1]


def einsum_multiply_adds(equation: str, shapes: Sequence[Sequence[int]]) -> int:
    """Multiply-adds of an einsum of two tensors: one for each combination of all its indices.

    equation: such as "bij,bjk->bik".  shapes: of the two.  With sizes 2, 3, 4, 5: 2 · 3 · 4 · 5 = 120.
    Raises NotImplementedError for another number of tensors, whose count depends on the order of the products, and for
    an ellipsis.
    """
    indices = equation.replace(" ", "").partition("->")[0].split(",")
    if len(shapes) != 2 or len(indices) != 2 or "." in equation:
        raise NotImplementedError(f"einsum {equation!r}")
    sizes = {
        index: size
        for letters, shape in zip(indices, shapes, strict=True)
        for index, size in zip(letters, shape, strict=True)
    }
    return math.prod(sizes.values())


def flop(multiply_adds: int) -> int:
    """FLOP of so many multiply-adds: two each."""
    return FLOP_PER_MULTIPLY_ADD * multiply_adds
