"""Corrupts the values that a plugin passes through `bench.result`, to test whether its check
notices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

#: "off": 10 % and 1 more than it should be.  "nan": not a number.
InjectedFault = Literal["off", "nan"]


def corrupted(value: Any, fault: InjectedFault) -> Any:
    """A corrupted copy of a result: a number, text, bytes, a sequence, a mapping, a NumPy array or
    a torch tensor.

    Integers, text and bytes have no NaN and are "off" for either fault. Raises TypeError for
    anything else.
    """
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        if fault == "nan" and isinstance(value, float):
            return float("nan")
        return value + type(value)(value * 0.1 + 1)
    if isinstance(value, str):
        return value + "?" if not value[:1].isdigit() else "9" + value
    if isinstance(value, bytes):
        return bytes([value[0] ^ 0xFF]) + value[1:] if value else b"?"
    if isinstance(value, Mapping):
        return {key: corrupted(each, fault) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(corrupted(each, fault) for each in value)
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return _array(value, fault)
    raise TypeError(
        f"bench.result cannot corrupt a {type(value).__name__}; hand it the numbers that are"
        " checked"
    )


def _array(value: Any, fault: InjectedFault) -> Any:
    """A new array with every element changed, because a check may look at a sample."""
    name = str(value.dtype).removeprefix("torch.")
    if name.startswith("bool"):
        return ~value
    if "float" in name or "complex" in name:
        return value * float("nan") if fault == "nan" else value + (value * 0.1 + 1)
    return value + 1
