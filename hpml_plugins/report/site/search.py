"""The search over the whole site: one index that the page's script searches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from hpml_plugins.model.site_page import SearchEntry
from hpml_plugins.report.reading import History
from hpml_plugins.report.site.matrix import Matrix, TaskRow
from hpml_plugins.report.site.nodes import NodeCoverage
from hpml_plugins.report.site.page import SYNONYMS, SiteFolder, navigation, point_link
from hpml_plugins.report.site.plugin_pages import PluginPage

#: B of the largest index. If it were larger, points are left out, and readers select them on the
#: benchmark's page.
LARGEST = 450_000


def write_search(
    history: History,
    matrix: Matrix,
    nodes: Sequence[NodeCoverage],
    plugins: Sequence[PluginPage],
    tasks: Sequence[TaskRow],
    further: Iterable[SearchEntry],
    folder: SiteFolder,
) -> None:
    """Write the index and the page that searches it.  tasks: rows of the first page.  further: the
    contents of plugins' pages."""
    entries = [*_tasks(tasks, matrix), *_entries(matrix, nodes, plugins, further)]
    folder.write_data("search-index.js", index(entries, history))
    folder.write_page("search.html")


def index(entries: Iterable[SearchEntry], history: History) -> dict[str, Any]:
    """The index.

    entries: everything except benchmarks.  benchmarks: [address, title, plugin, index into
    `points`, the types that have measured it]; metrics of one benchmark share their points, which
    are stored once.  synonyms: word → another spelling.
    """
    points: dict[tuple[str, ...], int] = {}
    listed: list[tuple[str, str, str, int, str]] = []
    hardware = {machine.name: machine.hardware.label for machine in history.machines}
    for metric in sorted(history.measured, key=lambda metric: metric.name):
        benchmark = metric.benchmark
        known = {label for (label, _), line in benchmark.index.lines().items() if line}
        labels = tuple(label for label in benchmark.points if label and label in known)
        listed.append(
            (
                point_link(benchmark.name, metric.metric),
                metric.title,
                benchmark.plugin,
                points.setdefault(labels, len(points)),
                " ".join(dict.fromkeys(hardware[name] for _, name in benchmark.current)),
            )
        )
    found = {
        "entries": list(entries),
        "points": list(points),
        "benchmarks": listed,
        "synonyms": SYNONYMS,
    }
    if len(msgspec.json.encode(found)) > LARGEST:
        return {**found, "points": [[] for _ in points], "short": True}
    return found


def _tasks(tasks: Iterable[TaskRow], matrix: Matrix) -> Iterator[SearchEntry]:
    """The questions to a GPU in words of the registry, with the types that have an answer."""
    for row in (each for each in tasks if each.task != each.metric.title):
        benchmark = row.metric.benchmark.name
        types = [matrix.columns[number].label for number in row.cells]
        about = " ".join([row.section, row.metric.title, row.point, *types])
        yield (
            "task",
            row.task,
            about,
            point_link(benchmark, row.metric.metric, row.point, row.regime),
        )


def _entries(
    matrix: Matrix,
    nodes: Iterable[NodeCoverage],
    plugins: Iterable[PluginPage],
    further: Iterable[SearchEntry],
) -> Iterator[SearchEntry]:
    """Everything except benchmarks: pages, contents of plugins' pages, plugins with their charts,
    GPU types, machines."""
    yield from (("page", *page) for page in navigation())
    yield from further
    for page in plugins:
        plugin = page.plugin.entry.name
        about = " ".join(f"{each.name} {each.description}" for each in page.plugin.declared)
        yield "plugin", plugin, about, f"workloads.html#{plugin}"
        for shown in page.figures:
            yield "chart", shown.drawable.figure.title, plugin, shown.address
    for column in matrix.columns:
        label = column.label
        yield (
            "GPU type",
            label,
            " ".join(column.machines),
            f"index.html#base={quote(label, safe='')}",
        )
    for node in nodes:
        facts = " ".join(
            value for name, value in node.facts if name in ("gpu", "cpu", "arch", "os")
        )
        yield "machine", node.name, facts, f"evidence.html#{node.anchor}"
