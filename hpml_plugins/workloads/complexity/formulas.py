"""Multiply-adds of the operators that are sums of products, from the shapes of their tensors.

One multiply-add is 1 MAC and 2 FLOP; biases, and products without a sum, are not counted. A complex
multiply-add counts as four real ones (`COMPLEX`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Shape = Sequence[int]
#: (a + bi)(c + di) takes four multiplications, and adding it up takes four additions.
COMPLEX = 4


def contraction_multiply_adds(result: Shape, *contracted: int) -> int:
    """Multiply-adds of a product of matrices or vectors: one for each element of the result and of
    the dimensions that are summed over.

    (3, 4) by (4): result (3), contracted 4: 12.  Of two vectors the result is a number: ().
    """
    return math.prod(result) * math.prod(contracted)


def tensordot_multiply_adds(left: Shape, right: Shape, result: Shape) -> int:
    """Multiply-adds of a tensordot over any dimensions.

    With left = M · K elements, right = K · N and result = M · N: M · K · N. (3, 4, 5) by (4, 5, 6):
    3 · 20 · 6 = 360.
    """
    return math.isqrt(math.prod(left) * math.prod(right) * math.prod(result))


def convolution_multiply_adds(moving: Shape, weight: Shape) -> int:
    """Multiply-adds of a convolution with any padding and groups.

    moving: shape of the result; for a transposed convolution, of the input.  weight: (channels of
    `moving`, channels a group of the other side, kernel …).  Result (16, 8, 8), weight (16, 16, 3,
    3): 1024 · 144 = 147,456. Source: torch/utils/flop_counter.py, conv_flop_count.
    """
    return math.prod(moving) * math.prod(weight[1:])


def attention_multiply_adds(
    batch_heads: int, queries: int, keys: int, key_size: int, value_size: int
) -> int:
    """Multiply-adds of scaled dot-product attention: Q Kᵀ and its product with V; the softmax is
    not counted.

    batch_heads: batch · heads.  ViT-B/16, one layer: 12 · 197 · 197 · (64 + 64) = 59,610,624.
    Source: torch/utils/flop_counter.py, sdpa_flop_count, which counts 2 FLOP each.
    """
    return batch_heads * queries * keys * (key_size + value_size)


def batched_product_multiply_adds(left: Shape, right: Shape) -> int:
    """Multiply-adds of a batch of matrix products, shapes (b, n, k) and (b, k, m): b · n · k ·
    m."""
    return math.prod(left) * right[-1]


def recurrent_multiply_adds(steps: int, weights: Sequence[Shape]) -> int:
    """Multiply-adds of an RNN, LSTM or GRU: each weight once in each step of each sequence.

    steps: length · batch.  weights: of all layers, directions and gates; biases, which have one
    dimension, and element-wise products of gates are left out. A GRU of 16 inputs and 24 hidden
    values over 10 steps: 10 · (72 · 16 + 72 · 24) = 28,800. Source: the equations of torch.nn.LSTM,
    GRU and RNN.
    """
    return steps * sum(math.prod(weight) for weight in weights if len(weight) == 2)


def bilinear_multiply_adds(rows: int, weight: Shape) -> int:
    """Multiply-adds of x₁ᵀ W x₂: one for each weight in each row.

    weight: (out, in₁, in₂).  The product of x₁ with W x₂, a factor of 1 / in₂ more, is not counted.
    2 rows, weight (5, 3, 4): 120.
    """
    return rows * math.prod(weight)


def distance_multiply_adds(left: Shape, right: Shape, power: float) -> int:
    """Multiply-adds of the distances between all pairs of rows: one square per coordinate.

    left, right: (…, rows, coordinates).  power: 2; other norms have no products: 0.  (7, 3) and (5,
    3): 7 · 5 · 3 = 105, independent of how torch computes it.
    """
    return math.prod(left) * right[-2] if power == 2 else 0


def einsum_multiply_adds(equation: str, shapes: Sequence[Shape]) -> int:
    """Multiply-adds of an einsum of one or two tensors.

    equation: such as "bij,bjk->bik".  One for each combination of the indices of the result and of
    those that both tensors have: with sizes 2, 3, 4, 5: 2 · 3 · 4 · 5 = 120. An index of one tensor
    alone that the result lacks is summed over beforehand. 0 where no index is summed over in a
    product. Raises NotImplementedError for more tensors, whose count depends on the order of the
    products.
    """
    if len(shapes) > 2:
        raise NotImplementedError(f"einsum {equation!r}")
    if len(shapes) < 2:
        return 0
    operands, arrow, result = equation.replace(" ", "").partition("->")
    indices = [
        _einsum_sizes(letters, shape)
        for letters, shape in zip(operands.split(","), shapes, strict=True)
    ]
    left, right = indices
    letters = operands.replace(",", "").replace("...", "")
    kept = set(result) if arrow else {each for each in letters if letters.count(each) == 1}
    # an ellipsis is in the result unless the result is given without one
    in_result = {
        each
        for each in (*left, *right)
        if each in kept or (each.isdigit() and (not arrow or "..." in result))
    }
    if not (left.keys() & right.keys()) - in_result:
        return 0
    counted = in_result | (left.keys() & right.keys())
    return math.prod(max(left.get(each, 1), right.get(each, 1)) for each in counted)


def _einsum_sizes(letters: str, shape: Shape) -> dict[str, int]:
    """index → size; the dimensions of an ellipsis are numbered from the last."""
    before, _, after = letters.partition("...")
    hidden = len(shape) - len(before) - len(after)
    numbered = [str(hidden - place) for place in range(hidden)]
    return dict(zip([*before, *numbered, *after], shape, strict=True))
