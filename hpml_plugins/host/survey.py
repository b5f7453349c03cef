"""Loads every plugin of a registry in a forked process and returns, as plain data, what each of them offers.

The calling process imports no plugin: one that crashes, exits, hangs or changes its process is a value with an error.
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
from hpml_plugins.errors import HpmlError, PluginError, describe
from hpml_plugins.host.loading import LoadedPlugin, apply_registry, load_plugin, restored
from hpml_plugins.host.offers import Offers, ask, merge, own_sources
from hpml_plugins.isolation import Send, run_isolated
from hpml_plugins.model.benchmark import Benchmark, Metric, Params, Value, points_of
from hpml_plugins.registry import PluginEntry, Registry

#: Seconds that a plugin may take to be imported and asked; another number by the variable.
LIMIT, LIMIT_VARIABLE = 30.0, "HPML_IMPORT_LIMIT"
_FOREVER = 1e6

#: Why a point cannot be measured on this node, one reason each (`node.unmet` of a node).
Unmet = Callable[[Benchmark, Params], list[str]]


class BenchmarkInfo(msgspec.Struct, frozen=True):
    """What a Benchmark declares, without its functions, with the registry's grid and timeout.

    modules: of its Requires.  unmet: index of a point → why it cannot be measured on this node, where that was asked.
    """

    name: str
    version: str
    description: str
    metrics: tuple[Metric, ...]
    grid: dict[str, tuple[Value, ...]]
    timeout: float
    modules: tuple[str, ...] = ()
    unmet: dict[int, str] = {}

    def points(self) -> Iterator[Params]:
        """Every point of the grid, in asv's order."""
        return points_of(self.grid)


@dataclass(frozen=True)
class PluginInfo:
    """A plugin of the registry and what it offers; `error` is set, and nothing offered, where it is broken.

    index: of its entry in the registry.  where: file and line of the entry.  source: where the code came from.
    """

    index: int
    entry: PluginEntry
    where: str
    benchmarks: tuple[BenchmarkInfo, ...] = ()
    source: dict[str, str] = field(default_factory=dict)
    error: HpmlError | None = None


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

    benchmarks: tuple[BenchmarkInfo, ...] = ()
    source: dict[str, str] = {}
    offers: Offers = Offers()
    fault: _Fault | None = None


def survey(
    registry: Registry, *, facts: bool, unmet: Unmet | None, profile: str, limit: float | None = None
) -> tuple[tuple[PluginInfo, ...], Offers]:
    """Every enabled plugin in the registry's order, and what all of them offer together.

    facts: whether plugins are asked for facts of the node, which may take them time.  unmet, profile: say why the
    points of this profile cannot be measured here.  limit: s for each plugin. A plugin that ends or blocks the process
    is broken, and the others are loaded again without it.
    """
    limit = limit or float(os.environ.get(LIMIT_VARIABLE) or LIMIT)
    reports: dict[int, _Report] = {}
    fatal: dict[int, _Report] = {}
    while entries := [(index, entry) for index, entry in registry.enabled if index not in fatal]:
        found, fault, at = _load_in_fork(registry, entries, _Question(facts, unmet, profile), limit)
        reports = {index: report for (index, _), report in zip(entries, found, strict=False)}
        if not fault:
            break
        index, entry = entries[at]
        what = f"plugin {entry.name!r} cannot be loaded: the process that imported it {fault}"
        fatal[index] = _Report(fault=_Fault("PluginError", what, registry.at("plugins", index)))
    reports |= fatal
    plugins = []
    for index, entry in registry.enabled:
        report = reports[index]
        error = report.fault.error() if report.fault else None
        where = registry.at("plugins", index)
        plugins.append(PluginInfo(index, entry, where, report.benchmarks, report.source, error))
    return tuple(plugins), merge([(entry.name, reports[index].offers) for index, entry in registry.enabled])


@dataclass(frozen=True)
class _Question:
    facts: bool
    unmet: Unmet | None
    profile: str


class _StuckError(Exception):
    """A plugin takes longer than it may."""


def _load_in_fork(
    registry: Registry, entries: list[tuple[int, PluginEntry]], question: _Question, limit: float
) -> tuple[list[_Report], str, int]:
    """The reports of these plugins; how the process ended before all of them, and at which plugin."""
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


def _load_all(send: Send, registry: Registry, entries: list[tuple[int, PluginEntry]], question: _Question) -> None:
    gc.disable()  # a collection would copy every page that this process shares with its parent
    taken: dict[str, str] = {}
    loaded: list[tuple[LoadedPlugin, Offers]] = []
    for index, entry in entries:
        with restored():
            plugin = load_plugin(entry, registry.path.parent, registry.at("plugins", index))
            plugin = apply_registry(plugin, registry, index, taken)
            loaded.append((plugin, ask(plugin, facts=question.facts)))
        send("loaded", b"")
    offers = merge([(plugin.entry.name, own) for plugin, own in loaded])
    sources = {name: each for plugin, _ in reversed(loaded) for name, each in own_sources(plugin).items()}
    with offers.in_force(sources):
        for plugin, own in loaded:
            with restored():
                report = _report(plugin, own, question)
            send("report", report)


def _report(plugin: LoadedPlugin, offers: Offers, question: _Question) -> bytes:
    fault = _Fault.of(plugin.error) if plugin.error else None
    try:
        benchmarks = tuple(_info(plugin.entry, each, question) for each in plugin.benchmarks)
        return msgspec.msgpack.encode(_Report(benchmarks, plugin.source, offers, fault))
    except (TypeError, OverflowError, ValueError) as error:
        what = f"plugin {plugin.entry.name!r} declares a value that cannot be stored: {describe(error)}"
        return msgspec.msgpack.encode(_Report(fault=_Fault("PluginError", what, plugin.where)))


def _info(entry: PluginEntry, benchmark: Benchmark, question: _Question) -> BenchmarkInfo:
    unmet = {}
    if ask := question.unmet:
        for index, params in enumerate(benchmark.points()):
            if entry.chooses(question.profile, benchmark.name, params) and (reasons := ask(benchmark, params)):
                unmet[index] = "; ".join(reasons)
    return BenchmarkInfo(
        benchmark.name,
        benchmark.version,
        benchmark.description,
        tuple(benchmark.metrics),
        {name: tuple(values) for name, values in benchmark.grid.items()},
        float(benchmark.timeout),
        tuple(benchmark.requires.modules),
        unmet,
    )
