"""Rules that a change loosens compared with the registry of its base: budgets that it raises,
benchmarks and points that it removes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hpml_plugins.errors import HpmlError
from hpml_plugins.git import run_git
from hpml_plugins.registry import PluginEntry, Registry, read_registry
from hpml_plugins.temporary import temporary_folder
from hpml_plugins.tools.gate.budgets import DEFAULT_BUDGET, budget_of, budgets_of

#: Settings of sampling, and whether a larger one measures less precisely.
_SAMPLING = {"precision": True, "budget": False, "rounds": False}


def registry_of_base(registry: Registry, top: Path, base: str) -> Registry | None:
    """The registry of the commit `base`; None if it has none that can be read.

    top: of the checkout.
    """
    place = registry.path.resolve().relative_to(top.resolve()).as_posix()
    shown = run_git(top, "show", f"{base}:{place}")
    if shown.returncode:
        return None
    with temporary_folder("hpml-gate-") as folder:
        file = folder / registry.path.name
        file.write_bytes(shown.stdout)
        try:
            return read_registry(file)
        except HpmlError:
            return None


def find_loosened(base: Registry, head: Registry, profile: str) -> list[str]:
    """A line for each rule that `head` has loosened, of the points of this profile."""
    entries = {entry.name: entry for entry in head.enabled}
    found: list[str] = []
    for before in base.enabled:
        if after := entries.get(before.name):
            lines = [
                *_budgets(before, after),
                *_sampling(before, after),
                *_left_out(before, after, profile),
            ]
            found += [f"plugin {before.name}: {line}" for line in lines]
        else:
            found.append(f"plugin {before.name}: no longer in the registry, or not enabled")
    return found


def _budgets(before: PluginEntry, after: PluginEntry) -> Iterator[str]:
    old = budgets_of(before)
    new = budgets_of(after)
    for name in sorted(old.keys() | new.keys()):
        was, now = (budget_of(each, name, DEFAULT_BUDGET) for each in (old, new))
        if now > was:
            yield f"the allowed slow-down of {name} is raised from {was:g} to {now:g} %"


def _sampling(before: PluginEntry, after: PluginEntry) -> Iterator[str]:
    for name, larger_is_looser in _SAMPLING.items():
        was = getattr(before.sampling, name)
        now = getattr(after.sampling, name)
        if was == now:
            continue
        known = was is not None and now is not None
        if not known or (now > was) == larger_is_looser:
            old, new = (
                f"{each:g}" if each is not None else "the default" for each in (was, now)
            )
            yield f"sampling {name} was {old}, is {new}"


def _left_out(before: PluginEntry, after: PluginEntry, profile: str) -> Iterator[str]:
    if before.profiles.get(profile) != after.profiles.get(profile):
        yield f"profile {profile} chooses other points"
    for benchmark, grid in before.grid.items():
        for name, values in grid.items():
            kept = after.grid.get(benchmark, {}).get(name)
            if missing := [value for value in values if kept is None or value not in kept]:
                yield f"{benchmark} is no longer measured for {name}={missing[0]}"
    for benchmark, grid in after.grid.items():
        if added := sorted(grid.keys() - before.grid.get(benchmark, {}).keys()):
            yield f"the grid of {benchmark} is restricted: {', '.join(added)}"
    if before.timeout != after.timeout:
        yield f"the timeout was {before.timeout}, is {after.timeout}"
