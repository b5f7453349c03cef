"""Where in a YAML document each value stands, so that an error can name its line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from hpml_plugins.errors import RegistryError, nearest

T = TypeVar("T", bound=msgspec.Struct)
Place = tuple[str | int, ...]
#: A registry nests six deep; a file that nests thousands is made to exhaust the parser.
DEEPEST = 30
#: libyaml's loader takes a tenth of the time of the one in Python, which stands in where PyYAML was built without it.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class YamlLines:
    """A YAML document and the line numbers (from 1) of its values, by path of keys and indices.

    Raises RegistryError for text that is not YAML, for a key given twice (YAML itself would keep the last), and for
    anchors: an alias costs nothing to write and can unfold to gigabytes.
    """

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        self.document: Any = None
        self._lines: dict[Place, int] = {}
        try:
            _check_events(text, name)  # before composing: libyaml's composer exhausts the stack on deep nesting
            loader = _LOADER(text)
            root = loader.get_single_node()
            if root is not None:
                self._walk(root, ())
                self.document = loader.construct_document(root)
        except yaml.MarkedYAMLError as error:
            where = f"{name}:{error.problem_mark.line + 1}" if error.problem_mark else name
            raise RegistryError(f"not valid YAML: {error.problem or error}", where) from None
        except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that is none
            raise RegistryError(f"not valid YAML: {error}", name) from None

    def at(self, path: Place) -> str:
        """`file:line` of the value at that path, or of its nearest enclosing value."""
        for end in range(len(path), -1, -1):
            if path[:end] in self._lines:
                return f"{self.name}:{self._lines[path[:end]]}"
        return self.name

    def _walk(self, node: yaml.Node, path: Place) -> None:
        self._lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                child = (*path, str(key.value))
                if child in self._lines:
                    raise RegistryError(f"key {key.value!r} is given twice", _at(self.name, key))
                self._lines[child] = key.start_mark.line + 1
                self._walk(value, child)
        elif isinstance(node, yaml.SequenceNode):
            for index, value in enumerate(node.value):
                self._walk(value, (*path, index))


def read_yaml(path: Path, shape: type[T]) -> tuple[T, YamlLines]:
    """The values of a YAML file of this shape, and where each stands. Raises RegistryError, with file and line."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        what = "no such file; run in the project's folder or name the file (--registry, --cluster)"
        raise RegistryError(what, str(path)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise RegistryError(f"cannot be read: {error}", str(path)) from None
    lines = YamlLines(text, str(path))
    if not isinstance(lines.document, dict):
        raise RegistryError(f"must be a mapping with the keys {', '.join(shape.__struct_fields__)}", str(path))
    try:
        return msgspec.convert(lines.document, shape), lines
    except msgspec.ValidationError as error:
        raise _explain(error, lines, shape) from None


def _explain(error: msgspec.ValidationError, lines: YamlLines, shape: Any) -> RegistryError:
    message, _, spelled = str(error).partition(" - at `")
    path: list[str | int] = [
        int(index) if index else key for key, index in re.findall(r"\.([A-Za-z_]\w*)|\[(\d+)\]", spelled.rstrip("`"))
    ]
    if unknown := re.search(r"unknown field `(.+)`", message):
        known = {key for each in msgspec.json.schema(shape)["$defs"].values() for key in each.get("properties", ())}
        return RegistryError(f"unknown key {unknown[1]!r}; {nearest(unknown[1], known)}", lines.at((*path, unknown[1])))
    if missing := re.search(r"missing required field `(.+)`", message):
        return RegistryError(f"key {missing[1]!r} is missing", lines.at(tuple(path)))
    if re.match(r"Expected `str.*, got `(int|float)`", message):
        message += "; put it in quotes"
    at = ".".join(str(part) for part in path)
    return RegistryError(f"{at + ': ' if at else ''}{message[0].lower()}{message[1:]}", lines.at(tuple(path)))


def _check_events(text: str, name: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.AliasEvent):
            raise RegistryError("aliases (*name) are not allowed; write the value out", _at(name, event))
        if isinstance(event, yaml.ScalarEvent):
            try:
                event.value.encode()
            except UnicodeEncodeError:
                raise RegistryError("half a character, which is no text", _at(name, event)) from None
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise RegistryError(f"nested more than {DEEPEST} deep, which no registry is", _at(name, event))


def _at(name: str, marked: Any) -> str:
    return f"{name}:{marked.start_mark.line + 1}"
