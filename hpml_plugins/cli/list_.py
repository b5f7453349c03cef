"""`hpml list`: plugins, benchmarks and points, and what this node would skip and why."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import click
import msgspec

from hpml_plugins.cli import Settings
from hpml_plugins.host import Host, make_host
from hpml_plugins.host.changes import changes
from hpml_plugins.host.locating import GROUP, available
from hpml_plugins.host.offers import own_sources
from hpml_plugins.model.benchmark import Benchmark
from hpml_plugins.model.node import Node
from hpml_plugins.node import detect_node, unmet
from hpml_plugins.registry import Registry, read_registry
from hpml_plugins.registry.reader import EVERYTHING
from hpml_plugins.registry.schema import plugin_name


@click.command("list")
@click.option("--profile", default=EVERYTHING, show_default=True, help="Count only the points of this profile.")
@click.option("--available", "only_available", is_flag=True, help="Show installed plugins that no entry enables.")
@click.option("--results", type=click.Path(path_type=Path), help="asv's results; beside the registry when left out.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.pass_obj
def command(settings: Settings, profile: str, only_available: bool, results: Path | None, as_json: bool) -> int:
    """Show plugins, benchmarks and points, and what this node would skip."""
    registry = read_registry(settings.registry)
    if only_available:
        return _print_available(registry, as_json)
    host = make_host(registry)
    host.check_profile(profile)
    node = detect_node()
    sources = {name: source for plugin in host.plugins for name, source in own_sources(plugin).items()}
    with host.offers.in_force(sources):
        rows = _listing(host, node, profile)
    changed = changes(host.plugins, results or settings.registry.parent / "results")
    if as_json:
        rows = [row | ({"changed": changed[row["plugin"]]} if row["plugin"] in changed else {}) for row in rows]
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(rows)).decode() + "\n")
    else:
        _print(rows, host, node, profile)
        for name, change in changed.items():
            print(f"changed since its last run: {name}: {change}")
    for problem in [*(plugin.error for plugin in host.broken), *host.offers.problems]:
        print(f"hpml: {problem}", file=sys.stderr)
    return 2 if host.broken else 0


def _print_available(registry: Registry, as_json: bool) -> int:
    """Installed entry points that are not enabled, by their metadata: nothing of them is imported."""
    enabled = {entry.entry_point: entry for entry in registry.plugins if entry.enabled and entry.entry_point}
    found = available(enabled)
    if as_json:
        rows = [dict(zip(("entry_point", "module", "distribution", "version"), row, strict=True)) for row in found]
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(rows)).decode() + "\n")
        return 0
    for name, module, distribution, version in found:
        print(f"{name}  {distribution} {version}, {module}".rstrip())
        print(f"  enable it in {registry.path}:  - {{name: {plugin_name(name)}, entry_point: {name}}}")
    if not found:
        print(f"no installed package offers an entry point in group {GROUP!r} that is not enabled")
    return 0


def _listing(host: Host, node: Node, profile: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for plugin, benchmark in host.benchmarks():
        points = host.points(plugin, benchmark, profile)
        rows.append(
            {
                "plugin": plugin.entry.name,
                "benchmark": benchmark.name,
                "version": benchmark.version,
                "description": benchmark.description,
                "metrics": {metric.name: metric.unit for metric in benchmark.metrics},
                "grid": {name: list(values) for name, values in benchmark.grid.items()},
                "points": len(points),
                "skipped": dict(_skipped(benchmark, points, node)),
            }
        )
    broken = [{"plugin": plugin.entry.name, "broken": str(plugin.error)} for plugin in host.broken]
    return rows + broken


def _skipped(benchmark: Benchmark, points: list[dict[str, Any]], node: Node) -> Counter[str]:
    reasons = ("; ".join(unmet(benchmark, params, node)) for params in points)
    return Counter(reason for reason in reasons if reason)


def _print(rows: list[dict[str, Any]], host: Host, node: Node, profile: str) -> None:
    # Plain columns and not a rich table: rich costs a quarter of the half second that this command may take.
    width = max([len("benchmark"), *(len(row.get("benchmark", "")) for row in rows)])
    plugins = max([len("plugin"), *(len(row["plugin"]) for row in rows)])
    print(f"{'plugin':{plugins}}  {'benchmark':{width}}  points  metrics")
    for row in rows:
        if "broken" in row:
            print(f"{row['plugin']:{plugins}}  BROKEN: {row['broken']}")
            continue
        metrics = ", ".join(f"{name} [{symbol}]" for name, symbol in row["metrics"].items())
        print(f"{row['plugin']:{plugins}}  {row['benchmark']:{width}}  {row['points']:6}  {metrics}")
        for name, values in row["grid"].items():
            print(f"{'':{plugins}}  {'':{width}}          {name}: {_shorten(values)}")
        for reason, count in row["skipped"].items():
            print(f"{'':{plugins}}  {'':{width}}          skipped here: {count} of {row['points']}, {reason}")
    gpus = f"{node.num_gpu} × {node.gpu}" if node.gpus else "no GPU"
    print(f"\nthis node: {gpus}, {node.num_cpu} × {node.cpu}; profile {profile} of {', '.join(host.registry.profiles)}")


def _shorten(values: list[Any]) -> str:
    shown = [str(value) for value in values]
    return ", ".join(shown) if len(shown) <= 12 else f"{', '.join(shown[:10])}, … {len(shown) - 10} more"
