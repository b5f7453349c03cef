"""FLOP of one forward pass by torch's own flop_counter, at the level of torch's dispatcher.

Composite operators consist of a few operators there, so none is missed: an operator that multiplies
has a formula, torch's, ours or the model's author's
(`torch.utils.flop_counter.register_flop_formula`), or is reported.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpml_plugins.workloads.complexity.formulas import (
    COMPLEX,
    bilinear_multiply_adds,
    contraction_multiply_adds,
    convolution_multiply_adds,
    distance_multiply_adds,
    recurrent_multiply_adds,
)

#: Operators of torch that are sums of products, by their names in the dispatcher; those of other
#: libraries may be, under any name.
_PRODUCTS = re.compile(
    r"linalg_|fft_|conv(_|olution|\d|$)|mm(_|$)|mv$|dot$|lstm|gru|rnn|attention|trilinear|linear$"
    r"|[cp]dist|euclidean|cholesky|triangular|matrix_exp|orgqr|ormqr|geqrf|householder|(^|_)lu_"
    r"|svd|eig|ldl_"
)
#: Exceptions among those names.
_NOT_PRODUCTS = re.compile(r"linalg_(vector_norm|check_errors|cross)")
#: Operators of other libraries that move data or sample with weights, as `interpolate` does.
_OTHERS_WITHOUT = frozenset(
    f"torchvision::{name}"
    for name in ("nms", "roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool")
)


@dataclass(frozen=True)
class DispatchedCount:
    """flops: FLOP in all.  operators: the dispatcher's name → FLOP.  without_formula: operators
    that may multiply and have no formula, name → calls."""

    flops: int
    operators: Mapping[str, int]
    without_formula: Mapping[str, int]


def count_dispatched(network: Any, inputs: Sequence[Any], device: str) -> DispatchedCount:
    """Count one forward pass. device: "meta" computes nothing."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import FlopCounterMode, flop_registry

    executed: Counter[Any] = Counter()

    class Executed(TorchDispatchMode):  # type: ignore[misc]
        """Records the operators that torch's counter executes."""

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            executed[getattr(func, "_overloadpacket", func)] += 1
            return func(*args, **(kwargs or {}))

    formulas = _formulas(flop_registry)
    with (
        torch.no_grad(),
        Executed(),
        FlopCounterMode(display=False, custom_mapping=formulas) as counter,
    ):
        tensors = {
            name: each.to(device)
            for name, each in (*network.named_parameters(), *network.named_buffers())
        }
        torch.func.functional_call(
            network, tensors, tuple(_moved(each, device) for each in inputs)
        )
    known = {*flop_registry, *formulas}
    counts = counter.get_flop_counts().get("Global", {})
    return DispatchedCount(
        flops=int(counter.get_total_flops()),
        operators={_name(operator): int(flops) for operator, flops in counts.items()},
        without_formula={
            _name(operator): calls
            for operator, calls in executed.items()
            if operator not in known and _may_multiply(_name(operator))
        },
    )


def _moved(value: Any, device: str) -> Any:
    return value.to(device) if hasattr(value, "to") else value


def _name(operator: Any) -> str:
    """`aten::mm`."""
    return str(operator).replace(".", "::", 1)


def _may_multiply(name: str) -> bool:
    library, _, operator = name.partition("::")
    if library in ("aten", "prim", "prims"):
        return bool(_PRODUCTS.search(operator)) and not _NOT_PRODUCTS.search(operator)
    return name not in _OTHERS_WITHOUT


def _formulas(registry: Mapping[Any, Callable[..., int]]) -> dict[Any, Callable[..., int]]:
    """Formulas of operators that torch's registry lacks, and torch's own of matrix products,
    extended to complex numbers. They take tensors, as `_get_raw` declares."""
    import torch

    aten = torch.ops.aten

    def contraction(contracted: Callable[..., Sequence[int]]) -> Callable[..., int]:
        def formula(*args: Any, out_val: Any = None, **kwargs: Any) -> int:
            return 2 * contraction_multiply_adds(out_val.shape, *contracted(*args))

        return formula

    def bilinear(first: Any, weight: Any, second: Any, *args: Any, **kwargs: Any) -> int:
        return 2 * bilinear_multiply_adds(first.numel() // first.shape[-1], weight.shape)

    def distance(left: Any, right: Any, power: float = 2, *args: Any, **kwargs: Any) -> int:
        return 2 * distance_multiply_adds(left.shape, right.shape, power)

    def recurrent(sequence: Any, *weights: Any, **kwargs: Any) -> int:
        steps = sequence.numel() // sequence.shape[-1]
        # oneDNN's layer: weights of the input and of the hidden values come first
        return 2 * recurrent_multiply_adds(steps, [each.shape for each in weights[:2]])

    def deformable(
        sampled: Any, weight: Any, *args: Any, out_val: Any = None, **kw: Any
    ) -> int:
        return 2 * convolution_multiply_adds(out_val.shape, weight.shape)

    def weighted_bag(table: Any, indices: Any, *args: Any, **kwargs: Any) -> int:
        weights = args[4] if len(args) > 4 else kwargs.get("per_sample_weights")
        return 0 if weights is None else 2 * indices.numel() * table.shape[-1]

    found = {
        aten.mv: contraction(lambda left, right, *_: left.shape[-1:]),
        aten.dot: contraction(lambda left, right, *_: left.shape),
        aten.vdot: contraction(lambda left, right, *_: left.shape),
        aten.addmv: contraction(lambda start, left, right, *_: left.shape[-1:]),
        aten.addbmm: contraction(lambda start, left, *_: (left.shape[0], left.shape[2])),
        aten._int_mm: contraction(lambda left, right, *_: left.shape[-1:]),
        aten.conv_tbc: contraction(lambda moving, weight, *_: weight.shape[:2]),
        aten._trilinear: bilinear,
        aten._cdist_forward: distance,
        aten._euclidean_dist: distance,
        aten.mkldnn_rnn_layer: recurrent,
        aten._embedding_bag: weighted_bag,
        aten._embedding_bag_forward_only: weighted_bag,
    }
    for operator in (aten.mm, aten.addmm, aten.bmm, aten.baddbmm):
        found[operator] = registry[operator]
    # on a CPU attention has a name that torch 2.11's registry lacks
    on_cpu = aten._scaled_dot_product_flash_attention_for_cpu
    if on_cpu not in registry:
        found[on_cpu] = registry[aten._scaled_dot_product_flash_attention]
    if hasattr(torch.ops.torchvision, "deform_conv2d"):
        found[torch.ops.torchvision.deform_conv2d] = deformable
    return {operator: _of_complex(formula) for operator, formula in found.items()}


def _of_complex(formula: Callable[..., int]) -> Callable[..., int]:
    import torch

    def wrapped(*args: Any, **kwargs: Any) -> int:
        is_complex = any(
            isinstance(each, torch.Tensor) and each.is_complex() for each in args
        )
        return formula(*args, **kwargs) * (COMPLEX if is_complex else 1)

    wrapped._get_raw = True  # type: ignore[attr-defined]
    return wrapped
