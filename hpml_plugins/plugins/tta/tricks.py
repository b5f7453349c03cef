"""Tricks against an idle GPU, as changes of a recipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from hpml_plugins import HpmlError
from hpml_plugins.plugins.tta.recipes import Recipe, merged

BASE = "lab"
#: Sums of several: which tricks each leaves out.
SUMS = {"graphed": ("compile", "batch"), "all": ("batch",)}
OWN = Path(__file__).with_name("tricks.yaml")


def read_tricks() -> dict[str, dict[str, Any]]:
    """name → changes, in the order in which they are added up."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # read when the benchmarks are declared: libyaml's is faster
    tricks: dict[str, dict[str, Any]] = yaml.load(OWN.read_text(encoding="utf-8"), loader)
    return tricks


def names() -> tuple[str, ...]:
    """What can be asked for: nothing, each alone, the sums."""
    return (BASE, *read_tricks(), *SUMS)


def with_trick(recipe: Recipe, name: str) -> Recipe:
    """The recipe with a trick or a sum of them. Raises HpmlError for an unknown one."""
    tricks = read_tricks()
    if name == BASE:
        return recipe
    if name in SUMS:
        return with_all(recipe, [trick for trick in tricks if trick not in SUMS[name]])
    if name not in tricks:
        raise HpmlError(f"tta has no trick {name!r}; use one of {', '.join(names())}")
    return _changed(recipe, tricks[name])


def with_all(recipe: Recipe, chosen: list[str]) -> Recipe:
    """The recipe with all of these."""
    for name in chosen:
        recipe = with_trick(recipe, name)
    return recipe


def rows(recipe: Recipe, device: str, *, compiled: bool) -> Iterator[tuple[str, str, Recipe]]:
    """(trick, "alone" or "together", recipe) of each variant to be measured on this device, none of them twice.

    compiled: whether those that compile are among them. Those that change nothing there are left out.
    """
    seen: set[str] = set()

    def new(name: str, kind: str, changed: Recipe) -> Iterator[tuple[str, str, Recipe]]:
        runs_as = changed.on(device)
        if runs_as.fingerprint() not in seen and (compiled or not runs_as.compile):
            seen.add(runs_as.fingerprint())
            yield name, kind, runs_as

    yield from new(BASE, "alone", recipe)
    tricks = list(read_tricks())
    for name in tricks:
        yield from new(name, "alone", with_trick(recipe, name))
    for last in range(2, len(tricks) + 1):
        chosen = [name for name in tricks[:last] if compiled or name != "compile"]
        yield from new(f"+ {chosen[-1]}", "together", with_all(recipe, chosen))


def _changed(recipe: Recipe, changes: Mapping[str, Any]) -> Recipe:
    plain = msgspec.to_builtins(recipe)
    changes = dict(changes)
    if "batch" in changes:
        changes["batch"] = recipe.batch * changes["batch"]
    return msgspec.convert(merged(plain, changes), Recipe)
