"""benchmarks.json and machine.json: the union of what several nodes declare, and what of it asv can read."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Mapping
from typing import Any

from packaging.version import Version

#: Points of one benchmark at most: a grid of a few lines can unfold to any number.
MAX_POINTS = 10**6
#: Bytes of a benchmark's name: files are named after it, with a longer name while they are written; 255 is the limit.
MAX_NAME = 200
#: What is text where a declaration has it: asv's keys, and ours.
_TEXTS = ("unit", "type", "version", "pretty_name", "code", "plugin", "benchmark", "metric", "si_unit")
Entries = dict[str, Any]
#: The key of benchmarks.json and machine.json that is not an entry: asv's version of the format.
FORMAT = "version"
DECLARATIONS = "benchmarks.json"


def join_benchmarks(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> tuple[Entries, list[str]]:
    """Every benchmark of both, and what was decided between, in words.

    Of two versions of a benchmark the higher one; of one version a grid with the values of both, so that no point that
    a node measured is missing from the page.
    """
    joined, decided = dict(ours), []
    for name, entry in theirs.items():
        if name not in joined:
            joined[name] = entry
        elif name != FORMAT and joined[name] != entry:
            joined[name], reasons = _join_entry(joined[name], entry)
            decided += [f"{name}: {reason}" for reason in reasons]
        elif name == FORMAT:
            joined[name] = max(joined[name], entry, key=_format)
    return joined, decided


def keep_declared(written: Mapping[str, Any], found: Mapping[str, Any]) -> Entries:
    """What to write when one node declares `written` and the folder already declares `found`.

    The writer's declarations override, but nothing is lost: benchmarks that it does not have stay, and a grid of the
    same version keeps its values, the writer's first.
    """
    kept = dict(written)
    for name, entry in found.items():
        if name not in kept:
            kept[name] = entry
        elif _is_entry(entry) and _is_entry(kept[name]) and _same_shape(entry, kept[name]):
            values = [
                [*mine, *(value for value in theirs if value not in mine)]
                for mine, theirs in zip(kept[name]["params"], entry["params"], strict=True)
            ]
            kept[name] = {**kept[name], "params": values}
    return kept


def join_machine(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> tuple[Entries, list[str]]:
    """The facts of both. Where they differ the one that sorts last, said in words: no order of merging is better."""
    joined, decided = dict(ours), []
    for key, value in theirs.items():
        if key in joined and joined[key] != value:
            chosen = max(joined[key], value, key=_canonical)
            decided.append(f"{key} is {joined[key]!r} and {value!r}; {chosen!r} is kept")
            joined[key] = chosen
        else:
            joined[key] = value
    return joined, decided


def _join_entry(ours: Any, theirs: Any) -> tuple[Any, list[str]]:
    if not (_is_entry(ours) and _is_entry(theirs)):
        return max(ours, theirs, key=lambda entry: (_is_entry(entry), _canonical(entry))), ["one is no declaration"]
    first, second = _rank(ours), _rank(theirs)
    if first != second:
        newer = ours if first > second else theirs
        if first[0] != second[0]:
            return newer, [f"version {newer['version']} is kept, of {ours['version']} and {theirs['version']}"]
        return newer, [f"its parameters differ; {', '.join(newer['param_names']) or 'none'} is kept"]
    params = [_join_values(*pair) for pair in zip(ours["params"], theirs["params"], strict=True)]
    rest = max((_without_grid(ours), _without_grid(theirs)), key=_canonical)
    return {**rest, "params": params}, []


def _join_values(ours: list[str], theirs: list[str]) -> list[str]:
    """The values of both: in the order of the one that has them all, else sorted.

    Sorted is the least of all orders: whoever has all values in an order of his own wins over it, whenever he comes.
    """
    both = _sorted({*ours, *theirs})
    orders = [values for values in (ours, theirs) if len(values) == len(both) and _sorted(set(values)) == both]
    return max([both, *orders], key=lambda values: (values != both, _canonical(values)))


def _sorted(values: set[str]) -> list[str]:
    def key(value: str) -> tuple[int, float, str]:
        try:
            number = ast.literal_eval(value)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            number = None
        is_number = isinstance(number, int | float) and number == number
        return (0, number, value) if is_number else (1, 0.0, value)

    return sorted(values, key=key)


def _rank(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    return _version(entry["version"]), _canonical(entry["param_names"])


def _version(text: Any) -> tuple[int, Version | str]:
    try:
        return 1, Version(str(text))
    except ValueError:  # asv's own is a hash of the code; a damaged one has thousands of digits
        return 0, str(text)


def _same_shape(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return bool(one["version"] == other["version"] and one["param_names"] == other["param_names"])


def valid_declarations(found: Mapping[str, Any]) -> tuple[Entries, list[str]]:
    """What asv can read of a benchmarks.json, and the names of what is no declaration: asv ends at the first."""
    valid = {
        name: entry
        for name, entry in found.items()
        if _is_entry(entry)
        and entry.get("name") == name
        and all(isinstance(entry.get(key, ""), str) for key in _TEXTS)
        and math.prod(map(len, entry["params"])) <= MAX_POINTS
        and len(name.encode()) <= MAX_NAME
    }
    return valid, [name for name in found if name not in valid and name != FORMAT]


def _is_entry(entry: Any) -> bool:
    """Whether it is a declaration as asv writes them."""
    if not isinstance(entry, dict) or "version" not in entry:
        return False
    names, params = entry.get("param_names"), entry.get("params")
    return (
        isinstance(names, list)
        and all(isinstance(name, str) for name in names)
        and isinstance(params, list)
        and len(names) == len(params)
        and all(isinstance(values, list) and all(isinstance(value, str) for value in values) for values in params)
    )


def _format(version: Any) -> tuple[int, str]:
    return (version, "") if isinstance(version, int) else (-1, _canonical(version))


def _without_grid(entry: Mapping[str, Any]) -> Entries:
    return {key: value for key, value in entry.items() if key != "params"}


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
