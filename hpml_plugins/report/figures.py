"""Asking plugins for their figures, and making the tables. A plugin that raises is named and costs its own figure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from hpml_plugins.errors import PluginError, describe
from hpml_plugins.host import LoadedPlugin
from hpml_plugins.model.figure import Figure, Table
from hpml_plugins.model.record import Record


@dataclass(frozen=True)
class Drawable:
    """A figure with its table, or with the error that its plugin raised."""

    plugin: str
    figure: Figure
    table: Table
    error: PluginError | None = None


def collect(plugin: LoadedPlugin) -> list[Figure]:
    """The figures of a plugin. Raises PluginError when it raises, or offers what is no Figure."""
    name = plugin.entry.name
    if plugin.hooks is None:
        return []
    try:
        figures = [figure for answer in plugin.hooks.hpml_figures() for figure in answer]
    except Exception as error:
        raise PluginError(f"hpml_figures of plugin {name!r}: {describe(error)}", plugin.where) from error
    own = {benchmark.name for benchmark in plugin.benchmarks}
    seen: set[str] = set()
    for figure in figures:
        if not isinstance(figure, Figure):
            raise PluginError(f"hpml_figures of plugin {name!r} returned {type(figure).__name__}, not Figures")
        if figure.name in seen:
            raise PluginError(f"plugin {name!r} offers two figures called {figure.name!r}; rename one", plugin.where)
        if strangers := [each for each in figure.benchmarks if each not in own]:
            raise PluginError(
                f"figure {figure.name!r} of plugin {name!r} is drawn from {strangers[0]!r}, which is none of its "
                f"benchmarks ({', '.join(sorted(own))})",
                plugin.where,
            )
        seen.add(figure.name)
    return figures


def tabulate(plugin: LoadedPlugin, figures: Sequence[Figure], records: Sequence[Record]) -> Iterator[Drawable]:
    """Each figure with its table.  records: as `records.newest` gives them, of any benchmarks."""
    for figure in figures:
        own = [record for record in records if record.benchmark in figure.benchmarks]
        try:
            yield Drawable(plugin.entry.name, figure, figure.table(own) if own else Table({}))
        except Exception as error:
            fault = PluginError(f"figure {figure.name!r} of plugin {plugin.entry.name!r}: {describe(error)}")
            fault.__cause__ = error
            yield Drawable(plugin.entry.name, figure, Table({}), fault)


def versions(plugins: Iterable[LoadedPlugin]) -> dict[str, str]:
    """Benchmark → version, of all that these plugins offer."""
    return {benchmark.name: benchmark.version for plugin in plugins for benchmark in plugin.benchmarks}
