"""Where in a YAML document each value stands, so that an error can name its line."""

from __future__ import annotations

from typing import Any

import yaml

from hpml_plugins.errors import RegistryError

Path = tuple[str | int, ...]
#: A registry nests six deep; a file that nests thousands is made to exhaust the parser.
DEEPEST = 30


class Lines:
    """A YAML document and the line numbers (from 1) of its values, by path of keys and indices.

    Raises RegistryError for text that is not YAML, for a key given twice (YAML itself would keep the last), and for
    anchors: an alias costs nothing to write and can unfold to gigabytes.
    """

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        self.document: Any = None
        self._lines: dict[Path, int] = {}
        try:
            _check_events(text, name)
            root = yaml.compose(text, Loader=yaml.SafeLoader)
            self.document = yaml.safe_load(text)
        except yaml.MarkedYAMLError as error:
            where = f"{name}:{error.problem_mark.line + 1}" if error.problem_mark else name
            raise RegistryError(f"not valid YAML: {error.problem or error}", where) from None
        except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that is none
            raise RegistryError(f"not valid YAML: {error}", name) from None
        if root is not None:
            self._walk(root, ())

    def at(self, path: Path) -> str:
        """`file:line` of the value at that path, or of its nearest enclosing value."""
        for end in range(len(path), -1, -1):
            if path[:end] in self._lines:
                return f"{self.name}:{self._lines[path[:end]]}"
        return self.name

    def _walk(self, node: yaml.Node, path: Path) -> None:
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


def _check_events(text: str, name: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
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
