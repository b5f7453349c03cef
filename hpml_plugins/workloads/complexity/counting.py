"""The cost of one forward pass of one input through a model: in total, by layer and by operator.
Nothing is timed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hpml_plugins.errors import HpmlError, describe
from hpml_plugins.workloads.complexity.models import (
    ModelName,
    build_model,
    parse_model_name,
    published_multiply_adds,
)
from hpml_plugins.workloads.complexity.tracing import Operation, trace, unfused_attention

#: One multiply-add is two floating-point operations, a multiplication and an addition.
FLOP_PER_MULTIPLY_ADD = 2


@dataclass
class Work:
    """Operations added up.

    calls: how many operations.  multiply_adds: of convolutions, linear layers, matrix products and
    attention.  apart: fvcore's count of what is not made of them (normalisation, pooling).
    activations, activation_bytes: size of the results in new memory.  bytes: of every tensor,
    weights included, that an operator reads or writes, each once per operator, as if nothing were
    fused or cached.  counted: False where an operator without a formula is among them. operators:
    their names.
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
    """What one forward pass of one input (a batch of one, eval mode) through a model costs.

    operations: in order.  total: all of them.  layers: path of a module → its own operations
    without its children's, so that they add up to the total.  layer_types, layer_parameters: path →
    class, and numbers in its own parameters, shared ones once.  operators: fvcore's name → sum.
    parameters: numbers in all parameters.  torch_flops: the same pass by torch's own flop_counter.
    published_multiply_adds: torchvision's, rounded to 1 M, for this size of image; None where it
    has none.
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
        """Whether an operation has a negative count: a fault of its formula."""
        return any(operation.multiply_adds < 0 for operation in self.operations)


def count_model(model: str) -> ModelCount:
    """Count one forward pass of one input through `model`, spelled as for `build_model`.

    Raises HpmlError as `build_model` does, for a model that cannot be traced, and where fvcore does
    not import.
    """
    import torch

    name = parse_model_name(model)
    threads = torch.get_num_threads()
    # OpenMP's threads, once used, do not survive the fork into a point's process
    torch.set_num_threads(1)
    try:
        network, example = build_model(model)
        operations, torchs = count(name, network, example)
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
    layer_parameters = dict.fromkeys(modules, 0)
    # a shared one for the first module that has it
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
        torch_flops=torchs,
        published_multiply_adds=None
        if name.is_factory
        else published_multiply_adds(name.name, int(example.shape[-1])),
    )


def count(name: ModelName, network: Any, example: Any) -> tuple[list[Operation], int]:
    """The operations of one pass, and torch's own FLOP count of it. Raises HpmlError if it cannot
    be traced."""
    try:
        # shapes alone decide the path through torchvision's models: nothing need be computed twice
        return trace(network, example), torchs_flops(
            network, example, "cpu" if name.is_factory else "meta"
        )
    except ImportError as error:
        raise HpmlError(
            f"models are counted by fvcore, which does not import: {error} (pip install fvcore)"
        ) from error
    except Exception as error:
        shape = "x".join(map(str, example.shape))
        raise HpmlError(
            f"model {name.name!r} cannot be traced on {name.dtype} {shape}: {describe(error)}"
        ) from error


def torchs_flops(network: Any, example: Any, device: str) -> int:
    """FLOP of one forward pass by torch's FlopCounterMode. device: "meta" computes nothing."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode, flop_registry

    # on a CPU attention has a name that torch 2.11's registry lacks; FlopCounterMode wraps custom
    # formulas itself
    aten = torch.ops.aten
    on_cpu, usual = (
        aten._scaled_dot_product_flash_attention_for_cpu,
        aten._scaled_dot_product_flash_attention,
    )
    missing = {} if on_cpu in flop_registry else {on_cpu: flop_registry[usual].__wrapped__}
    with (
        unfused_attention(),
        torch.no_grad(),
        FlopCounterMode(display=False, custom_mapping=missing) as counter,
    ):
        tensors = {
            name: each.to(device)
            for name, each in (*network.named_parameters(), *network.named_buffers())
        }
        torch.func.functional_call(network, tensors, (example.to(device),))
    return int(counter.get_total_flops())
