"""A model in, what one forward pass of one input costs out: whole, by layer and by operator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from hpml_plugins.errors import HpmlError
from hpml_plugins.workloads.complexity import dispatched, models, tracing, zoo
from hpml_plugins.workloads.complexity.models import Spelling, read_spelling
from hpml_plugins.workloads.complexity.sums import Work, by_layer, by_operator, own_parameters, total
from hpml_plugins.workloads.complexity.torchs_count import count_of_a_pass, count_while
from hpml_plugins.workloads.complexity.work import Operation


@dataclass(frozen=True)
class ModelCount:
    """What one forward pass of one input (a batch of one, eval mode) through a model costs.

    operations: in order.  total: all of them.  layers: path of a module → its own operations, its children's left out,
    so that they add up to the total.  layer_types, layer_parameters: path → class, and numbers in its own parameters,
    shared ones once.  operators: fvcore's name → sum.  parameters: numbers in all parameters.  torch_flops: the same
    pass by torch's own flop_counter.  published_multiply_adds: torchvision's, rounded to 1 M, for this size of image;
    None where it has none.  without_fvcore: why torch's dispatcher was asked instead of fvcore, which gives the same
    multiply-adds; empty as a rule.
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
    without_fvcore: str = ""

    @property
    def has_negative(self) -> bool:
        """Whether an operation has a negative count: a fault of its formula."""
        return any(operation.multiply_adds < 0 for operation in self.operations)


def build_model(model: str) -> tuple[Any, Any]:
    """The model in eval mode on the CPU, and one input of zeros, a batch of one.

    model: a torchvision classifier or `module:factory`, and `@3x224x224` or `@int64:128` for the shape of one input.
    The weights of torchvision's are not drawn: they are whatever the memory held. Classifiers with auxiliary heads come
    without them.  Raises HpmlError for an unknown model, a factory that fails and a dtype that torch lacks.
    """
    spelling = read_spelling(model)
    return models.build(spelling), models.example(spelling)


def count_model(model: str) -> ModelCount:
    """Count one forward pass of one input through `model`, spelled as for `build_model`. Nothing is timed.

    Raises HpmlError as `build_model` does, and for a model that cannot be traced.
    """
    spelling = read_spelling(model)
    with one_thread():
        network, given = models.build(spelling), models.example(spelling)
        operations, torchs, without_fvcore = count(spelling, network, given)
    modules = dict(network.named_modules())
    parameters = [
        (name, [(id(p), p.numel()) for p in module.parameters(recurse=False)]) for name, module in modules.items()
    ]
    return ModelCount(
        model=model,
        operations=tuple(operations),
        total=total(operations),
        layers=by_layer(operations, modules),
        layer_types={name: type(module).__name__ for name, module in modules.items()},
        layer_parameters=own_parameters(parameters),
        operators=by_operator(operations),
        parameters=sum(parameter.numel() for parameter in network.parameters()),
        torch_flops=torchs,
        published_multiply_adds=None
        if spelling.foreign
        else zoo.published_multiply_adds(spelling.name, int(given.shape[-1])),
        without_fvcore=without_fvcore,
    )


def operations_of(network: Any, given: Any) -> tuple[list[Operation], str]:
    """The operations of one forward pass, in order, and why not by fvcore, if so.

    The one place where fvcore is asked, whose last release is of 2022 and which stands on what torch calls deprecated.
    """
    try:
        return tracing.trace(network, given), ""
    except (ImportError, AttributeError) as error:
        # also what torch has dropped under it; a model's own fault is met again by the other way
        return dispatched.record(network, given), f"{type(error).__name__}: {error}"


def count(spelling: Spelling, network: Any, given: Any) -> tuple[list[Operation], int, str]:
    """The operations of one pass, torch's own FLOP of the same pass, and why not by fvcore, if so.

    Raises HpmlError if it cannot be traced.
    """
    operations: list[Operation] = []
    reasons: list[str] = []

    def run() -> None:
        found, reason = operations_of(network, given)
        operations.extend(found)
        reasons.append(reason)

    try:
        if spelling.foreign:
            run()
            torchs = count_of_a_pass(network, given)
        else:
            torchs = count_while(run)
        return operations, torchs, reasons[-1]
    except Exception as error:
        shape = "x".join(map(str, given.shape))
        raise HpmlError(
            f"model {spelling.name!r} cannot be traced on {spelling.dtype} {shape}: {type(error).__name__}: {error}"
        ) from error


@contextmanager
def one_thread() -> Iterator[None]:
    """torch on one thread: what is left to compute is small, and threads that wait for one another cost more.

    Besides, OpenMP's threads do not survive the fork into a point's process once somebody has used them before it.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
