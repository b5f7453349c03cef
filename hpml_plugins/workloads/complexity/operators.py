"""Operators by what they do: multiply-adds, no arithmetic, no data moved. All others are named where not counted."""

from __future__ import annotations

#: fvcore's names of the operators that are sums of products; it counts one multiply-add of them as 1.
MULTIPLY_ADD = frozenset(
    {"conv", "linear", "addmm", "mm", "bmm", "baddbmm", "matmul", "einsum", "scaled_dot_product_attention"}
)

#: They give a new view of the same memory, or nothing but sizes: no byte moves. `reshape`, `contiguous`, `flatten` and
#: `to` copy where the memory does not lie right; they are taken for views.
_VIEWS = """
    alias chunk contiguous detach expand expand_as flatten narrow permute reshape select slice split split_with_sizes
    squeeze t tensor_split to transpose type_as unbind unflatten unsqueeze unsqueeze_ view view_as movedim swapaxes
"""
_SIZES = "Int Bool Float ScalarImplicit dim is_floating_point numel size empty new_empty floor_divide remainder"
_IDENTITY_IN_EVAL_MODE = "dropout dropout_ feature_dropout alpha_dropout feature_alpha_dropout"
_COPIES = "cat clone copy_ gather index index_put_ index_select pad constant_pad_nd roll stack repeat embedding"
_MADE_OR_FILLED = (
    "arange fill_ full full_like masked_fill masked_fill_ new_full new_ones new_zeros ones zero_ zeros zeros_like"
)
_MASKS = "__and__ bitwise_not eq ge gt le lt ne nonzero where"


def _aten(*lists: str) -> frozenset[str]:
    return frozenset(f"aten::{name}" for names in lists for name in names.split())


#: Operators that read and write no memory of tensors.
WITHOUT_TRAFFIC = _aten(_VIEWS, _SIZES, _IDENTITY_IN_EVAL_MODE)

#: Operators that move, make or mask data, or compute a shape: they do no arithmetic worth naming. All of these, and
#: only these, are passed over in silence.
WITHOUT_ARITHMETIC = WITHOUT_TRAFFIC | _aten(_COPIES, _MADE_OR_FILLED, _MASKS)


def in_place(kind: str) -> bool:
    """Whether the operator writes into its input (`aten::relu_`), so that no new memory holds its result."""
    return kind.endswith("_") and not kind.endswith("__")
