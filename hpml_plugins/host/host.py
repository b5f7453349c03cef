"""The host: every plugin of a registry as data, with the registry's grids, timeouts and profiles applied."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from hpml_plugins.errors import UsageError, nearest
from hpml_plugins.host.loading import LoadedPlugin, apply_registry, load_plugin, restored
from hpml_plugins.host.offers import Offers
from hpml_plugins.host.survey import BenchmarkInfo, PluginInfo, Unmet, survey
from hpml_plugins.model.benchmark import Params
from hpml_plugins.registry import EVERYTHING, Registry


@dataclass(frozen=True)
class Host:
    """The plugins of a registry, broken ones included.

    offers: what plugins offer beside benchmarks and figures, of all plugins of the registry.
    """

    registry: Registry
    plugins: tuple[PluginInfo, ...]
    offers: Offers = field(default_factory=Offers)

    @property
    def broken(self) -> list[PluginInfo]:
        """The plugins that could not be loaded, each with its error."""
        return [plugin for plugin in self.plugins if plugin.error]

    def benchmarks(self) -> Iterator[tuple[PluginInfo, BenchmarkInfo]]:
        """Every benchmark with the plugin that offers it, in the registry's order."""
        for plugin in self.plugins:
            for benchmark in plugin.benchmarks:
                yield plugin, benchmark

    def find(self, name: str) -> list[tuple[PluginInfo, BenchmarkInfo]]:
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

    def points(self, plugin: PluginInfo, benchmark: BenchmarkInfo, profile: str = EVERYTHING) -> list[Params]:
        """The points of a benchmark that a profile chooses. Raises UsageError for a profile that nobody defines."""
        self.check_profile(profile)
        return [params for params in benchmark.points() if plugin.entry.chooses(profile, benchmark.name, params)]

    def check_profile(self, profile: str) -> None:
        """Raise UsageError, with the nearest names, for a profile that no plugin of the registry defines."""
        if profile not in self.registry.profiles:
            raise UsageError(f"no profile {profile!r}; {nearest(profile, self.registry.profiles)}")

    def load(self, plugin: PluginInfo) -> LoadedPlugin:
        """Import the plugin into this process, to run its code: its benchmarks with the registry applied, its hooks.

        A fault ends in `error`. What it does to the process stays done: it is the only plugin that a process of points
        imports.
        """
        if plugin.error:
            return LoadedPlugin(plugin.entry, plugin.where, error=plugin.error)
        loaded = load_plugin(plugin.entry, self.registry.path.parent, plugin.where)
        return apply_registry(loaded, self.registry, plugin.index, {})

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

    facts: whether plugins are asked for facts of the node.  unmet: says why a point cannot be measured here; it is
    called in the forked process for the points of this profile, and fills `BenchmarkInfo.unmet`.
    """
    plugins, offers = survey(registry, facts=facts, unmet=unmet, profile=profile)
    return Host(registry, plugins, offers)
