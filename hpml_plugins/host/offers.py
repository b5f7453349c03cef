"""Data sets that plugins offer, by name, so that processes that import none of those plugins can
find them.

Plugins are asked in the registry's order; if two offer the same name, the first one is used and a
problem names both.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from hpml_plugins.errors import HpmlError, explain
from hpml_plugins.host.loading import LoadedPlugin, load_plugin
from hpml_plugins.model.checking import check_value
from hpml_plugins.model.data_source import LoadableData
from hpml_plugins.registry import PluginSource


class Offers(msgspec.Struct, frozen=True):
    """What one plugin, or all of them, offer besides benchmarks. data: name → the plugin that
    offers it.

    problems: one line each.  pages: the plugins that add pages to the site.
    """

    data: dict[str, PluginSource] = {}
    problems: list[str] = []
    pages: list[str] = []


def ask_for_offers(plugin: LoadedPlugin) -> Offers:
    """Call the plugin's `hpml_data`. What it raises is a problem that names plugin and hook."""
    pages = [plugin.entry.name] if plugin.implements("hpml_pages") else []
    try:
        names = [
            check_value(each.name, str, "a data source's name", "")
            for each in _offered(plugin)
        ]
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        fault, where = explain(error)
        what = f"hpml_data of plugin {plugin.entry.name!r}: {fault}"
        return Offers(problems=[str(HpmlError(what, where or plugin.where))], pages=pages)
    return Offers(dict.fromkeys(names, plugin.entry.source), pages=pages)


def merge_offers(offered: Iterable[Offers]) -> Offers:
    """What all of them offer, in this order. Of two data sets of one name the first stands."""
    merged = Offers({}, [], [])
    for own in offered:
        merged.problems.extend(own.problems)
        merged.pages.extend(own.pages)
        for name, source in own.data.items():
            first = merged.data.setdefault(name, source).name
            if first != source.name:
                merged.problems.append(
                    f"data set {name!r} is offered by plugin {first!r} and by {source.name!r}; the"
                    " first one is used"
                )
    return merged


def load_sources(
    offers: Offers, folder: Path, names: Iterable[str], own: LoadedPlugin | None = None
) -> dict[str, LoadableData]:
    """Load the data sets of these names from the plugins that offer them.

    folder: of the registry.  own: a plugin that is loaded here; all its data sets are available
    without being named, except those that an earlier plugin in the registry offers too. A broken
    plugin provides none: the point is skipped.
    """
    found: dict[str, LoadableData] = {}
    if own:
        first = {
            name for name, entry in offers.data.items() if entry.name != own.entry.name
        }
        found = {
            name: source for name, source in own_sources(own).items() if name not in first
        }
    for name in names:
        if name in offers.data and name not in found:
            sources = own_sources(load_plugin(offers.data[name], folder))
            found |= {name: sources[name]} if name in sources else {}
    return found


def own_sources(plugin: LoadedPlugin) -> dict[str, LoadableData]:
    """Name → data set, of those that a plugin offers; empty if asking raises."""
    try:
        return {source.name: source for source in _offered(plugin)}
    except KeyboardInterrupt:
        raise
    except BaseException:
        return {}  # reported when the plugins were asked


def _offered(plugin: LoadedPlugin) -> list[LoadableData]:
    return plugin.offered("hpml_data", LoadableData)
