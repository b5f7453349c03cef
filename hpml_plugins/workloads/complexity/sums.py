"""Operations added up: by layer, by operator, and over the whole model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hpml_plugins.workloads.complexity.formulas import flop
from hpml_plugins.workloads.complexity.work import Operation


@dataclass
class Work:
    """Operations added up.

    calls: how many operations.  multiply_adds: of convolutions, linear layers, matrix products and attention.  apart:
    fvcore's count of what is not made of them (normalisation, pooling).  activations, activation_bytes: what new memory
    holds of the results.  bytes: of every tensor, weights included, that an operator reads or writes, each once an
    operator, as if nothing were fused or cached.  counted: False where an operator without a formula is among them.
    operators: their names.
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
        """FLOP: two a multiply-add."""
        return flop(self.multiply_adds)

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


def total(operations: Iterable[Operation]) -> Work:
    """All of them."""
    whole = Work()
    for operation in operations:
        whole.add(operation)
    return whole


def by_operator(operations: Iterable[Operation]) -> dict[str, Work]:
    """Operator → its sum, in order of first use."""
    sums: dict[str, Work] = {}
    for operation in operations:
        sums.setdefault(operation.name, Work()).add(operation)
    return sums


def by_layer(operations: Iterable[Operation], layers: Iterable[str]) -> dict[str, Work]:
    """Layer → the sum of its own operations, its children's left out, in the order of `layers`."""
    sums = {layer: Work() for layer in layers}
    for operation in operations:
        sums[operation.layer].add(operation)
    return sums


def own_parameters(modules: Sequence[tuple[str, Sequence[tuple[int, int]]]]) -> dict[str, int]:
    """Module → numbers in its own parameters; one that several share counts where it comes first.

    modules: (name, [(identity, numbers) of each parameter]).
    """
    seen: set[int] = set()
    own = {}
    for name, parameters in modules:
        own[name] = sum(numbers for identity, numbers in parameters if identity not in seen)
        seen |= {identity for identity, _ in parameters}
    return own
