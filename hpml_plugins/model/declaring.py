"""Checking what plugins declare: every field of a value has the type that its class declares."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import reprlib
import typing
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import msgspec

from hpml_plugins.errors import DefinitionError

#: In messages: msgspec's names of JSON's types → Python's.
_PYTHON = {"array": "list", "object": "dict", "null": "None", "Callable": "function"}


def check_fields(value: Any, what: str, name: object = None) -> None:
    """Hold each field of a frozen dataclass or Struct against its annotation, `msgspec.Meta` included.

    A list given for a tuple becomes one. what, name: the value in errors.  Raises DefinitionError with the field, what
    it was given and what it takes.
    """
    put = msgspec.structs.force_setattr if isinstance(value, msgspec.Struct) else object.__setattr__
    what += "" if name is None else f" {spell(name)}"
    for field, kind in _hints(value.__class__).items():
        given = getattr(value, field)
        try:
            converted = msgspec.convert(given, kind, dec_hook=_instance)
            _refuse_made(given, converted)
            put(value, field, converted)
            msgspec.msgpack.encode(converted, enc_hook=_refuse_subclass)
        except msgspec.ValidationError as error:
            message, _, place = str(error).partition(" - at `$")
            message = re.sub(r"\b(array|object|null|Callable)\b", lambda found: _PYTHON[found[0]], message)
            shown = spell(given)
            at = f" at {place.rstrip('`')}" if place else ""
            raise DefinitionError(f"{what}: {field}={shown}: {message[0].lower()}{message[1:]}{at}") from None
        except (
            ValueError,
            OverflowError,
            AttributeError,
            RecursionError,
        ) as error:  # half a character, 65 bits, a ring
            raise DefinitionError(f"{what}: {field} cannot be stored: {error}") from None


def spell(value: object) -> str:
    """A value that a plugin gave, in a message: plain ones as Python writes them, shortened; of others the type."""
    with suppress(ValueError):  # int's repr, of thousands of digits
        if type(value) in (str, bytes, int, float, bool, type(None)):
            return reprlib.repr(value)
    return type(value).__name__


def takes(function: Any, count: int, names: Iterable[str] = ()) -> bool:
    """Whether a function can be called with this number of positional arguments, and with others by these names."""
    try:
        inspect.signature(function).bind(*[None] * count, **dict.fromkeys(names))
    except (TypeError, ValueError):  # ValueError: a built-in function without a signature
        return False
    return True


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(kind, include_extras=True)
    return {name: hint for name, hint in hints.items() if name in kind.__match_args__}


def _refuse_made(given: Any, converted: Any) -> None:
    """msgspec makes a dataclass of a dict: its error would not name the line that lacks the class."""
    pairs = zip(given, converted, strict=True) if isinstance(converted, list | tuple) else [(given, converted)]
    for old, new in pairs:
        if dataclasses.is_dataclass(new) and new is not old:
            raise msgspec.ValidationError(f"Expected `{type(new).__name__}`, got `{type(old).__name__}`")


def _refuse_subclass(value: object) -> None:
    """Functions and classes need not be stored; a subclass of text, such as NumPy's, cannot be."""
    if isinstance(value, str | bytes | int | float | list | tuple | dict):
        raise ValueError(f"{type(value).__name__} is not a plain type of Python")


def _instance(kind: Any, value: object) -> object:
    """For the types that msgspec leaves to others: functions and classes."""
    kind = typing.get_origin(kind) or kind
    if not isinstance(value, kind):
        raise TypeError(f"Expected `{kind.__name__}`, got `{type(value).__name__}`")
    return value
