"""What msgspec says of a wrong value, with its line and the mend."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import inspect

from hpml_plugins.errors import RegistryError
from hpml_plugins.registry.lines import Lines


def explain(error: msgspec.ValidationError, lines: Lines, shape: Any) -> RegistryError:
    """The error of a YAML file that should have this shape. shape: the msgspec type of the whole file."""
    message, _, spelled = str(error).partition(" - at `")
    path: list[str | int] = [
        int(index) if index else key for key, index in re.findall(r"\.([A-Za-z_]\w*)|\[(\d+)\]", spelled.rstrip("`"))
    ]
    if unknown := re.search(r"unknown field `(.+)`", message):
        known = _keys(inspect.type_info(shape), path)
        near = difflib.get_close_matches(unknown[1], known, 1)
        mend = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
        return RegistryError(f"unknown key {unknown[1]!r}; {mend}", lines.at((*path, unknown[1])))
    if missing := re.search(r"missing required field `(.+)`", message):
        return RegistryError(f"key {missing[1]!r} is missing", lines.at(tuple(path)))
    if re.match(r"Expected `str.*, got `(int|float)`", message):
        message += "; put it in quotes"
    at = ".".join(str(part) for part in path)
    return RegistryError(f"{at + ': ' if at else ''}{message[0].lower()}{message[1:]}", lines.at(tuple(path)))


def _keys(shape: inspect.Type, path: Sequence[str | int]) -> list[str]:
    """The keys that the mapping at that path may have."""
    if isinstance(shape, inspect.Metadata):
        return _keys(shape.type, path)
    if isinstance(shape, inspect.UnionType):
        return [key for kind in shape.types for key in _keys(kind, path)]
    if isinstance(shape, inspect.StructType):
        if not path:
            return [field.encode_name for field in shape.fields]
        return [key for field in shape.fields if field.encode_name == path[0] for key in _keys(field.type, path[1:])]
    if isinstance(shape, inspect.ListType) and path:
        return _keys(shape.item_type, path[1:])
    if isinstance(shape, inspect.DictType) and path:
        return _keys(shape.value_type, path[1:])
    return []
