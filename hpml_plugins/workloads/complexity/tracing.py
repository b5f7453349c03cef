"""The one place that knows fvcore, whose last release is of 2022: a model and an input in, plain values out."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from hpml_plugins.workloads.complexity.formulas import (
    attention_multiply_adds,
    batched_product_multiply_adds,
    einsum_multiply_adds,
)
from hpml_plugins.workloads.complexity.operators import MULTIPLY_ADD, WITHOUT_ARITHMETIC, WITHOUT_TRAFFIC, in_place
from hpml_plugins.workloads.complexity.torchs_count import plain_attention
from hpml_plugins.workloads.complexity.work import Operation


def trace(model: Any, example: Any) -> list[Operation]:
    """The operations of one forward pass of `model` on the tensor `example`, in order, by torch's tracer.

    Raises ImportError where fvcore, or what it needs of torch, is not there, and whatever the model raises.
    """
    with warnings.catch_warnings(), plain_attention():
        warnings.simplefilter("ignore")  # torch.jit is deprecated, and fvcore stands on it
        import torch
        from fvcore.nn import jit_analysis

        logging.getLogger("fvcore").setLevel(logging.ERROR)
        aliases = {module: name for name, module in model.named_modules()}
        with torch.no_grad():
            graph = jit_analysis._get_scoped_trace_graph(model, (example,), aliases)
    handles = _handles()
    return [operation for node in graph.nodes() if (operation := _read(node, handles))]


def _handles() -> Mapping[str, Any]:
    """fvcore's own counts, and those that it is too old for or that it only estimates."""
    from fvcore.nn.flop_count import _DEFAULT_SUPPORTED_OPS

    return {
        **_DEFAULT_SUPPORTED_OPS,
        "aten::scaled_dot_product_attention": _attention,
        "aten::einsum": _einsum,
        "aten::baddbmm": lambda inputs, outputs: batched_product_multiply_adds(_sizes(inputs[1]), _sizes(inputs[2])),
    }


def _read(node: Any, handles: Mapping[str, Any]) -> Operation | None:
    kind = node.kind()
    if kind == "prim::PythonOp":  # a torch.autograd.Function of the model's own
        kind = f"{kind}.{node.pyname()}"
    elif kind.startswith("prim::") and kind != "prim::CallFunction":
        return None
    if _of_scalars(node):
        return None
    layer = node.scopeName().rpartition("/")[2]
    counts = _count(node, kind, handles)
    read, written = list(_tensors(node.inputs())), list(_tensors(node.outputs()))
    moves = kind not in WITHOUT_TRAFFIC
    kept = written if moves and not in_place(kind) else []
    (name,) = counts or [kind.removeprefix("aten::")]
    number = round(counts[name]) if counts else 0
    return Operation(
        layer=layer,
        name=name,
        multiply_adds=number if name in MULTIPLY_ADD else 0,
        apart=0 if name in MULTIPLY_ADD else number,
        counted=counts is not None or kind in WITHOUT_ARITHMETIC,
        activations=sum(elements for elements, _ in kept),
        activation_bytes=sum(elements * width for elements, width in kept),
        bytes=sum(elements * width for elements, width in read + written) if moves else 0,
    )


def _count(node: Any, kind: str, handles: Mapping[str, Any]) -> dict[str, float] | None:
    """{fvcore's name: count}, or None without a formula, also where the formula does not know this form of the call."""
    if kind not in handles:
        return None
    try:
        counted = handles[kind](list(node.inputs()), list(node.outputs()))
    except (AssertionError, NotImplementedError, TypeError, IndexError, ValueError):
        return None
    return dict(counted) if isinstance(counted, Mapping) else {kind.removeprefix("aten::"): counted}


def _of_scalars(node: Any) -> bool:
    """Whether all its tensors are single numbers: the model's arithmetic with sizes, which is traced too."""
    tensors = [value for value in (*node.inputs(), *node.outputs()) if value.type().kind() == "TensorType"]
    return bool(tensors) and all(value.isCompleteTensor() and not value.type().sizes() for value in tensors)


def _tensors(values: Any) -> Iterator[tuple[int, int]]:
    """(elements, B an element) of each tensor among traced values; a list's tensors are those it was made of.

    Single numbers are left out: they may as well be the numbers of the Python code, which torch's versions trace
    differently.
    """
    for value in values:
        if value.isCompleteTensor():
            if value.type().sizes():
                yield math.prod(value.type().sizes()), value.type().dtype().itemsize
        elif value.node().kind() == "prim::ListConstruct":
            yield from _tensors(value.node().inputs())


def _sizes(value: Any) -> list[int]:
    return list(value.type().sizes())


def _attention(inputs: list[Any], outputs: list[Any]) -> int:
    query, key, value = (_sizes(values) for values in inputs[:3])
    return attention_multiply_adds(math.prod(query[:-2]), query[-2], key[-2], key[-1], value[-1])


def _einsum(inputs: list[Any], outputs: list[Any]) -> int:
    return einsum_multiply_adds(inputs[0].toIValue(), [_sizes(value) for value in inputs[1].node().inputs()])
