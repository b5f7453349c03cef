"""The line numbers of the values in a YAML document, for error messages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from hpml_plugins.errors import RegistryError, nearest

T = TypeVar("T", bound=msgspec.Struct)
Place = tuple[str | int, ...]
#: A registry nests six levels deep; a file with thousands is an attempt to exhaust the parser.
DEEPEST = 30
#: msgspec's names of types → names for readers of YAML.
TYPES = {
    "array": "a list",
    "object": "a mapping",
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
}
#: libyaml's loader takes a tenth of the time of the Python one, which is used if PyYAML was
#: built without it.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
#: Resolves and constructs scalars: `yes` is True, `1e-3` text (YAML 1.1).
_SCALARS: Any = yaml.SafeLoader("")
_TEXT = "tag:yaml.org,2002:str"
_PLAIN_COLLECTIONS = (None, "!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")


class YamlLines:
    """A YAML document and the line numbers (from 1) of its values, by path of keys and indices.

    Raises RegistryError for text that is not YAML, for a duplicate key (YAML itself would keep the
    last), and for anchors: an alias is tiny and can expand to gigabytes.
    """

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        self.document: Any = None
        self._lines: dict[Place, int] = {}
        try:
            self._build(iter(yaml.parse(text, Loader=_LOADER)))
        except yaml.MarkedYAMLError as error:
            where = f"{name}:{error.problem_mark.line + 1}" if error.problem_mark else name
            raise RegistryError(
                f"not valid YAML: {error.problem or error}", where
            ) from None
        except (yaml.YAMLError, ValueError) as error:  # ValueError: an invalid date
            raise RegistryError(f"not valid YAML: {error}", name) from None

    def at(self, path: Place) -> str:
        """`file:line` of the value at that path, or of its nearest enclosing value."""
        for end in range(len(path), -1, -1):
            if path[:end] in self._lines:
                return f"{self.name}:{self._lines[path[:end]]}"
        return self.name

    def _build(self, events: Iterator[Any]) -> None:
        """Build the document from the parser's events, each of which has a line: PyYAML's nodes
        lack the line of an alias."""
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                if self._lines:
                    raise self._fault("a second document; a file has one", event)
                if not isinstance(event := next(events), yaml.DocumentEndEvent):
                    self.document = self._value(event, events, ())

    def _value(self, event: Any, events: Iterator[Any], path: Place) -> Any:
        self._lines.setdefault(path, event.start_mark.line + 1)
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event)
        if isinstance(event, yaml.AliasEvent):
            raise self._fault("aliases (*name) are not allowed; write the value out", event)
        if len(path) >= DEEPEST:
            raise self._fault(
                f"nested more than {DEEPEST} deep, which no registry is", event
            )
        if event.tag not in _PLAIN_COLLECTIONS:
            raise self._fault(
                f"not valid YAML: could not determine a constructor for the tag {event.tag!r}",
                event,
            )
        if isinstance(event, yaml.SequenceStartEvent):
            return [
                self._value(each, events, (*path, index))
                for index, each in enumerate(_until_end(events))
            ]
        mapping: dict[Any, Any] = {}
        for key in _until_end(events):
            if not hasattr(key, "value"):
                raise self._fault("a key must be text", key)
            child = (*path, key.value)
            if child in self._lines:
                raise self._fault(f"key {key.value!r} is given twice", key)
            self._lines[child] = key.start_mark.line + 1
            mapping[self._scalar(key)] = self._value(next(events), events, child)
        return mapping

    def _scalar(self, event: Any) -> Any:
        tag = event.tag
        text = event.value
        if tag is None or tag == "!":
            tag = _SCALARS.resolve(yaml.ScalarNode, text, event.implicit)
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                raise self._fault(
                    "an unpaired surrogate, which is not valid text", event
                ) from None
        if tag == _TEXT:
            return text
        construct = _SCALARS.yaml_constructors.get(tag, _SCALARS.yaml_constructors[None])
        try:
            value = construct(
                _SCALARS, yaml.ScalarNode(tag, text, event.start_mark, event.end_mark)
            )
        # raised by PyYAML for `!!int ""`, `!!timestamp x`
        except (LookupError, AttributeError, ArithmeticError):
            raise self._fault(
                f"{text[:40]!r} is not a valid {tag.rpartition(':')[2]}", event
            ) from None
        if isinstance(value, int) and value.bit_length() > 63:
            raise self._fault("an integer of more than 64 bits", event)
        return value

    def _fault(self, what: str, event: Any) -> RegistryError:
        return RegistryError(what, f"{self.name}:{event.start_mark.line + 1}")


def _until_end(events: Iterator[Any]) -> Iterator[Any]:
    """The first event of each item of a collection; the caller reads the contents of the item."""
    for event in events:
        if isinstance(event, yaml.CollectionEndEvent):
            return
        yield event


def read_yaml(path: Path, shape: type[T]) -> tuple[T, YamlLines]:
    """Read a YAML file of this shape, with the line of each value. Raises RegistryError with file
    and line."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        what = (
            "no such file; run in the project's folder, name the file (--registry, --cluster), or"
            " make a project of your repository: hpml init"
        )
        raise RegistryError(what, str(path)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise RegistryError(f"cannot be read: {error}", str(path)) from None
    lines = YamlLines(text, str(path))
    if not isinstance(lines.document, dict):
        raise RegistryError(
            f"must be a mapping with the keys {', '.join(shape.__struct_fields__)}",
            str(path),
        )
    try:
        return msgspec.convert(lines.document, shape), lines
    except msgspec.ValidationError as error:
        raise _explain(error, lines, shape) from None


def _explain(error: msgspec.ValidationError, lines: YamlLines, shape: Any) -> RegistryError:
    message, _, place = str(error).partition(" - at `")
    path = _path_of(place.rstrip("`"))
    if unknown := re.search(r"unknown field `(.+)`", message):
        key = unknown[1]
        known: set[str] = set()
        for each in msgspec.json.schema(shape)["$defs"].values():
            known |= each.get("properties", {}).keys()
        what = f"unknown key {key!r}; {nearest(key, known)}"
        return RegistryError(what, lines.at((*path, key)))
    at = ".".join(map(str, path))
    if wrong := re.match(r"Invalid enum value (.+)", message):
        known = {
            str(choice)
            for each in msgspec.json.schema(shape)["$defs"].values()
            for choice in each.get("properties", {}).get(path[-1], {}).get("enum", ())
        }
        what = f"{at}: {wrong[1]} is not known; use {' or '.join(sorted(known))}"
        return RegistryError(what, lines.at(path))
    if missing := re.search(r"missing required field `(.+)`", message):
        return RegistryError(f"key {missing[1]!r} is missing", lines.at(path))
    if re.match(r"Expected `str.*, got `(int|float)`", message):
        message += "; put it in quotes"
    message = re.sub("`([a-z |]+)`", _in_words, message)
    fault = f"{message[0].lower()}{message[1:]}"
    return RegistryError(f"{at}: {fault}" if at else fault, lines.at(path))


def _in_words(types: re.Match[str]) -> str:
    names = types[1].removesuffix(" | null").split(" | ")
    return " or ".join(TYPES.get(each, each) for each in names)


def _path_of(place: str) -> Place:
    """Convert a path in msgspec's notation, `$.plugins[3].grid`."""
    steps = re.findall(r"\.([A-Za-z_]\w*)|\[(\d+)\]", place)
    return tuple(int(index) if index else key for key, index in steps)
