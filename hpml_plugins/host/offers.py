"""What plugins offer beside benchmarks: GPU peaks, published figures, data sets, facts of the node.

Plain data, so that it can travel to processes that import none of those plugins. Plugins are asked in the registry's
order; if two offer the same name, the first one is used and a problem names both.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec

from hpml_plugins.errors import DefinitionError, HpmlError, explain
from hpml_plugins.host.loading import LoadedPlugin, load_plugin
from hpml_plugins.model.benchmark import Value
from hpml_plugins.model.data_source import LoadableData, use_sources
from hpml_plugins.model.declaring import check_value
from hpml_plugins.published import GpuType, gpu_types, use_published
from hpml_plugins.registry import PluginSource

_Finite = Annotated[float, msgspec.Meta(ge=-sys.float_info.max, le=sys.float_info.max)]


class Offers(msgspec.Struct, frozen=True):
    """What one plugin offers, or all of them. data: name → the plugin that has it.  problems: one line each."""

    gpu_types: list[GpuType] = []
    published: list[Any] = []
    data: dict[str, PluginSource] = {}
    facts: dict[str, Value] = {}
    problems: list[str] = []

    @contextmanager
    def in_force(self, sources: Mapping[str, LoadableData] | None = None) -> Iterator[None]:
        """Let `find_gpu`, `published_figures`, `bench.data` and so on know of it, here and in forks made here.

        sources: the data sets, as `load_sources` gives them.
        """
        with use_published(self.gpu_types, self.published), use_sources(sources or {}):
            yield


def ask(plugin: LoadedPlugin, *, facts: bool) -> Offers:
    """Call the plugin's hooks. What one of them raises is a problem that names plugin and hook; the others count."""
    problems: list[str] = []

    def call(hook: str, kind: type, check: Callable[[Any], None] = lambda each: None) -> list[Any]:
        """What the hook returned. check: called with each value; raises for one that is not valid."""
        try:
            answers = plugin.offered(hook, kind)
            for each in answers:
                check(each)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            fault, where = explain(error)
            problems.append(str(HpmlError(f"{hook} of plugin {plugin.entry.name!r}: {fault}", where or plugin.where)))
            return []
        return answers

    return Offers(
        gpu_types=call("hpml_gpu_types", GpuType),
        published=call("hpml_published", msgspec.Struct, _check_published),
        data={each.name: plugin.entry.source for each in call("hpml_data", LoadableData, _check_source)},
        facts=dict(call("hpml_node_facts", tuple, _check_fact)) if facts else {},
        problems=problems,
    )


def merge(offered: Sequence[tuple[str, Offers]]) -> Offers:
    """What all plugins offer, in the registry's order. Of two of one name the first stands.

    offered: name of the plugin and what it offers. The project's own GPU types come first.
    """
    merged, problems = Offers(), [problem for _, own in offered for problem in own.problems]
    first: dict[tuple[str, str], str] = {}
    if any(own.gpu_types for _, own in offered):
        first = {("GPU type", each.name): "hpml_plugins" for each in gpu_types()}

    def is_new(plugin: str, kind: str, name: str) -> bool:
        other = first.setdefault((kind, name), plugin)
        if other != plugin:
            problems.append(f"{kind} {name!r} is offered by plugin {other!r} and by {plugin!r}; the first one is used")
        return other == plugin

    for plugin, own in offered:
        merged.gpu_types.extend(each for each in own.gpu_types if is_new(plugin, "GPU type", each.name))
        merged.published.extend(own.published)
        merged.data.update({name: source for name, source in own.data.items() if is_new(plugin, "data set", name)})
        merged.facts.update({key: value for key, value in own.facts.items() if is_new(plugin, "fact", key)})
    merged.problems.extend(problems)
    return merged


def load_sources(
    offers: Offers, folder: Path, names: Iterable[str], own: LoadedPlugin | None = None
) -> dict[str, LoadableData]:
    """The data sets of these names, from the plugins that offer them, which are loaded.

    folder: of the registry.  own: a plugin that is loaded here; all that it offers is there without being named, except
    for what a plugin before it in the registry offers too. A broken plugin gives none: the point is skipped.
    """
    found: dict[str, LoadableData] = {}
    if own:
        first = {name for name, entry in offers.data.items() if entry.name != own.entry.name}
        found = {name: source for name, source in own_sources(own).items() if name not in first}
    for name in names:
        if name in offers.data and name not in found:
            sources = own_sources(load_plugin(offers.data[name], folder))
            found |= {name: sources[name]} if name in sources else {}
    return found


def own_sources(plugin: LoadedPlugin) -> dict[str, LoadableData]:
    """Name → data set, of those that a plugin brings; none where asking raises."""
    try:
        return {source.name: source for source in plugin.offered("hpml_data", LoadableData)}
    except KeyboardInterrupt:
        raise
    except BaseException:
        return {}  # named when the plugins were asked


def _check_fact(fact: tuple[object, object]) -> None:
    check_value(fact[0], str, "a fact's name", where="")
    check_value(fact[1], str | int | _Finite | bool, f"fact {fact[0]!r}", where="")


def _check_source(source: LoadableData) -> None:
    check_value(source.name, str, "a data source's name", where="")


def _check_published(figure: msgspec.Struct) -> None:
    if not {"about", "subject", "quantity", "value", "unit", "source"} <= {*figure.__struct_fields__}:
        raise DefinitionError(f"a {type(figure).__name__} is no PublishedFigure", "")
