"""Every plugin loaded once in a process of its own, to learn what it offers and whether loading it can be survived."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Sequence

import msgspec

from hpml_plugins import errors
from hpml_plugins.errors import HpmlError, PluginError
from hpml_plugins.host.fitting import fit
from hpml_plugins.host.guard import put_back
from hpml_plugins.host.loading import load_plugin
from hpml_plugins.host.offers import Offered, Offers, ask, merge
from hpml_plugins.isolation import Send, run_isolated
from hpml_plugins.registry.reader import Registry
from hpml_plugins.registry.schema import PluginEntry

#: Seconds that a plugin may take to be imported and asked; another number by the variable.
LIMIT, LIMIT_VARIABLE = 30.0, "HPML_IMPORT_LIMIT"
_FOREVER = 1e6


class Fault(msgspec.Struct, frozen=True):
    """An error of ours on its way between processes. kind: its class.  trace: for --debug."""

    kind: str
    what: str
    where: str
    trace: str = ""

    def error(self) -> HpmlError:
        """The error again; its trace is shown where tracebacks are."""
        found: HpmlError = getattr(errors, self.kind, PluginError)(self.what, self.where)
        if self.trace:
            found.add_note(self.trace)
        return found


class Surveyed(msgspec.Struct, frozen=True):
    """What loading one plugin gave. index: of its entry in the registry."""

    index: int
    plugin: str
    benchmarks: list[str] = []
    offered: Offered = Offered()
    fault: Fault | None = None


class Survey(msgspec.Struct, frozen=True):
    """What loading every plugin gave, and what they offer together."""

    plugins: list[Surveyed]
    offers: Offers

    def error(self, index: int) -> HpmlError | None:
        """Why the plugin of this entry is broken, if it is."""
        return next((each.fault.error() for each in self.plugins if each.index == index and each.fault), None)

    def offering(self, name: str) -> int | None:
        """The index of the entry that has this name, or that offers the benchmark of this name."""
        benchmark = [each.index for each in self.plugins if name in each.benchmarks]
        plugin = [each.index for each in self.plugins if name == each.plugin]
        broken = [each.index for each in self.plugins if name == each.plugin and each.fault]
        return next(iter([*broken, *benchmark, *plugin]), None)


def survey(registry: Registry, *, facts: bool = False, limit: float | None = None) -> Survey:
    """Load every enabled plugin in one forked process, in order; one that ends or blocks it is broken, the rest go on.

    facts: whether plugins are asked for facts of the node, which may take them time.  limit: s for each plugin.
    """
    limit = limit or float(os.environ.get(LIMIT_VARIABLE) or LIMIT)
    found: list[Surveyed] = []
    left = list(registry.enabled)
    while left:
        done = _load_in_one_process(registry, left, found, facts, limit)
        found += done
        left = left[len(done) :]
    return Survey(found, merge([(registry.plugins[each.index].source, each.offered) for each in found]))


class _StuckError(Exception):
    """A plugin takes longer than it may."""


def _load_in_one_process(
    registry: Registry,
    entries: Sequence[tuple[int, PluginEntry]],
    before: Sequence[Surveyed],
    facts: bool,
    limit: float,
) -> list[Surveyed]:
    """What loading gave until the process ended; the one at which it did is the last."""
    found: list[Surveyed] = []
    since = time.monotonic()

    def on_message(kind: str, payload: bytes) -> None:
        nonlocal since
        if kind == "loaded":
            since = time.monotonic()
            found.append(msgspec.json.decode(payload, type=Surveyed))

    def watch() -> None:
        if time.monotonic() - since > limit:
            raise _StuckError

    try:
        outcome = run_isolated(
            lambda send: _load_here(send, registry, entries, before, facts), _FOREVER, on_message, watch
        )
        fault = outcome.fault or "ended with exit status 0 before it reported"
    except _StuckError:
        fault = f"was not done after {limit:g} s ({LIMIT_VARIABLE} gives it longer)"
    if len(found) < len(entries):
        index, entry = entries[len(found)]
        what = f"plugin {entry.name!r} cannot be loaded: the process that imported it {fault}"
        where = registry.at("plugins", index)
        found.append(Surveyed(index, entry.name, fault=Fault("PluginError", what, where)))
    return found


def _load_here(
    send: Send,
    registry: Registry,
    entries: Sequence[tuple[int, PluginEntry]],
    before: Sequence[Surveyed],
    facts: bool,
) -> None:
    taken = {name: each.plugin for each in before for name in each.benchmarks}
    for index, entry in entries:
        with put_back():
            loaded = load_plugin(entry, registry.path.parent, registry.at("plugins", index))
            plugin = fit(loaded, registry, index, taken)
            names = [benchmark.name for benchmark in plugin.benchmarks]
            answer = Surveyed(index, entry.name, names, ask(plugin, facts=facts), _fault(plugin.error))
        send("loaded", msgspec.json.encode(answer))


def _fault(error: HpmlError | None) -> Fault | None:
    if error is None:
        return None
    cause = error.__cause__
    trace = "".join(traceback.format_exception(cause)) if cause else ""
    return Fault(type(error).__name__, error.what, error.where, trace)
