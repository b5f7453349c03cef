"""Operations added up: by layer, by operator, and over the whole model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hpml_plugins.plugins.flops.formulas import flop
from hpml_plugins.plugins.flops.tracing import Operation

UNITS = {
    "calls": "1",
    "multiply_adds": "MAC",
    "flops": "FLOP",
    "parameters": "1",
    "activations": "1",
    "activation_bytes": "B",
    "bytes": "B",
    "apart": "1",
}

Columns = dict[str, list[float | str]]


@dataclass
class Sum:
    """Operations added up; the attributes are Operation's."""

    calls: int = 0
    multiply_adds: int = 0
    apart: int = 0
    activations: int = 0
    activation_bytes: int = 0
    bytes: int = 0
    counted: bool = True
    operators: set[str] = field(default_factory=set)

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


def total(operations: Iterable[Operation]) -> Sum:
    """All of them."""
    whole = Sum()
    for operation in operations:
        whole.add(operation)
    return whole


def by_operator(operations: Iterable[Operation]) -> dict[str, Sum]:
    """Operator → its sum, in order of first use."""
    sums: dict[str, Sum] = {}
    for operation in operations:
        sums.setdefault(operation.name, Sum()).add(operation)
    return sums


def by_layer(operations: Iterable[Operation], layers: Iterable[str]) -> dict[str, Sum]:
    """Layer → the sum of its own operations, its children's left out, in the order of `layers`."""
    sums = {layer: Sum() for layer in layers}
    for operation in operations:
        sums[operation.layer].add(operation)
    return sums


def layer_columns(sums: Mapping[str, Sum], types: Mapping[str, str], parameters: Mapping[str, int]) -> Columns:
    """The series `layers`: modules with operations that touch data, or parameters, of their own."""
    rows = {name: row for name, row in sums.items() if row.multiply_adds or row.bytes or parameters[name]}
    return {
        "layer": list(rows),
        "type": [types[name] for name in rows],
        **_numbers(rows.values()),
        "parameters": [parameters[name] for name in rows],
    }


def operator_columns(sums: Mapping[str, Sum]) -> Columns:
    """The series `operators`: those that touch data; `counted` says how: "multiply-adds", "apart", "none" or "no"."""
    rows = {name: row for name, row in sums.items() if row.bytes or not row.counted}
    return {
        "operator": list(rows),
        "counted": [_how(row) for row in rows.values()],
        "calls": [row.calls for row in rows.values()],
        **_numbers(rows.values()),
        "apart": [row.apart for row in rows.values()],
    }


def _numbers(rows: Iterable[Sum]) -> Columns:
    rows = list(rows)
    return {
        "multiply_adds": [row.multiply_adds for row in rows],
        "flops": [flop(row.multiply_adds) for row in rows],
        "activations": [row.activations for row in rows],
        "activation_bytes": [row.activation_bytes for row in rows],
        "bytes": [row.bytes for row in rows],
    }


def _how(row: Sum) -> str:
    if not row.counted:
        return "no"
    return "multiply-adds" if row.multiply_adds else "apart" if row.apart else "none"


def units(columns: Iterable[str]) -> dict[str, str]:
    """The units of those columns that are numbers."""
    return {column: UNITS[column] for column in columns if column in UNITS}


def spelled(numbers: Mapping[str, int], sign: str = "") -> str:
    """ "add_ ×8, relu_ ×17" """
    return ", ".join(f"{name} {sign}{number}" for name, number in sorted(numbers.items()))


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
