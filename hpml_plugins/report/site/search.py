"""Writes `search.html` and `search.json`: everything that can be found on the site, fetched when a reader searches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from hpml_plugins.report.site.history import Benchmarks, History
from hpml_plugins.report.site.matrix import Matrix, point_names
from hpml_plugins.report.site.nodes import Machine
from hpml_plugins.report.site.page import fill, write_static
from hpml_plugins.report.site.plugin_pages import PluginPage

#: Largest index, B. Beyond, points are left out: a reader chooses them on the page of the history.
LARGEST = 450_000

#: (kind, title, more words, address)
Entry = tuple[str, str, str, str]

_PAGES = (
    ("GPU types", "which GPU for which work, price, watt", "gpus.html"),
    ("History", "all GPU types over commits", "history.html"),
    ("Regressions", "what got worse", "regressions.html"),
    ("Nodes", "machines, coverage, skipped, failed", "nodes.html"),
    ("Plugins", "charts and tables", "plugins.html"),
    ("Benchmark grid", "asv", "index.html"),
    ("Benchmark list", "asv", "index.html#/summarylist"),
)


def write_search(
    history: History,
    benchmarks: Benchmarks,
    matrix: Matrix,
    machines: Sequence[Machine],
    plugins: Sequence[PluginPage],
    html_dir: Path,
    project: str,
) -> None:
    """Write the index and the page that searches it."""
    entries = [*_fixed(), *_of_plugins(plugins), *_gpu_types(matrix), *_machines(machines)]
    (html_dir / "search.json").write_bytes(index(entries, history, benchmarks))
    write_static(html_dir, "search.js")
    (html_dir / "search.html").write_text(fill("search.html", project=project), encoding="utf-8")


def index(entries: Iterable[Entry], history: History, benchmarks: Benchmarks) -> bytes:
    """The index as JSON.

    entries: what is not a benchmark.  benchmarks: [asv's name, title, plugin, which of `points`]; metrics of one
    benchmark have the same points, which are spelled once.
    """
    points: dict[tuple[str, ...], int] = {}
    listed: list[tuple[str, str, str, int]] = []
    for name in sorted(history.lines):
        benchmark, status = benchmarks[name], history.lines[name].status
        labels = (label for place, label in enumerate(point_names(benchmark)) if label and status[:, :, place].any())
        number = points.setdefault(tuple(labels), len(points))
        listed.append((name, _title(name, benchmark), str(benchmark.get("plugin") or ""), number))
    found = {"entries": list(entries), "points": list(points), "benchmarks": listed}
    encoded = msgspec.json.encode(found)
    if len(encoded) > LARGEST:
        encoded = msgspec.json.encode({**found, "points": [[] for _ in points], "short": True})
    return encoded


def _title(name: str, benchmark: Mapping[str, Any]) -> str:
    title = str(benchmark.get("benchmark") or benchmark.get("pretty_name") or name)
    return f"{title} · {benchmark['metric']}" if benchmark.get("metric") else title


def _fixed() -> Iterator[Entry]:
    for title, words, address in _PAGES:
        yield "page", title, words, address


def _of_plugins(plugins: Sequence[PluginPage]) -> Iterator[Entry]:
    for page in plugins:
        about = " ".join(f"{each.name} {each.description}" for each in page.benchmarks)
        yield "plugin", page.plugin, about, page.address
        for figure in page.figures:
            yield "chart", figure.title, page.plugin, f"{page.address}#{figure.name}"


def _gpu_types(matrix: Matrix) -> Iterator[Entry]:
    for column in matrix.columns:
        yield "GPU type", column.label, " ".join(column.machines), f"gpus.html#base={quote(column.label, safe='')}"


def _machines(machines: Sequence[Machine]) -> Iterator[Entry]:
    for machine in machines:
        facts = " ".join(value for name, value in machine.facts if name in ("gpu", "cpu", "arch", "os"))
        yield "machine", machine.name, facts, f"nodes.html#{machine.anchor}"
