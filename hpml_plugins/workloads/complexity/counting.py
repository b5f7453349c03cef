"""The cost of one forward pass of one input through a model: in total, by layer and by operator.
Nothing is timed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpml_plugins.errors import HpmlError, describe
from hpml_plugins.workloads.complexity.dispatched import DispatchedCount, count_dispatched
from hpml_plugins.workloads.complexity.models import (
    ModelName,
    build_model,
    parse_model_name,
    published_multiply_adds,
)
from hpml_plugins.workloads.complexity.tracing import (
    FLOP_PER_MULTIPLY_ADD,
    Operation,
    trace,
    unfused_attention,
)


@dataclass
class Work:
    """Sums over operations.

    calls: how many operations.  multiply_adds: of convolutions, linear layers, matrix products and
    attention.  apart: fvcore's count of other operations (normalisation, pooling). activations,
    activation_bytes: size of the results in new memory.  bytes: of every tensor, weights included,
    that an operator reads or writes, each once per operator, as if nothing were fused or cached.
    counted: False if one of the operators has no formula. operators: their names.
    """

    calls: int = 0
    multiply_adds: int = 0
    apart: int = 0
    activations: int = 0
    activation_bytes: int = 0
    bytes: int = 0
    counted: bool = True
    operators: set[str] = field(default_factory=set)

    @property
    def flops(self) -> int:
        """FLOP: two per multiply-add."""
        return FLOP_PER_MULTIPLY_ADD * self.multiply_adds

    def add(self, operation: Operation) -> None:
        """Add one operation."""
        self.calls += 1
        self.multiply_adds += operation.multiply_adds
        self.apart += operation.apart
        self.activations += operation.activations
        self.activation_bytes += operation.activation_bytes
        self.bytes += operation.bytes
        self.counted = self.counted and operation.counted
        self.operators.add(operation.name)


@dataclass(frozen=True)
class ModelCount:
    """The cost of one forward pass of one input (a batch of one, eval mode) through a model.

    operations: in order.  total: all of them.  layers: path of a module → its own operations
    without its children's, so that they add up to the total.  layer_types, layer_parameters: path →
    class, and numbers in its own parameters, shared ones once.  operators: fvcore's name → sum.
    parameters: numbers in all parameters.  torch_flops: the same pass by torch's own flop_counter.
    published_multiply_adds: torchvision's, rounded to 1 M, for this size of image; None if it
    publishes none.
    """

    model: str
    operations: tuple[Operation, ...]
    total: Work
    layers: Mapping[str, Work]
    layer_types: Mapping[str, str]
    layer_parameters: Mapping[str, int]
    operators: Mapping[str, Work]
    parameters: int
    torch_flops: int
    published_multiply_adds: float | None

    @property
    def has_negative(self) -> bool:
        """Whether an operation has a negative count, which is a fault of its formula."""
        return any(operation.multiply_adds < 0 for operation in self.operations)

    @property
    def uncounted(self) -> dict[str, int]:
        """Operators whose work is not counted, such as a ReLU: name → calls.

        They are not sums of products: a model with a sum of products without a formula is refused.
        """
        return {
            name: work.calls for name, work in self.operators.items() if not work.counted
        }


def count_model(model: str) -> ModelCount:
    """Count one forward pass of one input through `model`, named as for `build_model`.

    Raises HpmlError as `build_model` does, for a model that cannot be traced, for one with an
    operator that may multiply and has no formula, if torch's own count of the same pass differs,
    and if fvcore does not import. Formulas for custom operators:
    `torch.utils.flop_counter.register_flop_formula`, in FLOP, 2 a multiply-add.
    """
    import torch

    name = parse_model_name(model)
    threads = torch.get_num_threads()
    # OpenMP's threads, once used, do not survive the fork into a point's process
    torch.set_num_threads(1)
    try:
        network, given = build_model(model)
        inputs = given if isinstance(given, tuple) else (given,)
        operations, torchs = count(name, network, inputs)
    finally:
        torch.set_num_threads(threads)
    modules = dict(network.named_modules())
    by_layer = {layer: Work() for layer in modules}
    by_operator: dict[str, Work] = {}
    total = Work()
    for operation in operations:
        for work in (
            total,
            by_layer[operation.layer],
            by_operator.setdefault(operation.name, Work()),
        ):
            work.add(operation)
    require_agreement(model, total, by_operator, torchs)
    layer_parameters = dict.fromkeys(modules, 0)
    # a shared parameter counts for the first module that has it
    for path, parameter in network.named_parameters():
        layer_parameters[path.rpartition(".")[0]] += parameter.numel()
    return ModelCount(
        model=model,
        operations=tuple(operations),
        total=total,
        layers=by_layer,
        layer_types={path: type(module).__name__ for path, module in modules.items()},
        layer_parameters=layer_parameters,
        operators=by_operator,
        parameters=sum(parameter.numel() for parameter in network.parameters()),
        torch_flops=torchs.flops,
        published_multiply_adds=None
        if name.is_factory
        else published_multiply_adds(name.name, int(inputs[0].shape[-1])),
    )


def count(
    name: ModelName, network: Any, inputs: Sequence[Any]
) -> tuple[list[Operation], DispatchedCount]:
    """The operations of one pass, and torch's own count of it. Raises HpmlError if it cannot be
    traced."""
    try:
        operations = trace(network, inputs)
        # only shapes decide the path through torchvision's models, so nothing needs to be computed
        # twice
        with unfused_attention():
            return operations, count_dispatched(
                network, inputs, "cpu" if name.is_factory else "meta"
            )
    except ImportError as error:
        raise HpmlError(
            f"models are counted by fvcore, which does not import: {error} (pip install fvcore)"
        ) from error
    except Exception as error:
        shapes = ", ".join(
            f"{str(each.dtype).removeprefix('torch.')} {'x'.join(map(str, each.shape))}"
            for each in inputs
            if hasattr(each, "shape")
        )
        raise HpmlError(
            f"model {name.name!r} cannot be traced on {shapes}: {describe(error)}"
        ) from error


def require_agreement(
    model: str, total: Work, operators: Mapping[str, Work], torchs: DispatchedCount
) -> None:
    """Raise HpmlError if products were not counted: by an operator without a formula, or by only
    one of the two counts."""
    if torchs.without_formula:
        names = ", ".join(
            f"{name} ×{calls}" for name, calls in torchs.without_formula.items()
        )
        raise HpmlError(
            f"model {model!r} cannot be counted: no formula for {names}, which may multiply;"
            " register its FLOP (or 0) by torch.utils.flop_counter.register_flop_formula"
        )
    if total.flops == torchs.flops:
        return
    ours = {name: work.flops for name, work in operators.items() if work.flops}
    unknown = [name for name, work in operators.items() if not work.counted]
    raise HpmlError(
        f"model {model!r}: counted {_listed(total.flops, ours)}, torch's flop_counter"
        f" {_listed(torchs.flops, torchs.operators)};"
        f" without a formula: {', '.join(unknown) or 'none'}"
    )


def _listed(flops: int, operators: Mapping[str, int]) -> str:
    parts = ", ".join(f"{name} {number:,}" for name, number in operators.items())
    return f"{flops:,} FLOP ({parts})"
