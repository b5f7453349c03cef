"""`hpml list`: plugins, benchmarks and points, and which of them this node would skip and why."""

from __future__ import annotations

import functools
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from textwrap import wrap
from typing import Any

import click

from hpml_plugins.cli import Settings, json_option, print_json, refuse_beside
from hpml_plugins.errors import UsageError, nearest
from hpml_plugins.host import GROUP, Declared, Host, entry_points, make_host
from hpml_plugins.model.formatting import counted
from hpml_plugins.model.node import Node
from hpml_plugins.node import detect_node, unmet
from hpml_plugins.registry import EVERYTHING, read_registry
from hpml_plugins.report.points import kind_of
from hpml_plugins.store import foreign_declarations
from hpml_plugins.terminal import align, cut, say, warn

#: The fields of a row by which it can be chosen.
_NAMES = ("plugin", "benchmark")


@click.command("list")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Show all, with metrics, parameters and why points are skipped here.",
)
@click.option(
    "--profile",
    default=EVERYTHING,
    show_default=True,
    help="Count only the points of this profile.",
)
@click.option(
    "--available",
    is_flag=True,
    help="Show the plugins that installed packages offer, and the lines that add them.",
)
@json_option("Print JSON instead of a table.")
@click.pass_obj
def command(
    settings: Settings,
    names: tuple[str, ...],
    verbose: bool,
    profile: str,
    available: bool,
    as_json: bool,
) -> int:
    """Show plugins, benchmarks and points, and how many of them this node can measure.

    NAME: a plugin, a benchmark, or a pattern such as 'roof_*'. Without one, benchmarks of which
    this node can measure nothing are counted by reason.
    """
    if available:
        refuse_beside("--available", "as_json")
        rows = _available(settings.registry)
        print_json(rows) if as_json else say(*_format_available(rows, settings.registry))
        return 0
    registry = read_registry(settings.registry)
    node = detect_node()
    host = make_host(registry, unmet=functools.partial(unmet, node=node), profile=profile)
    rows = _chosen([*_listing(host), *_listing_of_asv(settings.results)], names)
    if as_json:
        print_json(rows)
    else:
        _print(rows, host, node, profile, verbose=verbose, everything=bool(names))
    for problem in [*(plugin.error for plugin in host.broken), *host.offers.problems]:
        warn(problem)
    return 2 if host.broken else 0


def _available(registry: Path) -> list[dict[str, Any]]:
    """The plugin entry points of installed packages, without importing them; entry: the registry's
    name for it, "" if it has none."""
    named: dict[str | None, str] = {}
    if registry.is_file():
        named = {each.entry_point: each.name for each in read_registry(registry).plugins}
    return [
        {
            "entry point": point.name,
            "distribution": point.dist.name if point.dist else "",
            "version": point.dist.version if point.dist else "",
            "entry": named.get(point.name, ""),
        }
        for point in sorted(entry_points(), key=lambda each: each.name)
    ]


def _format_available(rows: list[dict[str, Any]], registry: Path) -> Iterator[str]:
    if not rows:
        yield f"no installed package offers a plugin (entry points of the group {GROUP!r})"
        return
    yield from align([("entry point", "from", "registry"), *map(_format_entry, rows)])
    if missing := [row["entry point"] for row in rows if not row["entry"]]:
        yield ""
        yield f"To add what is not in {registry}:"
        for name in missing:
            yield f"  - {{name: {name}, entry_point: {name}}}"


def _format_entry(row: dict[str, Any]) -> tuple[str, str, str]:
    origin = f"{row['distribution']} {row['version']}".strip()
    return row["entry point"], origin, row["entry"] or "–"


def _listing(host: Host) -> list[dict[str, Any]]:
    broken = [
        {"plugin": plugin.entry.name, "broken": str(plugin.error)} for plugin in host.broken
    ]
    return [*map(_row, host.benchmarks()), *broken]


def _row(benchmark: Declared) -> dict[str, Any]:
    return {
        "plugin": benchmark.plugin.name,
        "benchmark": benchmark.name,
        "version": benchmark.version,
        "description": benchmark.description,
        "metrics": {metric.name: metric.unit for metric in benchmark.metrics},
        "grid": benchmark.grid,
        "points": len(benchmark.chosen_points()),
        "skipped": Counter(benchmark.unmet.values()),
    }


def _listing_of_asv(results: Path) -> list[dict[str, Any]]:
    """asv's own benchmarks found by `asv run`, from benchmarks.json."""
    return [
        {
            "plugin": "asv",
            "benchmark": name,
            "version": each.version,
            "description": each.pretty_name,
            "metrics": {"value": each.symbol},
            "grid": dict(zip(each.param_names, each.params, strict=True)),
            "points": len(list(each.points())),
            "skipped": {},
        }
        for name, each in foreign_declarations(results).items()
    ]


def _chosen(rows: list[dict[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """The rows selected by these names or patterns (`roof_*`) of plugins or benchmarks; all without
    names.

    Raises UsageError, with the nearest name, for one without a match.
    """
    if not names:
        return rows
    chosen: set[int] = set()
    for wanted in names:
        places = []
        for place, row in enumerate(rows):
            if any(fnmatchcase(row.get(key, ""), wanted) for key in _NAMES):
                places.append(place)
        if not places:
            known = dict.fromkeys(row[key] for row in rows for key in _NAMES if key in row)
            raise UsageError(f"no plugin or benchmark {wanted!r}; {nearest(wanted, known)}")
        chosen.update(places)
    return [rows[place] for place in sorted(chosen)]


def _print(
    rows: list[dict[str, Any]],
    host: Host,
    node: Node,
    profile: str,
    *,
    verbose: bool,
    everything: bool,
) -> None:
    # Plain columns instead of a rich table: importing rich takes a third of the time budget of
    # this command.
    width = shutil.get_terminal_size().columns
    hidden = [] if verbose or everything else [row for row in rows if _is_hidden(row)]
    shown = [row for row in rows if row not in hidden]
    for line in _long(shown, width) if verbose else [*_short(shown), *_reasons(hidden)]:
        say(line if verbose else cut(line, width))
    gpus = f"{node.num_gpu} × {node.gpu}" if node.gpus else "no GPU"
    others = ", ".join(each for each in host.registry.profiles if each != profile)
    this = (
        f"this node: {gpus}, {node.num_cpu} × {node.cpu}; profile {profile}"
        f"{f' (others: {others})' if others else ''}"
    )
    more = "" if verbose else "; -v shows metrics, parameters and why points are skipped"
    say("", *wrap(this + more, width))


def _is_hidden(row: dict[str, Any]) -> bool:
    """Whether this node can measure none of the chosen points, and says why."""
    return bool(row.get("skipped")) and _here(row) <= 0


def _here(row: dict[str, Any]) -> int:
    skipped: dict[str, int] = row["skipped"]
    return int(row["points"]) - sum(skipped.values())


def _reasons(hidden: list[dict[str, Any]]) -> Iterator[str]:
    """One line for each reason why benchmarks cannot run here, using the most frequent one of each
    benchmark."""
    reasons: Counter[str] = Counter()
    for row in hidden:
        by_kind: Counter[str] = Counter()
        for reason, count in row["skipped"].items():
            by_kind[kind_of(reason)] += count
        reasons[by_kind.most_common(1)[0][0]] += 1
    if reasons:
        yield ""
        yield f"{counted(len(hidden), 'benchmark')} cannot run here (-v shows them):"
    for reason, count in reasons.most_common():
        yield f"{count:4}  {reason}"


def _short(rows: list[dict[str, Any]]) -> Iterator[str]:
    """One line for each benchmark. here: the number of its points that this node can measure."""
    heads = ("plugin", "benchmark", "points", "here", "description")
    yield from align(
        [heads, *map(_short_row, rows)], [name in ("points", "here") for name in heads]
    )


def _short_row(row: dict[str, Any]) -> tuple[str, ...]:
    if "broken" in row:
        return row["plugin"], "BROKEN", "", "", ""
    here = str(_here(row))
    return row["plugin"], row["benchmark"], str(row["points"]), here, row["description"]


def _long(rows: list[dict[str, Any]], width: int) -> Iterator[str]:
    """All details of each benchmark, in paragraphs of this width."""
    for row in rows:
        if "broken" in row:
            yield f"{row['plugin']}  BROKEN"
            continue
        points = counted(row["points"], "point")
        head = f"{row['plugin']}  {row['benchmark']}  {points}: {row['description']}"
        yield from wrap(head, width)
        metrics = ", ".join(f"{name} [{symbol}]" for name, symbol in row["metrics"].items())
        details = [
            f"metrics: {metrics}",
            *(
                f"{name}: {', '.join(map(str, values))}"
                for name, values in row["grid"].items()
            ),
        ]
        details += [
            f"skipped here: {count} of {row['points']}, {why}"
            for why, count in row["skipped"].items()
        ]
        for text in details:
            yield from wrap(
                f"    {text}", width, subsequent_indent=" " * 8, break_on_hyphens=False
            )
