"""The host: every plugin of a registry, loaded, with the registry's grids, timeouts and profiles applied."""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field

from hpml_plugins.errors import UsageError
from hpml_plugins.host.fitting import fit, is_one_of, nearest
from hpml_plugins.host.guard import put_back
from hpml_plugins.host.loading import LoadedPlugin, load_plugin
from hpml_plugins.host.offers import Offers
from hpml_plugins.host.survey import Survey, survey
from hpml_plugins.model.benchmark import Benchmark, Params
from hpml_plugins.registry.reader import EVERYTHING, Registry


@dataclass(frozen=True)
class Host:
    """The loaded plugins of a registry, broken ones included.

    offers: what plugins offer beside benchmarks and figures, of all plugins of the registry.
    """

    registry: Registry
    plugins: tuple[LoadedPlugin, ...]
    offers: Offers = field(default_factory=Offers)

    @property
    def broken(self) -> list[LoadedPlugin]:
        """The plugins that could not be loaded, each with its error."""
        return [plugin for plugin in self.plugins if plugin.error]

    def benchmarks(self) -> Iterator[tuple[LoadedPlugin, Benchmark]]:
        """Every benchmark with the plugin that offers it, in the registry's order."""
        for plugin in self.plugins:
            for benchmark in plugin.benchmarks:
                yield plugin, benchmark

    def find(self, name: str) -> list[tuple[LoadedPlugin, Benchmark]]:
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

    def points(self, plugin: LoadedPlugin, benchmark: Benchmark, profile: str = EVERYTHING) -> list[Params]:
        """The points of a benchmark that a profile chooses. Raises UsageError for a profile that nobody defines."""
        self.check_profile(profile)
        choice = plugin.entry.choice(profile, benchmark.name)
        if choice is None:
            return []
        return [
            params
            for params in benchmark.points()
            if all(is_one_of(params[name], values) for name, values in choice.items())
        ]

    def check_profile(self, profile: str) -> None:
        """Raise UsageError, with the nearest names, for a profile that no plugin of the registry defines."""
        if profile not in self.registry.profiles:
            raise UsageError(f"no profile {profile!r}; {nearest(profile, self.registry.profiles)}")


def make_host(registry: Registry, *, facts: bool = False) -> Host:
    """Load every enabled plugin. A broken one takes no other down: it is kept with its error.

    All are tried first in a process of their own (`host.survey`), so that one that ends or blocks the process is broken
    too.  facts: whether plugins are asked for facts of the node.
    """
    return _load(registry, survey(registry, facts=facts))


def make_host_for(registry: Registry, name: str) -> Host:
    """The host with the one plugin that has this name or offers the benchmark of this name, to measure in.

    No other is imported into this process, so that nothing that it does when imported can reach a point. A name that
    nobody has gives the whole host, whose `find` says what is near.
    """
    surveyed = survey(registry, facts=True)
    offering = surveyed.offering(name)
    return _load(registry, surveyed, None if offering is None else {offering})


def _load(registry: Registry, surveyed: Survey, only: Container[int] | None = None) -> Host:
    taken: dict[str, str] = {}
    plugins = []
    chosen = [(index, entry) for index, entry in registry.enabled if only is None or index in only]
    for index, entry in chosen:
        where = registry.at("plugins", index)
        if error := surveyed.error(index):
            plugins.append(LoadedPlugin(entry, where, error=error))
            continue
        with put_back() if len(chosen) > 1 else nullcontext():
            plugins.append(fit(load_plugin(entry, registry.path.parent, where), registry, index, taken))
    return Host(registry, tuple(plugins), surveyed.offers)


__all__ = ["Host", "is_one_of", "make_host", "make_host_for", "nearest"]
