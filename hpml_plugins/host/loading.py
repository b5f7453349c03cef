"""Load one plugin into this process, and apply the registry to what it offers."""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import importlib.util
import itertools
import os
import sys
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pluggy

from hpml_plugins import hookspecs
from hpml_plugins.errors import DefinitionError, HpmlError, RegistryError, explain, nearest
from hpml_plugins.host.declared import Declared
from hpml_plugins.host.locating import GROUP, check_pins, entry_points, locate
from hpml_plugins.model.benchmark import Benchmark
from hpml_plugins.registry import PluginEntry, PluginSource, Registry
from hpml_plugins.registry.reader import OTHERS, ProfileChoice, is_one_of

#: The most values that a hook may return: an endless iterator would fill the memory.
MOST_OFFERED = 10_000


@dataclass(frozen=True)
class LoadedPlugin:
    """A plugin and what it offers. If it is broken, `error` is set and nothing is offered.

    folder: of the registry.  where: file and line of its entry.  benchmarks, hooks: if it was
    imported into this process.  declared: its benchmarks as data, if the host imported it in
    another process.
    """

    entry: PluginSource
    folder: Path
    where: str
    benchmarks: tuple[Benchmark, ...] = ()
    error: HpmlError | None = None
    hooks: Any = None
    declared: tuple[Declared, ...] = ()

    @functools.cached_property
    def source(self) -> dict[str, str]:
        """Where the code comes from, for Records: the declared source, distribution, version,
        hash."""
        origin = locate(self.entry, self.folder)
        found = {
            "distribution": origin.distribution,
            "version": origin.version,
            "sha256": origin.sha256,
        }
        return {
            **self.entry.sources,
            **{key: value for key, value in found.items() if value},
        }

    def implements(self, hook: str) -> bool:
        """Whether it implements this hook; False if it is not imported in this process."""
        return bool(self.hooks and getattr(self.hooks, hook).get_hookimpls())

    def offered(self, hook: str, kind: Any) -> list[Any]:
        """What its hook returned, as a list; empty without the hook, or if it is not imported in
        this process.

        kind: the type of each value. Raises DefinitionError, with the line of the hook, for another
        type, and whatever the plugin raises.
        """
        if not self.implements(hook):
            return []
        caller = getattr(self.hooks, hook)
        found: list[Any] = []
        strange: list[Any] = []
        for given in caller() or [None]:  # pluggy omits None
            if isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping):
                found += itertools.islice(given, MOST_OFFERED + 1)
            else:
                strange.append(given)
        strange += [each for each in found if not isinstance(each, kind)]
        if not strange and len(found) <= MOST_OFFERED:
            return found
        what = type(strange[0]).__name__ if strange else f"more than {MOST_OFFERED} values"
        code = caller.get_hookimpls()[0].function.__code__
        line = f"{code.co_filename}:{code.co_firstlineno}"
        raise DefinitionError(
            f"returned {what}, not a list of {kind.__name__} values", line
        )


def load_plugin(entry: PluginSource, folder: Path, where: str = "") -> LoadedPlugin:
    """Check the pins of the plugin, import it and call its hook.  folder: of the registry.

    A fault of the plugin is stored in `error`, never raised. Its output meanwhile goes to stderr,
    because stdout may be a table or JSON.
    """
    folder = folder.resolve()  # the plugin may change the working directory
    try:
        check_pins(entry, folder)
        with redirect_stdout(sys.stderr):
            plugin = LoadedPlugin(
                entry, folder, where, hooks=_hooks(entry.name, _import(entry, folder))
            )
            return replace(
                plugin, benchmarks=tuple(plugin.offered("hpml_benchmarks", Benchmark))
            )
    except HpmlError as error:
        fault = HpmlError(f"plugin {entry.name!r}: {error.what}", error.where or where)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        what, line = explain(error)
        fault = HpmlError(f"plugin {entry.name!r} cannot be loaded: {what}", line or where)
        fault.__cause__ = error
    return LoadedPlugin(entry, folder, where, error=fault)


def _import(entry: PluginSource, folder: Path) -> Any:
    if entry.module is not None:
        try:
            return importlib.import_module(entry.module)
        except ModuleNotFoundError as error:
            raise HpmlError(
                f"module {entry.module!r} does not import: {error}; install it or correct the name"
            ) from error
    if entry.entry_point is not None:
        found = entry_points()
        if entry.entry_point not in found.names:
            known = ", ".join(sorted(found.names)) or "none installed"
            raise HpmlError(
                f"no entry point {entry.entry_point!r} in group {GROUP!r} (there: {known})"
            )
        return found[entry.entry_point].load()
    path = (folder / str(entry.path)).resolve()
    if not path.is_file():
        raise HpmlError(f"no file {entry.path!r} beside the registry; correct the path")
    name = f"hpml_file_{entry.name}"
    loader = _AlwaysFromSource(name, str(path)) if path.suffix == ".py" else None
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None or spec.loader is None:
        raise HpmlError(f"{entry.path!r} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    # before execution, as import does: dataclasses and pickling look up the module
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


class _AlwaysFromSource(importlib.machinery.SourceFileLoader):
    """Loads a plugin's file without cached byte code, which can be wrong: after a second edit
    within a second, or truncated by a file size limit that another plugin has set."""

    def get_code(self, fullname: str) -> types.CodeType:
        """The code of the file in its current state."""
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def _hooks(name: str, module: Any) -> Any:
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    manager.register(module, name)
    manager.check_pending()
    if not manager.get_hookcallers(module):
        raise HpmlError("implements no hook; mark `def hpml_benchmarks()` with `@hookimpl`")
    return manager.hook


def apply_registry(
    plugin: LoadedPlugin, entry: PluginEntry, registry: Registry, taken: dict[str, str]
) -> LoadedPlugin:
    """Check the names of a plugin's benchmarks and its entry, apply its grids and timeout; faults
    are stored in `error`.

    taken: benchmark → the plugin that had the name first; these benchmarks are added.
    """
    if plugin.error:
        return plugin
    name = entry.name
    at = partial(registry.at, name)
    try:
        benchmarks = {benchmark.name: benchmark for benchmark in plugin.benchmarks}
        if len(benchmarks) < len(plugin.benchmarks):
            raise HpmlError(
                f"plugin {name!r} offers one benchmark name twice", plugin.where
            )
        for each in benchmarks:
            if each in taken:
                other = f"benchmark {each!r} is offered by plugin {taken[each]!r} and by {name!r}"
                raise HpmlError(f"{other}; rename or disable one", plugin.where)
        _override_grids(entry, benchmarks, at)
        for profile, choice in entry.profiles.items():
            _check_profile(profile, choice, entry, benchmarks, at)
        _check_gate(entry, benchmarks, at)
    except HpmlError as error:
        return replace(plugin, benchmarks=(), error=error)
    taken.update(dict.fromkeys(benchmarks, name))
    changed = [
        replace(each, timeout=entry.timeout) if entry.timeout else each
        for each in benchmarks.values()
    ]
    return replace(plugin, benchmarks=tuple(changed))


def _override_grids(
    entry: PluginEntry, benchmarks: dict[str, Benchmark], at: Callable[..., str]
) -> None:
    for name, override in entry.grid.items():
        _refuse_unknown(
            name, benchmarks, f"plugin {entry.name!r} offers no benchmark", at("grid", name)
        )
        for key, values in override.items():
            benchmarks[name] = benchmarks[name].with_grid(
                {key: values}, at("grid", name, key)
            )


def _check_profile(
    profile: str,
    choice: ProfileChoice,
    entry: PluginEntry,
    benchmarks: dict[str, Benchmark],
    at: Callable[..., str],
) -> None:
    what = f"profile {profile!r} of"
    for name, values in choice.items():
        if name == OTHERS and isinstance(values, bool):
            continue
        where = at("profiles", profile, name)
        _refuse_unknown(name, benchmarks, f"{what} {entry.name!r}: no benchmark", where)
        grid = benchmarks[name].grid
        for key, chosen in values.items() if isinstance(values, dict) else ():
            where = at("profiles", profile, name, key)
            _refuse_unknown(key, grid, f"{what} {name!r}: no parameter", where)
            if unknown := [value for value in chosen if not is_one_of(value, grid[key])]:
                raise RegistryError(
                    f"{what} {name!r}: {key} {unknown[0]!r} is not in the grid"
                    f" ({', '.join(map(str, grid[key]))}); a profile chooses points, it never"
                    " adds any",
                    where,
                )


def _check_gate(
    entry: PluginEntry, benchmarks: dict[str, Benchmark], at: Callable[..., str]
) -> None:
    for name, budgets in entry.gate.items():
        what = f"gate of {entry.name!r}: no benchmark"
        _refuse_unknown(name, benchmarks, what, at("gate", name))
        ranked = [metric.name for metric in benchmarks[name].metrics if metric.direction]
        for metric in budgets if isinstance(budgets, dict) else ():
            _refuse_unknown(
                metric,
                ranked,
                f"gate of {name!r}: no metric with a direction",
                at("gate", name, metric),
            )


def _refuse_unknown(name: str, known: Collection[str], what: str, where: str) -> None:
    if name not in known:
        raise RegistryError(f"{what} {name!r}; {nearest(name, known)}", where)


@contextmanager
def restored() -> Iterator[None]:
    """Restore what importing a plugin may change in the process, for the next plugin loaded into
    it.

    Functions of other modules, signal handlers and threads are not restored: points are measured in
    processes that import one plugin.
    """
    folder = os.open(".", os.O_RDONLY)
    umask = os.umask(0)
    os.umask(umask)
    variables = dict(os.environ)
    path = list(sys.path)
    streams = sys.stdin, sys.stdout, sys.stderr
    try:
        yield
    finally:
        os.fchdir(folder)  # by descriptor: the folder may have been removed
        os.close(folder)
        os.umask(umask)
        sys.path[:] = path
        sys.stdin, sys.stdout, sys.stderr = streams
        if variables != os.environ:
            os.environ.clear()
            os.environ.update(variables)
