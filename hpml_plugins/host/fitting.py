"""Applying the registry to what a plugin offers: names held against the others', grids, timeouts, profiles."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import replace

from hpml_plugins.errors import HpmlError, PluginError, RegistryError
from hpml_plugins.host.loading import LoadedPlugin
from hpml_plugins.model.benchmark import Benchmark
from hpml_plugins.registry.reader import Registry
from hpml_plugins.registry.schema import ProfileChoice


def fit(plugin: LoadedPlugin, registry: Registry, index: int, taken: dict[str, str]) -> LoadedPlugin:
    """Apply the registry to what a plugin offers; its own faults and the registry's both end in `error`.

    taken: benchmark → the plugin that had the name first; what this one offers is added.
    """
    if plugin.error:
        return plugin
    name = plugin.entry.name
    try:
        offered = {benchmark.name: benchmark for benchmark in plugin.benchmarks}
        if len(offered) < len(plugin.benchmarks):
            raise PluginError(f"plugin {name!r} offers one benchmark name twice", plugin.where)
        for benchmark_name in offered:
            if benchmark_name in taken:
                raise PluginError(
                    f"benchmark {benchmark_name!r} is offered by plugin {taken[benchmark_name]!r} and by {name!r}; "
                    "rename or disable one",
                    plugin.where,
                )
        fitted = _override(plugin, registry, index, offered)
        for profile, choice in plugin.entry.profiles.items():
            _check_profile(name, profile, choice, fitted, registry, index)
    except HpmlError as error:
        return replace(plugin, benchmarks=(), error=error)
    taken.update(dict.fromkeys(fitted, name))
    return replace(plugin, benchmarks=tuple(fitted.values()))


def _override(
    plugin: LoadedPlugin, registry: Registry, index: int, offered: dict[str, Benchmark]
) -> dict[str, Benchmark]:
    fitted = dict(offered)
    for benchmark_name, override in plugin.entry.grid.items():
        where = registry.at("plugins", index, "grid", benchmark_name)
        if benchmark_name not in offered:
            raise RegistryError(
                f"plugin {plugin.entry.name!r} offers no benchmark {benchmark_name!r}; "
                f"{nearest(benchmark_name, offered)}",
                where,
            )
        for key in override:
            where = registry.at("plugins", index, "grid", benchmark_name, key)
            fitted[benchmark_name] = fitted[benchmark_name].with_grid({key: override[key]}, where)
    if plugin.entry.timeout is not None:
        fitted = {key: replace(value, timeout=plugin.entry.timeout) for key, value in fitted.items()}
    return fitted


def _check_profile(
    plugin: str,
    profile: str,
    choice: ProfileChoice,
    offered: dict[str, Benchmark],
    registry: Registry,
    index: int,
) -> None:
    for benchmark_name, values in choice.items():
        where = registry.at("plugins", index, "profiles", profile, benchmark_name)
        if benchmark_name not in offered:
            raise RegistryError(
                f"profile {profile!r} of {plugin!r}: no benchmark {benchmark_name!r}; "
                f"{nearest(benchmark_name, offered)}",
                where,
            )
        grid = offered[benchmark_name].grid
        for key, chosen in values.items() if isinstance(values, dict) else ():
            where = registry.at("plugins", index, "profiles", profile, benchmark_name, key)
            if key not in grid:
                raise RegistryError(
                    f"profile {profile!r} of {benchmark_name!r}: no parameter {key!r}; {nearest(key, grid)}",
                    where,
                )
            for value in chosen:
                if not is_one_of(value, grid[key]):
                    raise RegistryError(
                        f"profile {profile!r} of {benchmark_name!r}: {key} {value!r} is not in the grid "
                        f"({', '.join(map(str, grid[key]))}); a profile chooses points, it never adds any",
                        where,
                    )


def is_one_of(value: object, values: Iterable[object]) -> bool:
    """Membership that tells True from 1: YAML's `yes` must not choose a batch of one."""
    return any(value == other and isinstance(value, bool) == isinstance(other, bool) for other in values)


def nearest(name: str, known: Iterable[str]) -> str:
    """`did you mean …?` with the nearest name, or the list of the known ones."""
    names = list(known)
    near = difflib.get_close_matches(name, names, 1)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names) or 'none'}"
