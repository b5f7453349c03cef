"""The operations of one forward pass, as fvcore sees them: a model and an input in, plain values
out.

The one module that uses fvcore, whose last release is of 2022 and which needs torch.jit.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

#: fvcore's names of the operators that are sums of products; it counts one multiply-add of them as
#: 1.
MULTIPLY_ADD = frozenset(
    {
        "conv",
        "linear",
        "addmm",
        "mm",
        "bmm",
        "baddbmm",
        "matmul",
        "einsum",
        "scaled_dot_product_attention",
    }
)


def _aten(*lists: str) -> frozenset[str]:
    return frozenset(f"aten::{name}" for names in lists for name in names.split())


#: Operators that read and write no memory of tensors: views, sizes, and what is the identity in
#: eval mode. `reshape`, `contiguous`, `flatten` and `to` copy where the memory layout requires it;
#: they are taken for views.
WITHOUT_TRAFFIC = _aten(
    """alias chunk contiguous detach expand expand_as flatten narrow permute reshape select slice split split_with_sizes
    squeeze t tensor_split to transpose type_as unbind unflatten unsqueeze unsqueeze_ view view_as movedim swapaxes""",  # noqa: E501
    "Int Bool Float ScalarImplicit dim is_floating_point numel size empty new_empty floor_divide"
    " remainder",
    "dropout dropout_ feature_dropout alpha_dropout feature_alpha_dropout",
)
#: Operators that move, create or mask data, or compute a shape. Every other operator without a
#: formula is reported.
WITHOUT_ARITHMETIC = WITHOUT_TRAFFIC | _aten(
    "cat clone copy_ gather index index_put_ index_select pad constant_pad_nd roll stack repeat"
    " embedding",
    "arange fill_ full full_like masked_fill masked_fill_ new_full new_ones new_zeros ones zero_"
    " zeros zeros_like",
    "__and__ bitwise_not eq ge gt le lt ne nonzero where",
)


@dataclass(frozen=True)
class Operation:
    """One call of an operator in one forward pass.

    layer: path of the module whose `forward` called it, "" for the model's own.  name: fvcore's
    name, such as "conv". multiply_adds: 0 where it is not made of them.  apart: fvcore's count of
    what is not (normalisation, pooling). counted: whether there is a formula, or the operator does
    no arithmetic.  activations, activation_bytes: size of the results in new memory.  bytes: of the
    tensors it reads and writes.
    """

    layer: str
    name: str
    multiply_adds: int = 0
    apart: int = 0
    counted: bool = True
    activations: int = 0
    activation_bytes: int = 0
    bytes: int = 0


def trace(model: Any, example: Any) -> list[Operation]:
    """The operations of one forward pass of `model` on the tensor `example`, in order, by torch's
    tracer.

    Raises ImportError where fvcore, or what it needs of torch, is missing, and whatever the model
    raises.
    """
    with warnings.catch_warnings(), unfused_attention():
        warnings.simplefilter("ignore")  # torch.jit is deprecated, and fvcore needs it
        import logging  # not when plugins are listed

        import torch
        from fvcore.nn import jit_analysis

        logging.getLogger("fvcore").setLevel(logging.ERROR)
        aliases = {module: name for name, module in model.named_modules()}
        with torch.no_grad():
            graph = jit_analysis._get_scoped_trace_graph(model, (example,), aliases)
    handles = _handles()
    return [operation for node in graph.nodes() if (operation := _read(node, handles))]


@contextmanager
def unfused_attention() -> Iterator[None]:
    """In eval mode torch fuses a whole nn.MultiheadAttention into one operator whose inner shapes
    are unknown."""
    import torch

    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def attention_multiply_adds(
    batch_heads: int, queries: int, keys: int, key_size: int, value_size: int
) -> int:
    """Multiply-adds of scaled dot-product attention: Q Kᵀ and its product with V; the softmax is
    not counted.

    batch_heads: batch · heads.  ViT-B/16, one layer: 12 · 197 · 197 · (64 + 64) = 59,610,624.
    Source: torch/utils/flop_counter.py, sdpa_flop_count, which counts 2 FLOP each.
    """
    return batch_heads * queries * keys * (key_size + value_size)


def batched_product_multiply_adds(left: Sequence[int], right: Sequence[int]) -> int:
    """Multiply-adds of a batch of matrix products, shapes (b, n, k) and (b, k, m): b · n · k ·
    m."""
    return math.prod(left) * right[-1]


def einsum_multiply_adds(equation: str, shapes: Sequence[Sequence[int]]) -> int:
    """Multiply-adds of an einsum of two tensors: one for each combination of all its indices.

    equation: such as "bij,bjk->bik".  shapes: of the two.  With sizes 2, 3, 4, 5: 2 · 3 · 4 · 5 =
    120. Raises NotImplementedError for another number of tensors, whose count depends on the order
    of the products, and for an ellipsis.
    """
    indices = equation.replace(" ", "").partition("->")[0].split(",")
    if len(shapes) != 2 or len(indices) != 2 or "." in equation:
        raise NotImplementedError(f"einsum {equation!r}")
    pairs = (
        zip(letters, shape, strict=True) for letters, shape in zip(indices, shapes, strict=True)
    )
    return math.prod({index: size for sizes in pairs for index, size in sizes}.values())


def _handles() -> Mapping[str, Any]:
    """fvcore's own counts, and those that it lacks or only estimates."""
    from fvcore.nn.flop_count import _DEFAULT_SUPPORTED_OPS

    def attention(inputs: list[Any], outputs: list[Any]) -> int:
        query, key, value = (_sizes(values) for values in inputs[:3])
        return attention_multiply_adds(
            math.prod(query[:-2]), query[-2], key[-2], key[-1], value[-1]
        )

    def einsum(inputs: list[Any], outputs: list[Any]) -> int:
        return einsum_multiply_adds(
            inputs[0].toIValue(), [_sizes(value) for value in inputs[1].node().inputs()]
        )

    return {
        **_DEFAULT_SUPPORTED_OPS,
        "aten::scaled_dot_product_attention": attention,
        "aten::einsum": einsum,
        "aten::baddbmm": lambda inputs, outputs: batched_product_multiply_adds(
            _sizes(inputs[1]), _sizes(inputs[2])
        ),
    }


def _read(node: Any, handles: Mapping[str, Any]) -> Operation | None:
    kind = node.kind()
    if kind == "prim::PythonOp":  # a torch.autograd.Function of the model's own
        kind = f"{kind}.{node.pyname()}"
    elif kind.startswith("prim::") and kind != "prim::CallFunction":
        return None
    if _only_scalars(node):
        return None
    counts = _count(node, kind, handles)
    (name,) = counts or [kind.removeprefix("aten::")]
    number = round(counts[name]) if counts else 0
    read, written = list(_tensors(node.inputs())), list(_tensors(node.outputs()))
    moves = kind not in WITHOUT_TRAFFIC
    in_place = kind.endswith("_") and not kind.endswith("__")  # aten::relu_ needs no new memory
    new = written if moves and not in_place else []
    return Operation(
        layer=node.scopeName().rpartition("/")[2],
        name=name,
        multiply_adds=number if name in MULTIPLY_ADD else 0,
        apart=0 if name in MULTIPLY_ADD else number,
        counted=counts is not None or kind in WITHOUT_ARITHMETIC,
        activations=sum(elements for elements, _ in new),
        activation_bytes=sum(elements * width for elements, width in new),
        bytes=sum(elements * width for elements, width in read + written) if moves else 0,
    )


def _count(node: Any, kind: str, handles: Mapping[str, Any]) -> dict[str, float] | None:
    """{fvcore's name: count}; None without a formula, or where the formula does not handle this
    form of the call."""
    if kind not in handles:
        return None
    try:
        counted = handles[kind](list(node.inputs()), list(node.outputs()))
    except (AssertionError, NotImplementedError, TypeError, IndexError, ValueError):
        return None
    return dict(counted) if isinstance(counted, Mapping) else {kind.removeprefix("aten::"): counted}


def _only_scalars(node: Any) -> bool:
    """Whether all its tensors are single numbers: the model's arithmetic with sizes, which is
    traced too."""
    tensors = [
        value for value in (*node.inputs(), *node.outputs()) if value.type().kind() == "TensorType"
    ]
    return bool(tensors) and all(
        value.isCompleteTensor() and not value.type().sizes() for value in tensors
    )


def _tensors(values: Any) -> Iterator[tuple[int, int]]:
    """(elements, B per element) of each traced tensor, of a list those that it was made of.

    Single numbers are left out: they may be numbers of the Python code, which versions of torch
    trace differently.
    """
    for value in values:
        if value.isCompleteTensor():
            if value.type().sizes():
                yield math.prod(value.type().sizes()), value.type().dtype().itemsize
        elif value.node().kind() == "prim::ListConstruct":
            yield from _tensors(value.node().inputs())


def _sizes(value: Any) -> list[int]:
    return list(value.type().sizes())
