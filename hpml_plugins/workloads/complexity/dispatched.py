"""The operations of a pass without fvcore and without torch.jit: as torch's dispatcher sees them.

Stands in for `tracing` where fvcore does not import. The multiply-adds are the same, by torch's own formulas. Operators
are seen after torch has taken composed ones apart, so that activations and bytes may differ a little.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from hpml_plugins.workloads.complexity.formulas import FLOP_PER_MULTIPLY_ADD
from hpml_plugins.workloads.complexity.operators import MULTIPLY_ADD, WITHOUT_ARITHMETIC, WITHOUT_TRAFFIC, in_place
from hpml_plugins.workloads.complexity.torchs_count import plain_attention, shape_of, torchs_formula
from hpml_plugins.workloads.complexity.work import Operation

#: The dispatcher's name → fvcore's, where they differ.
_NAMES = {
    "_convolution": "conv",
    "convolution": "conv",
    "addmm": "linear",
    "native_batch_norm": "batch_norm",
    "_native_batch_norm_legit_no_training": "batch_norm",
    "native_layer_norm": "layer_norm",
    "native_group_norm": "group_norm",
    "_adaptive_avg_pool2d": "adaptive_avg_pool2d",
    "_softmax": "softmax",
    "_unsafe_view": "view",
    "_to_copy": "to",
    "max_pool2d_with_indices": "max_pool2d",
    "_scaled_dot_product_flash_attention_for_cpu": "scaled_dot_product_attention",
    "_scaled_dot_product_flash_attention": "scaled_dot_product_attention",
    "_scaled_dot_product_efficient_attention": "scaled_dot_product_attention",
}
#: Count of what is not made of multiply-adds, a number of the input: fvcore's estimates.
_APART = {"batch_norm": 2, "adaptive_avg_pool2d": 1, "layer_norm": 5, "group_norm": 5}


def record(model: Any, example: Any) -> list[Operation]:
    """The operations of one forward pass of `model` on the tensor `example`, in order. Raises what the model raises."""
    import torch

    names = {module: name for name, module in model.named_modules()}
    layers: list[str] = [""]
    recorder = _make_recorder(layers)
    with ExitStack() as stack:
        for module, name in names.items():
            enter = module.register_forward_pre_hook(lambda *_, name=name: layers.append(name))
            leave = module.register_forward_hook(lambda *_: layers.pop() and None, always_call=True)
            stack.callback(enter.remove)
            stack.callback(leave.remove)
        stack.enter_context(plain_attention())
        stack.enter_context(torch.no_grad())
        stack.enter_context(recorder)
        model(example)
    return list(recorder.operations)


def _make_recorder(layers: list[str]) -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Recorder(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped to mypy here
        def __init__(self) -> None:
            super().__init__()
            self.operations: list[Operation] = []

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            if operation := _read(layers[-1], func, args, kwargs or {}, result):
                self.operations.append(operation)
            return result

    return Recorder()


def _read(layer: str, func: Any, args: Any, kwargs: Any, result: Any) -> Operation | None:
    packet = func._overloadpacket
    name = _name(packet.__name__, args, kwargs)
    kind = f"aten::{name}"
    read = list(_tensors((args, kwargs)))
    written = list(_tensors(result))[: None if isinstance(result, list) else 1]  # not statistics saved for a gradient
    if not read + written:
        return None  # arithmetic with sizes
    formula = torchs_formula(packet)
    multiply_adds = apart = 0
    if formula and name in MULTIPLY_ADD:
        shapes = [shape_of(value) if _is_tensor(value) else value for value in args]
        first = result[0] if isinstance(result, tuple) else result
        multiply_adds = int(formula(*shapes, **kwargs, out_val=shape_of(first))) // FLOP_PER_MULTIPLY_ADD
    elif name in _APART:
        apart = _APART[name] * read[0][0]
    moves = kind not in WITHOUT_TRAFFIC and not _is_view(func)
    kept = written if moves and not in_place(kind) else []
    return Operation(
        layer=layer,
        name=name,
        multiply_adds=multiply_adds,
        apart=apart,
        counted=bool(formula) or name in _APART or kind in WITHOUT_ARITHMETIC or not moves,
        activations=sum(elements for elements, _ in kept),
        activation_bytes=sum(elements * width for elements, width in kept),
        bytes=sum(elements * width for elements, width in read + written) if moves else 0,
    )


def _name(name: str, args: Any, kwargs: Any) -> str:
    if name == "clone" and "memory_format" in kwargs:
        return "contiguous"  # or a reshape that has to copy; both are taken for views, as `operators` says
    if name == "mean" and list(args[1:2]) == [[-1, -2]]:
        return "adaptive_avg_pool2d"  # to one pixel
    return _NAMES.get(name, name)


def _is_view(func: Any) -> bool:
    return any(value.alias_info and not value.alias_info.is_write for value in func._schema.returns)


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _tensors(values: Any) -> Iterator[tuple[int, int]]:
    """(elements, B an element) of each tensor among these; single numbers are left out, as in `tracing`."""
    if _is_tensor(values):
        if values.shape:
            yield math.prod(values.shape), values.dtype.itemsize
    elif isinstance(values, dict):
        yield from _tensors(tuple(values.values()))
    elif isinstance(values, list | tuple):
        for value in values:
            yield from _tensors(value)
