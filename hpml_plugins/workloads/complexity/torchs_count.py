"""torch's own count of the same pass, by its formulas at the level of its dispatcher, to hold fvcore's against."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

#: Operators that give zeros of the right shape instead of being computed, and those that leave their input as it is.
_SAME_SHAPE = ("relu", "sigmoid", "silu", "gelu", "hardswish", "hardsigmoid")
_IN_PLACE = ("relu_", "silu_", "hardswish_", "hardtanh_", "add_")


def count_of_a_pass(model: Any, example: Any) -> int:
    """FLOP of one forward pass, computed in full."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    # a registered formula is wrapped to take tensors for shapes, and a custom one is wrapped again
    formulas = {operator: formula.__wrapped__ for operator in _synonyms() if (formula := torchs_formula(operator))}
    with plain_attention(), FlopCounterMode(display=False, custom_mapping=formulas) as counter, torch.no_grad():
        model(example)
    return int(counter.get_total_flops())


def count_while(run: Callable[[], object]) -> int:
    """FLOP of what `run` does, while convolutions, matrix products and activations are not computed.

    Their results are zeros of the right shape, images and weights are never read: only for models whose way does not
    depend on values, as torchvision's. `run` may trace. Source of the formulas: torch/utils/flop_counter.py.
    """
    counter = _make_counter()
    with _traceable_convolutions(), counter:
        run()
    return int(counter.flop)


def _traceable_convolutions() -> Any:
    """torch.conv2d reaches the tracer as `_convolution` from inside its kernel, which is not run: so call that."""
    import torch
    from torch.overrides import TorchFunctionMode

    class Direct(TorchFunctionMode):  # type: ignore[misc]  # torch is untyped to mypy here
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.conv2d and not kwargs and len(args) == 7 and all(isinstance(a, tuple) for a in args[3:6]):
                return torch._convolution(*args[:6], False, (0, 0), args[6], False, False, True, True)
            return func(*args, **(kwargs or {}))

    return Direct()


def _make_counter() -> Any:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counter(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped to mypy here
        flop = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            result = _uncomputed(func, args)
            if result is NotImplemented:
                result = func(*args, **kwargs)
            if formula := torchs_formula(func._overloadpacket):
                # torch's formulas ask tensors for their shapes, which while tracing are tensors themselves
                shapes = [shape_of(value) if isinstance(value, torch.Tensor) else value for value in args]
                first = result[0] if isinstance(result, tuple) else result
                self.flop += int(formula(*shapes, **kwargs, out_val=shape_of(first)))
            return result

    return Counter()


def torchs_formula(operator: Any) -> Any:
    """torch's formula of an operator, or None."""
    from torch.utils.flop_counter import flop_registry

    return flop_registry.get(operator) or flop_registry.get(_synonyms().get(operator))


def _synonyms() -> dict[Any, Any]:
    """Operators that a CPU calls by other names than torch 2.11 has formulas for: those, and the ones to take."""
    import torch

    aten = torch.ops.aten
    return {aten._scaled_dot_product_flash_attention_for_cpu: aten._scaled_dot_product_flash_attention}


def _uncomputed(func: Any, args: Any) -> Any:
    import torch

    name = func._overloadpacket.__name__
    if name in _IN_PLACE:
        return args[0]
    if name in _SAME_SHAPE:
        return torch.empty_like(args[0])
    if name == "native_batch_norm":
        return torch.empty_like(args[0]), args[0].new_empty(0), args[0].new_empty(0)
    if name in ("mm", "addmm"):
        left, right = map(shape_of, args[-2:])
        return torch.zeros(left[0], right[1], dtype=args[-1].dtype)
    if name == "bmm":
        left, right = map(shape_of, args)
        return torch.zeros(*left[:2], right[2], dtype=args[0].dtype)
    if name == "_convolution" and not args[6]:
        return torch.zeros(_convolved(*args[:6]), dtype=args[0].dtype)
    return NotImplemented


def _convolved(image: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any) -> list[int]:
    """Shape of the result: (in + 2 padding − dilation (kernel − 1) − 1) / stride + 1. Source: torch.nn.Conv2d."""
    (batch, _, *sides), (channels, _, *kernel) = shape_of(image), shape_of(weight)
    axes = zip(sides, kernel, stride, padding, dilation, strict=True)
    return [batch, channels, *((side + 2 * pad - gap * (k - 1) - 1) // step + 1 for side, k, step, pad, gap in axes)]


def shape_of(tensor: Any) -> list[int]:
    """The sizes as plain numbers, also while tracing."""
    return [int(size) for size in tensor.shape]


@contextmanager
def plain_attention() -> Iterator[None]:
    """In eval mode torch fuses a whole nn.MultiheadAttention into one operator, of which no shape is known inside."""
    import torch

    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
