"""The host: all plugins of a registry as data, with the registry's grids, timeouts and profiles
applied.

Plugins are loaded in a forked process, which returns plain data. The calling process imports none,
so a plugin that crashes, exits, hangs or modifies its process only results in an error value.
"""

from __future__ import annotations

import functools
import gc
import os
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from hpml_plugins import clocks
from hpml_plugins.errors import HpmlError, UsageError, describe, environment_number, nearest
from hpml_plugins.host.declared import Declared
from hpml_plugins.host.loading import LoadedPlugin, apply_registry, load_plugin, restored
from hpml_plugins.host.offers import Offers, ask_for_offers, merge_offers, own_sources
from hpml_plugins.isolation import Send, run_isolated, write_stack_before
from hpml_plugins.model.benchmark import Benchmark, Params
from hpml_plugins.model.data_source import LoadableData, use_sources, why_missing
from hpml_plugins.registry import EVERYTHING, PluginEntry, Registry

#: Seconds that a plugin may take to be imported and called.
LIMIT = 30.0
#: The environment variable that sets another limit.
LIMIT_VARIABLE = "HPML_IMPORT_LIMIT"
_FOREVER = 1e6

#: Why a point cannot be measured on this node, one text per reason (`node.unmet` of a node).
Unmet = Callable[[Benchmark, Params], list[str]]
#: Converts a benchmark and the registry's entry to plain data.
Declare = Callable[[Benchmark, PluginEntry], Declared]


@dataclass(frozen=True)
class Host:
    """The plugins of a registry, including broken ones, with the points chosen by a profile.

    offers: the data sets of all plugins of the registry.
    """

    registry: Registry
    plugins: tuple[LoadedPlugin, ...]
    offers: Offers

    @property
    def broken(self) -> list[LoadedPlugin]:
        """The plugins that could not be loaded, each with its error."""
        return [plugin for plugin in self.plugins if plugin.error]

    def benchmarks(self) -> Iterator[Declared]:
        """Every benchmark, in the registry's order."""
        for plugin in self.plugins:
            yield from plugin.declared

    def find(self, name: str) -> list[Declared]:
        """The benchmark of this name, or all benchmarks of the plugin of this name.

        Raises the plugin's own error if it is broken, UsageError with the nearest names if there is
        none.
        """
        every = list(self.benchmarks())
        found = [each for each in every if each.name == name] or self.of_plugin(name)
        if not found:
            known = sorted(
                {name for each in every for name in (each.plugin.name, each.name)}
            )
            raise UsageError(f"no benchmark or plugin {name!r}; {nearest(name, known)}")
        return found

    def of_plugin(self, name: str) -> list[Declared]:
        """The benchmarks of the plugin of this name. Raises its error if it is broken."""
        for plugin in self.broken:
            if plugin.entry.name == name and plugin.error:
                raise plugin.error
        return [each for each in self.benchmarks() if each.plugin.name == name]

    def load(self, name: str) -> LoadedPlugin:
        """Import the plugin of this name into this process. Use a separate process: a plugin may
        change its process permanently."""
        (entry,) = (entry for entry in self.registry.enabled if entry.name == name)
        return _load(self.registry, entry, {})


def make_host(
    registry: Registry, *, unmet: Unmet | None = None, profile: str = EVERYTHING
) -> Host:
    """Ask every enabled plugin, in a forked process, what it offers. A broken plugin is kept with
    its error.

    unmet: says why a point cannot be measured here; it is called in the forked process for the
    points of this profile, and fills `Declared.unmet`. A plugin that ends or blocks the process is
    broken, and the others are loaded again without it. Raises UsageError for a profile that no
    plugin of the registry defines.
    """
    if profile not in registry.profiles:
        raise UsageError(f"no profile {profile!r}; {nearest(profile, registry.profiles)}")

    def declare(benchmark: Benchmark, entry: PluginEntry) -> Declared:
        declared = Declared.of(benchmark, entry, profile)
        if unmet is None:
            return declared
        reasons = {
            index: "; ".join(unmet(benchmark, params))
            for index, params in declared.chosen_points().items()
        }
        return msgspec.structs.replace(
            declared, unmet={index: why for index, why in reasons.items() if why}
        )

    reports = _load_in_fork(registry, registry.enabled, declare)
    reports |= _load_broken_alone(registry, reports, declare)
    plugins = []
    for entry in registry.enabled:
        report = reports[entry.name]
        where = registry.at(entry.name)
        plugins.append(
            LoadedPlugin(
                entry, registry.folder, where, error=report.error, declared=report.declared
            )
        )
    offers = merge_offers(reports[entry.name].offers for entry in registry.enabled)
    return Host(registry, tuple(plugins), offers)


class _Report(msgspec.Struct, frozen=True):
    """The report of the forked process on one plugin. fault, where, trace: the error of a broken
    plugin.

    doubtful: whether a plugin imported earlier may have caused it.
    """

    declared: tuple[Declared, ...] = ()
    offers: Offers = Offers()
    fault: str = ""
    where: str = ""
    trace: str = ""
    doubtful: bool = False

    @property
    def error(self) -> HpmlError | None:
        """The error, with its trace for displayed tracebacks."""
        if not self.fault:
            return None
        error = HpmlError(self.fault, self.where)
        if self.trace:
            error.add_note(self.trace)
        return error


def _load_in_fork(
    registry: Registry,
    entries: Sequence[PluginEntry],
    declare: Declare,
    taken: Mapping[str, str] = {},
) -> dict[str, _Report]:
    """Plugin → what it offers. taken: see `apply_registry`.

    A plugin that ends or blocks the process is broken, and the others are loaded again.
    """
    limit = environment_number(LIMIT_VARIABLE, LIMIT)
    messages: list[bytes] = []
    since = clocks.monotonic()
    stuck = False

    def on_message(message: bytes) -> None:
        nonlocal since
        since = clocks.monotonic()
        messages.append(message)

    def watch() -> str:
        nonlocal stuck
        stuck = clocks.monotonic() - since > limit
        if stuck:
            return f"was not done after {limit:g} s ({LIMIT_VARIABLE} gives it longer)"
        return ""

    load = functools.partial(_load_all, registry, entries, declare, dict(taken), limit)
    fault = (
        run_isolated(load, _FOREVER, on_message, watch).fault
        or "ended with exit status 0 before it reported"
    )
    if len(messages) == 2 * len(entries):
        reports = (
            msgspec.msgpack.decode(each, type=_Report) for each in messages[len(entries) :]
        )
        return {entry.name: report for entry, report in zip(entries, reports, strict=True)}
    name = entries[len(messages) % len(entries)].name
    what = f"plugin {name!r} cannot be loaded: the process that imported it {fault}"
    others = [entry for entry in entries if entry.name != name]
    return {
        # do not repeat a plugin that hangs: it would take its time twice
        name: _Report(fault=what, where=registry.at(name), doubtful=not stuck),
        **_load_in_fork(registry, others, declare, taken),
    }


def _load_broken_alone(
    registry: Registry, reports: Mapping[str, _Report], declare: Declare
) -> dict[str, _Report]:
    """Load plugins that could not be imported again, each in a separate process: another plugin may
    have caused the error."""
    # nothing was imported before the first one
    broken = [entry for entry in registry.enabled[1:] if reports[entry.name].doubtful]
    taken = {
        declared.benchmark: name
        for name, report in reports.items()
        for declared in report.declared
    }
    found: dict[str, _Report] = {}
    for entry in broken:
        found |= _load_in_fork(registry, [entry], declare, taken)
        taken |= {each.benchmark: entry.name for each in found[entry.name].declared}
    return found


def _load_all(
    registry: Registry,
    entries: Sequence[PluginEntry],
    declare: Declare,
    taken: dict[str, str],
    limit: float,
    send: Send,
) -> None:
    """Send an empty message after loading each plugin. After all are loaded, so that their data
    sets are known, send each report."""
    gc.disable()  # a collection would copy every page that this process shares with its parent
    loaded: list[tuple[LoadedPlugin, Offers]] = []
    sources: dict[str, LoadableData] = {}
    missing: dict[str, str] = {}
    printed = os.dup(2)  # a plugin may close its own descriptor
    for entry in entries:
        write_stack_before(limit, printed)
        with restored():
            plugin = _load(registry, entry, taken)
            loaded.append((plugin, ask_for_offers(plugin)))
            for name, source in own_sources(plugin).items():
                # called here, so that a fault is attributed to this plugin
                if sources.setdefault(name, source) is source:
                    missing[name] = why_missing(source)
        send(b"")
    with use_sources(sources, missing):
        for entry, (plugin, own) in zip(entries, loaded, strict=True):
            write_stack_before(limit, printed)
            with restored():
                report = _report(entry, plugin, own, declare)
            send(report)


def _load(registry: Registry, entry: PluginEntry, taken: dict[str, str]) -> LoadedPlugin:
    return apply_registry(
        load_plugin(entry, registry.folder, registry.at(entry.name)), entry, registry, taken
    )


def _report(
    entry: PluginEntry, plugin: LoadedPlugin, offers: Offers, declare: Declare
) -> bytes:
    try:
        declared = tuple(declare(each, entry) for each in plugin.benchmarks)
        report = _Report(declared, offers)
        if plugin.error:
            cause = plugin.error.__cause__
            trace = "".join(traceback.format_exception(cause)) if cause else ""
            trace = trace.encode(errors="backslashreplace").decode()
            doubtful = plugin.hooks is None  # not if the registry or its names are at fault
            report = _Report(
                declared, offers, plugin.error.what, plugin.error.where, trace, doubtful
            )
        encoded = msgspec.msgpack.encode(report)
        # decode here, so that it cannot fail in the calling process
        msgspec.msgpack.decode(encoded, type=_Report)
        return encoded
    except Exception as error:
        what = f"plugin {entry.name!r} declares a value that cannot be stored: {describe(error)}"
        return msgspec.msgpack.encode(_Report(fault=what, where=plugin.where))
