"""The operations of one forward pass, traced by fvcore: from a model and an input to plain values.

The only module that uses fvcore, whose last release was in 2022 and which needs torch.jit.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from hpml_plugins.workloads.complexity.formulas import (
    COMPLEX,
    attention_multiply_adds,
    batched_product_multiply_adds,
    bilinear_multiply_adds,
    contraction_multiply_adds,
    convolution_multiply_adds,
    distance_multiply_adds,
    einsum_multiply_adds,
    recurrent_multiply_adds,
    tensordot_multiply_adds,
)

#: Multiply-adds of a call, by its traced inputs and outputs.
Formula = Callable[[list[Any], list[Any]], int]
#: Names of operators that are not torch's.
NAMES = dict.fromkeys(
    ("aten::_convolution", "aten::_convolution_mode", "aten::convolution"), "conv"
)
#: One multiply-add is two floating-point operations, a multiplication and an addition.
FLOP_PER_MULTIPLY_ADD = 2


def _aten(*lists: str) -> frozenset[str]:
    return frozenset(f"aten::{name}" for names in lists for name in names.split())


#: Operators that read and write no memory of tensors: views, sizes, and operators that are the
#: identity in eval mode. `reshape`, `contiguous`, `flatten` and `to` copy where the memory layout
#: requires it; they count as views.
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
    name, such as "conv". multiply_adds: 0 for other operations.  apart: fvcore's count of those
    (normalisation, pooling). counted: whether there is a formula, or the operator does no
    arithmetic.  activations, activation_bytes: size of the results in new memory.  bytes: of the
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


def trace(model: Any, inputs: Sequence[Any]) -> list[Operation]:
    """The operations of one forward pass of `model` on `inputs`, in order, by torch's tracer.

    Raises ImportError if fvcore, or a part of torch that it needs, is missing, and any error of the
    model.
    """
    with warnings.catch_warnings(), unfused_attention():
        warnings.simplefilter("ignore")  # torch.jit is deprecated, and fvcore needs it
        import logging  # not when plugins are listed

        import torch
        from fvcore.nn import jit_analysis
        from fvcore.nn.flop_count import _DEFAULT_SUPPORTED_OPS

        logging.getLogger("fvcore").setLevel(logging.ERROR)
        aliases = {module: name for name, module in model.named_modules()}
        with torch.no_grad(), _keeping_results(model):
            graph = jit_analysis._get_scoped_trace_graph(model, tuple(inputs), aliases)
    products = _products()
    others = {
        name: handle
        for name, handle in _DEFAULT_SUPPORTED_OPS.items()
        if name not in products
    }
    return [
        operation for node in graph.nodes() if (operation := _read(node, products, others))
    ]


@contextmanager
def _keeping_results(model: Any) -> Iterator[None]:
    """Make the model return every tensor that it computes: otherwise the tracer removes operations
    that no result depends on, such as an unused head, although they are executed."""
    from torch import Tensor
    from torch.overrides import TorchFunctionMode
    from torch.utils._pytree import tree_leaves

    class Kept(TorchFunctionMode):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.results: list[Any] = []

        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            self.results += [
                each for each in tree_leaves(result) if isinstance(each, Tensor)
            ]
            return result

    forward = model.forward

    def keep(*args: Any) -> list[Any]:
        kept = Kept()
        with kept:
            forward(*args)
        return kept.results

    model.forward = keep
    try:
        yield
    finally:
        del model.forward


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


def _products() -> Mapping[str, Formula]:
    """Operator → multiply-adds of a call, for all operators that are sums of products."""
    found: dict[str, Formula] = {
        "aten::dot": _product_of(0),
        "aten::inner": lambda inputs, outputs: tensordot_multiply_adds(
            _sizes(inputs[0]), _sizes(inputs[1]), _sizes(outputs[0])
        ),
        "aten::tensordot": lambda inputs, outputs: tensordot_multiply_adds(
            _sizes(inputs[0]), _sizes(inputs[1]), _sizes(outputs[0])
        ),
        "aten::addbmm": lambda inputs, outputs: batched_product_multiply_adds(
            _sizes(inputs[1]), _sizes(inputs[2])
        ),
        "aten::conv_tbc": lambda inputs, outputs: contraction_multiply_adds(
            _sizes(outputs[0]), *_sizes(inputs[1])[:2]
        ),
        "aten::bilinear": lambda inputs, outputs: bilinear_multiply_adds(
            math.prod(_sizes(inputs[0])[:-1]), _sizes(inputs[2])
        ),
        "aten::cdist": _distances,
        "aten::einsum": lambda inputs, outputs: einsum_multiply_adds(
            inputs[0].toIValue(), [_sizes(value) for value in inputs[1].node().inputs()]
        ),
        "aten::embedding_bag": _weighted_bag,
        "aten::scaled_dot_product_attention": _attention,
        "torchvision::deform_conv2d": _convolution,
    }
    for left, names in (
        (0, "matmul mm bmm mv vdot linear _int_mm"),
        (1, "addmm addmv baddbmm"),
    ):
        found |= {f"aten::{name}": _product_of(left) for name in names.split()}
    for name in ("_convolution", "_convolution_mode", "convolution"):
        found[f"aten::{name}"] = _convolution
    for name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
        found[f"aten::{name}"] = _recurrent
        found[f"aten::{name}_cell"] = _recurrent
    return found


def _product_of(left: int) -> Formula:
    """left: place of the left factor among the inputs, whose last dimension is summed over."""

    def multiply_adds(inputs: list[Any], outputs: list[Any]) -> int:
        return contraction_multiply_adds(_sizes(outputs[0]), _sizes(inputs[left])[-1])

    return multiply_adds


def _convolution(inputs: list[Any], outputs: list[Any]) -> int:
    transposed = len(inputs) > 8 and inputs[6].toIValue() is True
    moving = inputs[0] if transposed else outputs[0]
    return convolution_multiply_adds(_sizes(moving), _sizes(inputs[1]))


def _attention(inputs: list[Any], outputs: list[Any]) -> int:
    query, key, value = (_sizes(values) for values in inputs[:3])
    return attention_multiply_adds(
        math.prod(query[:-2]), query[-2], key[-2], key[-1], value[-1]
    )


def _recurrent(inputs: list[Any], outputs: list[Any]) -> int:
    steps = math.prod(_sizes(inputs[0])[:-1])
    # a cell's weights are inputs; those of layers are the last list, after that of hidden values
    lists = [value for value in inputs if value.node().kind() == "prim::ListConstruct"]
    is_cell = outputs[0].node().kind().endswith("_cell")
    weights = inputs[2:4] if is_cell else list(lists[-1].node().inputs())
    return recurrent_multiply_adds(steps, [_sizes(weight) for weight in weights])


def _distances(inputs: list[Any], outputs: list[Any]) -> int:
    left = _sizes(inputs[0])
    right = _sizes(inputs[1])
    batch = _sizes(outputs[0])[:-2]
    return distance_multiply_adds([*batch, *left[-2:]], right, inputs[2].toIValue())


def _weighted_bag(inputs: list[Any], outputs: list[Any]) -> int:
    table = inputs[0]
    indices = inputs[1]
    weights = inputs[6]
    is_weighted = weights.isCompleteTensor()
    return math.prod(_sizes(indices)) * _sizes(table)[-1] if is_weighted else 0


def _of_author(kind: str) -> Formula | None:
    """Multiply-adds by the formula that the model's author registered with torch; None if there is
    none."""
    import torch
    from torch.utils.flop_counter import flop_registry

    library, _, name = kind.partition("::")
    operator = getattr(getattr(torch.ops, library), name, None)
    if library == "prim" or operator not in flop_registry:
        return None
    formula = flop_registry[operator]

    def multiply_adds(inputs: list[Any], outputs: list[Any]) -> int:
        results = [_stand_in(value) for value in outputs]
        result = results[0] if len(results) == 1 else tuple(results)
        flop = formula(*(_stand_in(value) for value in inputs), out_val=result)
        return int(flop) // FLOP_PER_MULTIPLY_ADD

    return multiply_adds


def _stand_in(value: Any) -> Any:
    """The argument of a formula for a traced value: a tensor without memory, or the constant."""
    import torch

    if value.isCompleteTensor():
        kind = value.type()
        return torch.empty(kind.sizes(), dtype=kind.dtype(), device="meta")
    if value.node().kind() == "prim::ListConstruct":
        return [_stand_in(each) for each in value.node().inputs()]
    return value.toIValue()


def _read(
    node: Any, products: Mapping[str, Formula], others: Mapping[str, Any]
) -> Operation | None:
    kind = node.kind()
    if kind == "prim::PythonOp":  # a torch.autograd.Function of the model's own
        kind = f"{kind}.{node.pyname()}"
    elif kind.startswith("prim::") and kind != "prim::CallFunction":
        return None
    if _only_scalars(node):
        return None
    count = _count(node, kind, products, others)
    read = list(_tensors(node.inputs()))
    written = list(_tensors(node.outputs()))
    moves = kind not in WITHOUT_TRAFFIC
    in_place = kind.endswith("_") and not kind.endswith(
        "__"
    )  # aten::relu_ needs no new memory
    new = written if moves and not in_place else []
    return Operation(
        layer=node.scopeName().rpartition("/")[2],
        name=NAMES.get(kind, kind.removeprefix("aten::")),
        multiply_adds=count.multiply_adds,
        apart=count.apart,
        counted=count.known or kind in WITHOUT_ARITHMETIC,
        activations=sum(elements for elements, _ in new),
        activation_bytes=sum(elements * width for elements, width in new),
        bytes=sum(elements * width for elements, width in read + written) if moves else 0,
    )


class _Count(NamedTuple):
    multiply_adds: int = 0
    apart: int = 0
    known: bool = True


def _count(
    node: Any, kind: str, products: Mapping[str, Formula], others: Mapping[str, Any]
) -> _Count:
    """Unknown: no formula, or the formula does not handle this form of the call."""
    inputs = list(node.inputs())
    outputs = list(node.outputs())
    try:
        if formula := products.get(kind):
            factor = COMPLEX if _is_complex(outputs[0]) else 1
            return _Count(multiply_adds=factor * formula(inputs, outputs))
        if kind in others:
            counted = others[kind](inputs, outputs)
            numbers = counted.values() if isinstance(counted, Mapping) else [counted]
            return _Count(apart=round(sum(numbers)))
        if formula := _of_author(kind):
            return _Count(multiply_adds=formula(inputs, outputs))
    except (AssertionError, NotImplementedError, TypeError, IndexError, ValueError):
        pass
    return _Count(known=False)


def _is_complex(value: Any) -> bool:
    return bool(value.isCompleteTensor() and value.type().dtype().is_complex)


def _only_scalars(node: Any) -> bool:
    """Whether all its tensors are single numbers: the model's arithmetic on sizes is traced too."""
    tensors = [
        value
        for value in (*node.inputs(), *node.outputs())
        if value.type().kind() == "TensorType"
    ]
    return bool(tensors) and all(
        value.isCompleteTensor() and not value.type().sizes() for value in tensors
    )


def _tensors(values: Any) -> Iterator[tuple[int, int]]:
    """(elements, B per element) of each traced tensor; for a list, of its items.

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
