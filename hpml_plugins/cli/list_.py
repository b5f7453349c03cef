"""`hpml list`: plugins, benchmarks and points, and what this node would skip and why."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import click

from hpml_plugins.cli import Settings
from hpml_plugins.host import Host, make_host
from hpml_plugins.model.benchmark import Benchmark
from hpml_plugins.model.node import Node
from hpml_plugins.node import detect_node, unmet
from hpml_plugins.registry import read_registry
from hpml_plugins.registry.reader import EVERYTHING


@click.command("list")
@click.option("--profile", default=EVERYTHING, show_default=True, help="Count only the points of this profile.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.pass_obj
def command(settings: Settings, profile: str, as_json: bool) -> int:
    """Show plugins, benchmarks and points, and what this node would skip."""
    host = make_host(read_registry(settings.registry))
    host.check_profile(profile)
    node = detect_node()
    if as_json:
        import msgspec

        sys.stdout.write(msgspec.json.format(msgspec.json.encode(_listing(host, node, profile))).decode() + "\n")
    else:
        _print(host, node, profile)
    for plugin in host.broken:
        print(f"hpml: {plugin.error}", file=sys.stderr)
    return 2 if host.broken else 0


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


def _print(host: Host, node: Node, profile: str) -> None:
    # Plain columns and not a rich table: rich costs a quarter of the half second that this command may take.
    rows = _listing(host, node, profile)
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
