"""`hpml list`: plugins, benchmarks and points, and what this node would skip and why."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from hpml_plugins.cli import Settings, print_json
from hpml_plugins.host import GROUP, Host, LoadedPlugin, available, make_host
from hpml_plugins.model.node import Node
from hpml_plugins.node import detect_node, unmet
from hpml_plugins.registry import EVERYTHING, Registry, plugin_name, read_registry
from hpml_plugins.terminal import say, warn


@click.command("list")
@click.option("--profile", default=EVERYTHING, show_default=True, help="Count only the points of this profile.")
@click.option("--available", "only_available", is_flag=True, help="Show installed plugins that no entry enables.")
@click.option("--changed", is_flag=True, help="Show also which plugins' code differs from that of their last Records.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.pass_obj
def command(settings: Settings, profile: str, only_available: bool, changed: bool, as_json: bool) -> int:
    """Show plugins, benchmarks and points, and what this node would skip."""
    registry = read_registry(settings.registry)
    if only_available:
        return _print_available(registry, as_json)
    node = detect_node()
    host = make_host(registry, unmet=functools.partial(unmet, node=node), profile=profile)
    rows = _listing(host)
    found = changes(host.plugins, registry.folder / "results") if changed else {}
    if as_json:
        rows = [row | ({"changed": found[row["plugin"]]} if row["plugin"] in found else {}) for row in rows]
        print_json(rows)
    else:
        _print(rows, host, node, profile)
        for name, change in found.items():
            say(f"changed since its last run: {name}: {change}")
    for problem in [*(plugin.error for plugin in host.broken), *host.offers.problems]:
        warn(problem)
    return 2 if host.broken else 0


def _print_available(registry: Registry, as_json: bool) -> int:
    """Installed entry points that are not enabled, by their metadata: nothing of them is imported."""
    enabled = {entry.entry_point: entry for entry in registry.plugins if entry.enabled and entry.entry_point}
    found = available(enabled)
    if as_json:
        rows = [dict(zip(("entry_point", "module", "distribution", "version"), row, strict=True)) for row in found]
        print_json(rows)
        return 0
    for name, module, distribution, version in found:
        say(f"{name}  {distribution} {version}, {module}".rstrip())
        say(f"  enable it in {registry.path}:  - {{name: {plugin_name(name)}, entry_point: {name}}}")
    if not found:
        say(f"no installed package offers an entry point in group {GROUP!r} that is not enabled")
    return 0


def _listing(host: Host) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for benchmark in host.benchmarks():
        rows.append(
            {
                "plugin": benchmark.plugin.name,
                "benchmark": benchmark.name,
                "version": benchmark.version,
                "description": benchmark.description,
                "metrics": {metric.name: metric.unit for metric in benchmark.metrics},
                "grid": {name: list(values) for name, values in benchmark.grid.items()},
                "points": len(benchmark.chosen_points()),
                "skipped": dict(Counter(benchmark.unmet.values())),
            }
        )
    broken = [{"plugin": plugin.entry.name, "broken": str(plugin.error)} for plugin in host.broken]
    return rows + broken


def _print(rows: list[dict[str, Any]], host: Host, node: Node, profile: str) -> None:
    # Plain columns, not a rich table: importing rich takes a third of what this command may take.
    width = max([len("benchmark"), *(len(row.get("benchmark", "")) for row in rows)])
    plugins = max([len("plugin"), *(len(row["plugin"]) for row in rows)])
    say(f"{'plugin':{plugins}}  {'benchmark':{width}}  points  metrics")
    for row in rows:
        if "broken" in row:
            say(f"{row['plugin']:{plugins}}  BROKEN: {row['broken']}")
            continue
        metrics = ", ".join(f"{name} [{symbol}]" for name, symbol in row["metrics"].items())
        say(f"{row['plugin']:{plugins}}  {row['benchmark']:{width}}  {row['points']:6}  {metrics}")
        for name, values in row["grid"].items():
            say(f"{'':{plugins}}  {'':{width}}          {name}: {_shorten(values)}")
        for reason, count in row["skipped"].items():
            say(f"{'':{plugins}}  {'':{width}}          skipped here: {count} of {row['points']}, {reason}")
    gpus = f"{node.num_gpu} × {node.gpu}" if node.gpus else "no GPU"
    say("", f"this node: {gpus}, {node.num_cpu} × {node.cpu}; profile {profile} of {', '.join(host.registry.profiles)}")


def _shorten(values: list[Any]) -> str:
    shown = [str(value) for value in values]
    return ", ".join(shown) if len(shown) <= 12 else f"{', '.join(shown[:10])}, … {len(shown) - 10} more"


def changes(plugins: Iterable[LoadedPlugin], results: Path) -> dict[str, str]:
    """Plugin → how its code differs from that of its newest Record. Plugins that never ran, or did not change, are out.

    results: asv's folder; the Records of every machine count.
    """
    import datetime

    from hpml_plugins.store import past_rounds

    last = {each.plugin: each for each in past_rounds(results) if each.source}
    found = {}
    for plugin in plugins:
        run = last.get(plugin.entry.name)
        if run and plugin.declared and (difference := _difference(run.source, plugin.source)):
            day = datetime.datetime.fromtimestamp(run.started, datetime.UTC).date()
            found[run.plugin] = f"{difference} (last run {day})"
    return found


def _difference(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    changed = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    return "; ".join(f"{key} was {before.get(key, 'none')}, is {now.get(key, 'none')}" for key in changed)
