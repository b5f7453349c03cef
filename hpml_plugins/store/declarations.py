"""benchmarks.json and machine.json: the union of the declarations of several nodes, and the part
that asv can read."""

from __future__ import annotations

import ast
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from hpml_plugins.model.benchmark import Direction, Value
from hpml_plugins.model.checking import MOST_NAME
from hpml_plugins.model.units import unit

#: The most points of one benchmark: a grid of a few lines can expand to any number.
MAX_POINTS = 10**6
Entries = dict[str, Any]
#: The key of benchmarks.json and machine.json that is not an entry: asv's format version.
VERSION_KEY = "version"
DECLARATIONS = "benchmarks.json"


#: Our units → asv's. asv formats the first two itself and omits "unit"; any other is shown as
#: text.
ASV_UNITS = {"s": "seconds", "B": "bytes", "1": "unit"}
_SYMBOLS = {theirs: symbol for symbol, theirs in ASV_UNITS.items()} | {"": "1"}
_DIRECTIONS: Mapping[str, Direction] = {"lower": "lower", "higher": "higher"}


class Declaration(msgspec.Struct, frozen=True, omit_defaults=True):
    """An entry of benchmarks.json: a metric of a plugin's benchmark, or a benchmark of a plain asv
    project.

    params: the values of each parameter, as Python's repr.  plugin, benchmark, metric, si_unit:
    empty for a plain asv project.  direction: "none" if neither is better; empty if unknown.
    timeout: s.
    """

    version: str
    param_names: list[str]
    params: list[list[str]]
    name: str = ""
    unit: str = ""
    type: str = ""
    pretty_name: str = ""
    code: str = ""
    plugin: str = ""
    benchmark: str = ""
    metric: str = ""
    si_unit: str = ""
    direction: str = ""
    timeout: float | None = None

    def __post_init__(self) -> None:
        if len(self.param_names) != len(self.params):
            raise ValueError("not as many names of parameters as grids")

    @property
    def is_ours(self) -> bool:
        """Whether its values are in Records."""
        return bool(self.benchmark and self.metric)

    @property
    def symbol(self) -> str:
        """The symbol of its unit, or asv's unit if it is not one of ours."""
        return self.si_unit or _SYMBOLS.get(self.unit, self.unit.partition(" (")[0])

    @property
    def better(self) -> Direction | None:
        """Which direction is better; None if neither is, or if a benchmark of a plain asv project
        does not say."""
        if self.direction:
            return _DIRECTIONS.get(self.direction)
        is_cost = self.type == "time" or self.unit in ("seconds", "bytes")
        return "lower" if is_cost else None

    def points(self) -> Iterator[dict[str, str]]:
        """Parameter → its value as text, for every point, in asv's order."""
        for values in itertools.product(*self.params):
            yield dict(zip(self.param_names, values, strict=True))


def asv_name(benchmark: str, metric: str) -> str:
    """asv's name of a metric of a benchmark."""
    return f"{benchmark}.track_{metric}"


def declare_metric(
    benchmark: str, metric: str, symbol: str, direction: str | None, **facts: Any
) -> Declaration:
    """The entry of a metric of a plugin's benchmark.  symbol: of its unit.  facts: other fields."""
    return Declaration(
        name=asv_name(benchmark, metric),
        unit=ASV_UNITS.get(symbol, str(unit(symbol))),
        type="track",
        benchmark=benchmark,
        metric=metric,
        si_unit=symbol,
        direction=direction or "none",
        **facts,
    )


def read_declarations(found: Mapping[str, Any]) -> dict[str, Declaration]:
    """The valid declarations of a benchmarks.json."""
    read = {name: _declaration(entry) for name, entry in found.items()}
    return {name: declaration for name, declaration in read.items() if declaration}


def valid_declarations(found: Mapping[str, Any]) -> dict[str, Declaration]:
    """The declarations of a benchmarks.json that asv can read: it stops at the first invalid
    entry."""
    return {
        name: declaration
        for name, declaration in read_declarations(found).items()
        if declaration.name == name
        and math.prod(map(len, declaration.params)) <= MAX_POINTS
        and len(name.encode()) <= MOST_NAME
    }


def join_entries(
    ours: Mapping[str, Any], theirs: Mapping[str, Any]
) -> tuple[Entries, list[str]]:
    """The union of two JSON objects, independent of the order of joining, and the conflicts that
    were resolved, in words.

    Of two declarations of a benchmark the one with the higher version is kept; with equal versions,
    the values of both grids are kept, so that asv's pages have every point that a node measured. Of
    other conflicting values, the one that sorts last is kept.
    """
    joined = {**theirs, **ours}
    decided = []
    for name, entry in theirs.items():
        mine = joined[name]
        if mine == entry:
            continue
        joined[name] = kept = max(mine, entry, key=_rank)
        if (pairs := _grids_of_one_version(mine, entry)) is not None:
            values = [
                one if one == other else sorted_values({*one, *other})
                for one, other in pairs
            ]
            joined[name] = {**kept, "params": values}
        else:
            decided.append(
                f"{name} is {_describe_entry(mine)} and {_describe_entry(entry)};"
                f" {_describe_entry(kept)} is kept"
            )
    return joined, decided


def keep_declared(written: Mapping[str, Any], found: Mapping[str, Any]) -> Entries:
    """The entries to write if one node declares `written` and the folder already has `found`.

    The writer's declarations take precedence, but nothing is lost: other benchmarks are kept, and a
    grid of the same version keeps its values. The order of values is kept too, unless the writer
    adds some, which then come first with the rest of its own: with another order, every result file
    of the benchmark would be rewritten.
    """
    kept = {**found, **written}
    for name in written.keys() & found.keys():
        if (pairs := _grids_of_one_version(written[name], found[name])) is not None:
            values = [
                theirs
                if set(mine) <= set(theirs)
                else list(dict.fromkeys([*mine, *theirs]))
                for mine, theirs in pairs
            ]
            kept[name] = {**kept[name], "params": values}
    return kept


def sorted_values(texts: Iterable[str]) -> list[str]:
    """Sort values of a parameter, given as Python's repr: numbers by size, then others by name."""

    def key(text: str) -> tuple[int, float, str]:
        value = value_of(text)
        is_number = isinstance(value, int | float) and value == value
        return (0, float(value), text) if is_number else (1, 0.0, text)

    return sorted(texts, key=key)


def _declaration(entry: Any) -> Declaration | None:
    try:
        return msgspec.convert(entry, Declaration)
    except msgspec.ValidationError:
        return None


def _grids_of_one_version(one: Any, other: Any) -> list[tuple[list[str], list[str]]] | None:
    """The values of each parameter in two declarations of one benchmark; None if their parameters
    differ."""
    first = _declaration(one)
    second = _declaration(other)
    same = (
        first
        and second
        and (first.version, first.param_names) == (second.version, second.param_names)
    )
    if first and second and same:
        return list(zip(first.params, second.params, strict=True))
    return None


def _rank(entry: Any) -> tuple[Any, ...]:
    declaration = _declaration(entry)
    if not declaration:
        return False, (), (), json.dumps(entry, sort_keys=True)
    rest = {key: value for key, value in entry.items() if key != "params"}
    return (
        True,
        _version(declaration.version),
        declaration.param_names,
        json.dumps(rest, sort_keys=True),
    )


def _version(text: str) -> tuple[int, Any]:
    from packaging.version import Version  # only merging needs it

    try:
        return 1, Version(text)
    except (
        ValueError
    ):  # asv's own version is a hash of the code; a damaged one has thousands of digits
        return 0, text


def _describe_entry(entry: Any) -> str:
    declaration = _declaration(entry)
    if not declaration:
        return repr(entry)[:100]
    params = ", ".join(declaration.param_names) or "no parameters"
    return f"version {declaration.version} ({params})"


def value_of(text: str) -> Value:
    """Parse the value of a parameter from Python's repr, as asv writes it; other text is returned
    unchanged."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text
    if isinstance(value, str | int | float | bool) and repr(value) == text:
        return value
    return text
