"""The host: every plugin of a registry as data, with the registry's grids, timeouts and profiles applied.

Plugins are loaded in a forked process, which returns plain data. The calling process imports none: one that crashes,
exits, hangs or changes its process is a value with an error.
"""

from __future__ import annotations

import gc
import os
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec

from hpml_plugins import errors
from hpml_plugins.errors import HpmlError, PluginError, UsageError, describe, nearest
from hpml_plugins.host.declared import Declared
from hpml_plugins.host.loading import LoadedPlugin, apply_registry, load_plugin, restored
from hpml_plugins.host.offers import Offers, ask, merge, own_sources
from hpml_plugins.isolation import Send, run_isolated
from hpml_plugins.model.benchmark import Benchmark, Params
from hpml_plugins.registry import EVERYTHING, PluginEntry, Registry

#: Seconds that a plugin may take to be imported and asked; another number by the variable.
LIMIT, LIMIT_VARIABLE = 30.0, "HPML_IMPORT_LIMIT"
_FOREVER = 1e6

#: Why a point cannot be measured on this node, one reason each (`node.unmet` of a node).
Unmet = Callable[[Benchmark, Params], list[str]]


@dataclass(frozen=True)
class Host:
    """The plugins of a registry, broken ones included, as a profile chooses their points.

    offers: what plugins offer beside benchmarks and figures, of all plugins of the registry.
    """

    registry: Registry
    plugins: tuple[LoadedPlugin, ...]
    offers: Offers = field(default_factory=Offers)

    @property
    def broken(self) -> list[LoadedPlugin]:
        """The plugins that could not be loaded, each with its error."""
        return [plugin for plugin in self.plugins if plugin.error]

    def benchmarks(self) -> Iterator[tuple[LoadedPlugin, Declared]]:
        """Every benchmark with the plugin that offers it, in the registry's order."""
        for plugin in self.plugins:
            for benchmark in plugin.declared:
                yield plugin, benchmark

    def find(self, name: str) -> list[tuple[LoadedPlugin, Declared]]:
        """The benchmark of this name, or all those of the plugin of this name.

        Raises the plugin's own error where it is broken, UsageError with the nearest names where there is none.
        """
        for plugin in self.broken:
            if plugin.entry.name == name and plugin.error:
                raise plugin.error
        pairs = list(self.benchmarks())
        if found := [(plugin, benchmark) for plugin, benchmark in pairs if benchmark.name == name]:
            return found
        if found := [(plugin, benchmark) for plugin, benchmark in pairs if plugin.entry.name == name]:
            return found
        known = sorted({name for plugin, benchmark in pairs for name in (plugin.entry.name, benchmark.name)})
        raise UsageError(f"no benchmark or plugin {name!r}; {nearest(name, known)}")

    def load(self, plugin: LoadedPlugin) -> LoadedPlugin:
        """Import the plugin into this process, to run its code: its benchmarks with the registry applied, its hooks.

        A fault ends in `error`. What it does to the process stays done: it is the only plugin that a process of points
        imports.
        """
        if plugin.error:
            return plugin
        return apply_registry(load_plugin(plugin.entry, self.registry.path.parent, plugin.where), self.registry, {})

    def load_all(self) -> list[LoadedPlugin]:
        """Import every plugin into this process, for their figures, and restore what they change of it."""
        loaded = []
        for plugin in self.plugins:
            with restored():
                loaded.append(self.load(plugin))
        return loaded


def make_host(
    registry: Registry, *, facts: bool = False, unmet: Unmet | None = None, profile: str = EVERYTHING
) -> Host:
    """Ask every enabled plugin, in a forked process, what it offers. A broken one is kept with its error.

    facts: whether plugins are asked for facts of the node, which may take them time.  unmet: says why a point cannot be
    measured here; it is called in the forked process for the points of this profile, and fills `Declared.unmet`. A
    plugin that ends or blocks the process is broken, and the others are loaded again without it. Raises UsageError for
    a profile that no plugin of the registry defines.
    """
    if profile not in registry.profiles:
        raise UsageError(f"no profile {profile!r}; {nearest(profile, registry.profiles)}")
    reports: dict[str, _Report] = {}
    fatal: dict[str, _Report] = {}
    while entries := [entry for entry in registry.enabled if entry.name not in fatal]:
        found, fault, at = _load_in_fork(registry, entries, _Question(facts, unmet, profile))
        reports = {entry.name: report for entry, report in zip(entries, found, strict=False)}
        if not fault:
            break
        name = entries[at].name
        what = f"plugin {name!r} cannot be loaded: the process that imported it {fault}"
        fatal[name] = _Report(fault=_Fault("PluginError", what, registry.at(name)))
    reports |= fatal
    plugins = []
    for entry in registry.enabled:
        report = reports[entry.name]
        error = report.fault.error() if report.fault else None
        plugins.append(
            LoadedPlugin(entry, registry.at(entry.name), source=report.source, error=error, declared=report.declared)
        )
    offers = merge([(entry.name, reports[entry.name].offers) for entry in registry.enabled])
    return Host(registry, tuple(plugins), offers)


class _Fault(msgspec.Struct, frozen=True):
    """An error of ours on its way between processes. kind: its class.  trace: for --debug."""

    kind: str
    what: str
    where: str
    trace: str = ""

    @classmethod
    def of(cls, error: HpmlError) -> _Fault:
        cause = error.__cause__
        trace = "".join(traceback.format_exception(cause)) if cause else ""
        return cls(type(error).__name__, error.what, error.where, trace)

    def error(self) -> HpmlError:
        """The error again; its trace is shown where tracebacks are."""
        found: HpmlError = getattr(errors, self.kind, PluginError)(self.what, self.where)
        if self.trace:
            found.add_note(self.trace)
        return found


class _Report(msgspec.Struct, frozen=True):
    """What the forked process found out about one plugin."""

    declared: tuple[Declared, ...] = ()
    source: dict[str, str] = {}
    offers: Offers = Offers()
    fault: _Fault | None = None


@dataclass(frozen=True)
class _Question:
    facts: bool
    unmet: Unmet | None
    profile: str


class _StuckError(Exception):
    """A plugin takes longer than it may."""


def _load_in_fork(
    registry: Registry, entries: list[PluginEntry], question: _Question
) -> tuple[list[_Report], str, int]:
    """The reports of these plugins; how the process ended before all of them, and at which plugin."""
    limit = float(os.environ.get(LIMIT_VARIABLE) or LIMIT)
    reports: list[_Report] = []
    done, since = 0, time.monotonic()

    def on_message(kind: str, payload: bytes) -> None:
        nonlocal done, since
        done, since = done + (kind in ("loaded", "report")), time.monotonic()
        if kind == "report":
            reports.append(msgspec.msgpack.decode(payload, type=_Report))

    def watch() -> None:
        if time.monotonic() - since > limit:
            raise _StuckError

    try:
        outcome = run_isolated(lambda send: _load_all(send, registry, entries, question), _FOREVER, on_message, watch)
    except _StuckError:
        fault = f"was not done after {limit:g} s ({LIMIT_VARIABLE} gives it longer)"
    else:
        complete = len(reports) == len(entries)
        fault = "" if complete else outcome.fault or "ended with exit status 0 before it reported"
    return reports, fault, done % len(entries)


def _load_all(send: Send, registry: Registry, entries: list[PluginEntry], question: _Question) -> None:
    gc.disable()  # a collection would copy every page that this process shares with its parent
    taken: dict[str, str] = {}
    loaded: list[tuple[LoadedPlugin, Offers]] = []
    for entry in entries:
        with restored():
            plugin = load_plugin(entry, registry.path.parent, registry.at(entry.name))
            plugin = apply_registry(plugin, registry, taken)
            loaded.append((plugin, ask(plugin, facts=question.facts)))
        send("loaded", b"")
    offers = merge([(plugin.entry.name, own) for plugin, own in loaded])
    sources = {name: each for plugin, _ in reversed(loaded) for name, each in own_sources(plugin).items()}
    with offers.in_force(sources):
        for entry, (plugin, own) in zip(entries, loaded, strict=True):
            with restored():
                report = _report(entry, plugin, own, question)
            send("report", report)


def _report(entry: PluginEntry, plugin: LoadedPlugin, offers: Offers, question: _Question) -> bytes:
    fault = _Fault.of(plugin.error) if plugin.error else None
    try:
        declared = tuple(_declare(each, entry, question) for each in plugin.benchmarks)
        return msgspec.msgpack.encode(_Report(declared, plugin.source, offers, fault))
    except (TypeError, OverflowError, ValueError) as error:
        what = f"plugin {plugin.entry.name!r} declares a value that cannot be stored: {describe(error)}"
        return msgspec.msgpack.encode(_Report(fault=_Fault("PluginError", what, plugin.where)))


def _declare(benchmark: Benchmark, entry: PluginEntry, question: _Question) -> Declared:
    declared = Declared.of(benchmark, entry, question.profile)
    if question.unmet is None:
        return declared
    unmet = {
        index: "; ".join(reasons)
        for index, params in enumerate(declared.points())
        if declared.is_chosen(params) and (reasons := question.unmet(benchmark, params))
    }
    return msgspec.structs.replace(declared, unmet=unmet)
