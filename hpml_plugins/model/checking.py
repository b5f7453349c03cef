"""Types and bounds of the values that are declared or stored.

Every field of what a plugin declares must have the type that its class declares, and must not
exceed the bounds, which msgspec also enforces when it decodes.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import reprlib
import typing
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from hpml_plugins.errors import LONGEST, DefinitionError, describe
from hpml_plugins.terminal import one_line

#: B of the longest name: some names become file and folder names, which file systems limit to
#: 255.
MOST_NAME = 200
#: Characters of a reason, a warning, or a parameter's value.
MOST_TEXT = 10_000
#: Characters of the output of a failed point.
MOST_OUTPUT = 100_000
#: Samples of a metric; and cells of a column of a series.
MOST_SAMPLES = 2_000_000
#: Entries of a mapping or a list of texts: metrics, series, columns, warnings, packages.
MOST_ENTRIES = 1_000
#: The largest number of any kind: its square, and sums of such squares, remain finite.
LARGEST = 1e100
#: The largest integer: an unsigned 64-bit integer, as in every file format to which Records are
#: exported.
LARGEST_INTEGER = 2**64 - 1

# Bounds that msgspec enforces while it decodes. JSON has no NaN and no infinity.
Text = Annotated[str, Meta(max_length=MOST_TEXT)]
Output = Annotated[str, Meta(max_length=MOST_OUTPUT)]
Number = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
#: A quantity that cannot be negative.
Amount = Annotated[float, Meta(ge=0, le=LARGEST)]
Duration = Annotated[float, Meta(ge=0, le=LONGEST)]
Rounds = Annotated[int, Meta(ge=1, le=MOST_ENTRIES)]
Texts = Annotated[list[Text], Meta(max_length=MOST_ENTRIES)]
Numbers = Annotated[list[Number], Meta(max_length=MOST_SAMPLES)]
Column = Annotated[list[Number | Text | None], Meta(max_length=MOST_SAMPLES)]
Words = Annotated[dict[Text, Text], Meta(max_length=MOST_ENTRIES)]
Facts = Annotated[dict[Text, Text | Number], Meta(max_length=MOST_ENTRIES)]
Amounts = Annotated[dict[Text, Amount], Meta(max_length=MOST_ENTRIES)]
FEW = Meta(max_length=MOST_ENTRIES)
Integer = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
if TYPE_CHECKING:
    NodeFacts = dict[str, Any]
else:  # facts of a node, nested four deep: GPUs and their links
    Fact = None | bool | Integer | Number | Text
    for _ in range(4):
        Fact = (
            None
            | bool
            | Integer
            | Number
            | Text
            | Annotated[list[Fact], FEW]
            | Annotated[dict[Text, Fact], FEW]
        )
    NodeFacts = Annotated[dict[Text, Fact], FEW]

#: For messages: msgspec's names of JSON types → Python's names.
_PYTHON = {"array": "list", "object": "dict", "null": "None", "Callable": "function"}


def check_fields(value: Any, what: str, name: object = None) -> None:
    """Check each field of a frozen dataclass or Struct against its annotation; see `check_value`.

    what, name: how errors name the value.
    """
    if isinstance(value, msgspec.Struct):
        put = msgspec.structs.force_setattr
    else:
        put = object.__setattr__
    what += "" if name is None else f" {format_given(name)}"
    for field, kind in _hints(value.__class__).items():
        put(value, field, check_value(getattr(value, field), kind, f"{what}: {field}"))


def check_value(given: Any, kind: Any, what: str, where: str | None = None) -> Any:
    """Convert a value to this type, including `msgspec.Meta`; a list is accepted for a tuple.

    what, where: how errors name and locate the value.  Raises DefinitionError with what was given
    and what is expected.
    """
    try:
        converted = msgspec.convert(given, kind, dec_hook=_instance)
        _refuse_made(given, converted)
        msgspec.msgpack.encode(converted, enc_hook=_refuse_subclass)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        # msgspec uses the same word for a dataclass and a dict
        if values := [
            each
            for each in (kind, *typing.get_args(kind))
            if dataclasses.is_dataclass(each)
        ]:
            message = message.replace(
                "Expected `object`", f"Expected `{getattr(values[0], '__name__', '')}`"
            )
        message = re.sub(
            r"\b(array|object|null|Callable)\b", lambda found: _PYTHON[found[0]], message
        )
        at = f" at {place.rstrip('`')}" if place else ""
        raise DefinitionError(
            f"{what}={format_given(given)}: {message[0].lower()}{message[1:]}{at}", where
        ) from None
    # An unpaired surrogate, an integer of more than 64 bits, a list that contains itself
    except (ValueError, OverflowError, AttributeError, RecursionError) as error:
        raise DefinitionError(f"{what} cannot be stored: {error}", where) from None
    return converted


def format_given(value: object) -> str:
    """Format a value that a plugin gave for a message: plain values as Python writes them,
    shortened; for others the type."""
    with suppress(ValueError):  # the repr of an int with thousands of digits
        if type(value) in (str, bytes, int, float, bool, type(None)):
            return reprlib.repr(value)
    return type(value).__name__


def ask_reason(question: Callable[[], object], what: str) -> str:
    """Ask a function of a plugin why a point cannot be measured; one line, "" if it can be.

    what: names the function if it raises or returns something else, which is then the reason.
    """
    try:
        reason = question() or ""
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return f"{what} raised {describe(error)}"
    if not isinstance(reason, str):
        given = type(reason).__name__
        return f"{what} returned {given}, not why the point cannot be measured or ''"
    return one_line(reason)


def takes(function: Any, count: int, names: Iterable[str] = ()) -> bool:
    """Whether a function can be called with this number of positional arguments and these keyword
    arguments."""
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
    """Refuse a dict for a dataclass, which msgspec would accept: its error would not name the line
    that lacks the class."""
    if isinstance(converted, list | tuple):
        pairs = list(zip(given, converted, strict=True))
    else:
        pairs = [(given, converted)]
    for old, new in pairs:
        if dataclasses.is_dataclass(new) and new is not old:
            raise msgspec.ValidationError(
                f"Expected `{type(new).__name__}`, got `{type(old).__name__}`"
            )


def _refuse_subclass(value: object) -> None:
    """Refuse subclasses of plain types, such as NumPy's text, which cannot be stored. Functions and
    classes need not be stored."""
    if isinstance(value, str | bytes | int | float | list | tuple | dict):
        raise ValueError(f"{type(value).__name__} is not a plain type of Python")


def _instance(kind: Any, value: object) -> object:
    """Check types that msgspec does not know: functions and classes."""
    kind = typing.get_origin(kind) or kind
    if not isinstance(value, kind):
        raise TypeError(f"Expected `{kind.__name__}`, got `{type(value).__name__}`")
    return value
