"""One operation of a traced pass, as plain values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Operation:
    """One call of an operator in one forward pass.

    layer: path of the module whose `forward` called it, "" for the model's own.  name: fvcore's name, such as "conv".
    multiply_adds: 0 where it is not made of them.  apart: fvcore's count of what is not (normalisation, pooling).
    counted: whether fvcore or this package has a count, or the operator does no arithmetic.  activations,
    activation_bytes: what new memory holds of its results.  bytes: of the tensors it reads and writes.
    """

    layer: str
    name: str
    multiply_adds: int = 0
    apart: int = 0
    counted: bool = True
    activations: int = 0
    activation_bytes: int = 0
    bytes: int = 0
