"""Which operators are multiply-adds, and which do no arithmetic. All others are named where they were not counted."""

from __future__ import annotations

#: fvcore's names of the operators that are sums of products; it counts one multiply-add of them as 1.
MULTIPLY_ADD = frozenset({"conv", "linear", "addmm", "mm", "bmm", "matmul", "einsum", "scaled_dot_product_attention"})

_VIEWS_AND_COPIES = """
    cat chunk clone contiguous copy_ detach expand expand_as flatten gather index index_put_ narrow pad constant_pad_nd
    permute reshape roll select slice split split_with_sizes squeeze stack t to transpose type_as unbind unflatten
    unsqueeze unsqueeze_ view
"""
_MADE_OR_FILLED = """
    arange empty fill_ full full_like masked_fill new_empty new_full new_zeros ones zero_ zeros zeros_like
"""
_MASKS_AND_SHAPES = "Int ScalarImplicit __and__ bitwise_not eq ge gt ne nonzero numel size floor_divide remainder"
_IDENTITY_IN_EVAL_MODE = "dropout dropout_ feature_dropout"

#: Operators that move, make or mask data, or compute a shape: they do no arithmetic worth naming. All of these, and
#: only these, are passed over in silence.
WITHOUT_ARITHMETIC = frozenset(
    f"aten::{name}"
    for names in (_VIEWS_AND_COPIES, _MADE_OR_FILLED, _MASKS_AND_SHAPES, _IDENTITY_IN_EVAL_MODE)
    for name in names.split()
)
