"""Writes `plugins.html` and one page a plugin, with the figures that it draws from its Records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hpml_plugins.errors import HpmlError
from hpml_plugins.host import LoadedPlugin
from hpml_plugins.model.record import Record
from hpml_plugins.report.charts import render
from hpml_plugins.report.figures import Drawable, collect, tabulate
from hpml_plugins.report.site.page import fill, graph_link
from hpml_plugins.report.tables import as_csv, numeric, spelled

#: Where charts and their data go, below the published folder.
FOLDER = "figures"


@dataclass(frozen=True)
class ShownMetric:
    """A metric, and the address of its graph over commits."""

    name: str
    link: str


@dataclass(frozen=True)
class ShownBenchmark:
    """A benchmark as its plugin's page introduces it."""

    name: str
    description: str
    metrics: tuple[ShownMetric, ...]


@dataclass(frozen=True)
class ShownFigure:
    """A figure as text. chart, csv: addresses, empty where there is none.  right: which columns hold numbers."""

    name: str
    title: str
    caption: str
    chart: str = ""
    csv: str = ""
    columns: tuple[str, ...] = ()
    right: tuple[bool, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class ShownOrigin:
    """One state of a plugin's code that shown Records were measured with. sha256: shortened."""

    source: str
    distribution: str
    sha256: str
    records: int
    machines: str


@dataclass(frozen=True)
class PluginPage:
    """The page of one plugin. origins: where the code of the shown Records came from."""

    plugin: str
    address: str
    benchmarks: tuple[ShownBenchmark, ...]
    figures: tuple[ShownFigure, ...]
    origins: tuple[ShownOrigin, ...] = ()


@dataclass
class Problems:
    """What went wrong on the way, one line each; the pages are written all the same."""

    lines: list[str] = field(default_factory=list)


def write_plugin_pages(
    plugins: Sequence[LoadedPlugin],
    records: Sequence[Record],
    html_dir: Path,
    project: str,
) -> tuple[list[PluginPage], list[str]]:
    """Write the pages of every plugin that loads; returns them, and what went wrong, one line each.

    records: the current ones, one per machine and point.
    """
    problems = Problems()
    pages = [_page(plugin, records, html_dir, project, problems) for plugin in plugins if not plugin.error]
    for page in pages:
        text = fill("plugin.html", here=page.address, page=page, project=project)
        (html_dir / page.address).write_text(text, encoding="utf-8")
    text = fill("plugins.html", pages=pages, project=project)
    (html_dir / "plugins.html").write_text(text, encoding="utf-8")
    return pages, problems.lines


def _page(
    plugin: LoadedPlugin, records: Sequence[Record], html_dir: Path, project: str, problems: Problems
) -> PluginPage:
    name = plugin.entry.name
    try:
        figures = collect(plugin)
    except HpmlError as error:
        problems.lines.append(str(error))
        figures = []
    shown = tuple(_shown(drawable, html_dir, problems) for drawable in tabulate(plugin, figures, records))
    drawn = tuple(figure for figure in shown if figure.rows or figure.problem)
    of_plugin = [record for record in records if record.plugin == name]
    return PluginPage(name, f"plugin-{name}.html", tuple(_benchmarks(plugin)), drawn, _origins(of_plugin))


def _origins(records: Sequence[Record]) -> tuple[ShownOrigin, ...]:
    found: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        source = record.source
        declared = next((f"{kind} {source[kind]}" for kind in ("path", "module", "entry_point") if kind in source), "")
        distribution = f"{source.get('distribution', '')} {source.get('version', '')}".strip()
        found.setdefault((declared, distribution, source.get("sha256", "")[:12]), []).append(record)
    return tuple(
        ShownOrigin(*key, len(those), ", ".join(sorted({record.machine for record in those})))
        for key, those in found.items()
    )


def _benchmarks(plugin: LoadedPlugin) -> Iterator[ShownBenchmark]:
    for benchmark in plugin.benchmarks:
        links = [ShownMetric(m.name, graph_link(f"{benchmark.name}.track_{m.name}", {})) for m in benchmark.metrics]
        yield ShownBenchmark(benchmark.name, benchmark.description, tuple(links))


def _shown(drawable: Drawable, html_dir: Path, problems: Problems) -> ShownFigure:
    figure, table = drawable.figure, drawable.table
    stem = f"{FOLDER}/{drawable.plugin}-{figure.name}"
    problem = str(drawable.error or "")
    chart = csv = ""
    if len(table):
        (html_dir / FOLDER).mkdir(exist_ok=True)
        csv = f"{stem}.csv"
        (html_dir / csv).write_text(as_csv(table), encoding="utf-8")
        if figure.draw is not None:
            try:
                if drawn := render(drawable, "svg"):
                    chart = f"{stem}.svg"
                    (html_dir / chart).write_bytes(drawn)
            except HpmlError as error:
                problem = str(error)
    if problem:
        problems.lines.append(problem)
    return ShownFigure(
        figure.name,
        figure.title,
        figure.caption,
        chart,
        csv,
        tuple(table.columns),
        tuple(numeric(table)),
        tuple(tuple(row) for row in spelled(table)),
        problem,
    )
