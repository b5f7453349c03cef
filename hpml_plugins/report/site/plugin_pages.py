"""Writes `plugins.html` and one page per plugin, with its figures: charts that the browser draws, and their tables."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hpml_plugins.errors import HpmlError
from hpml_plugins.host import LoadedPlugin
from hpml_plugins.model.record import Record
from hpml_plugins.report.charts import complete
from hpml_plugins.report.figures import Drawable, collect, render, tabulate
from hpml_plugins.report.site.page import fill, graph_link, write_static
from hpml_plugins.report.tables import as_csv, formatted, numeric

#: Where charts and their data go, below the published folder.
FOLDER = "figures"
#: Vega, Vega-Lite and vegaEmbed as one script.
LIBRARY = "vendor/vega.js"


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
    """A figure as text. chart, picture, csv: addresses, or empty.  right: which columns hold numbers."""

    name: str
    title: str
    caption: str
    chart: str = ""
    picture: str = ""
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

    @property
    def has_charts(self) -> bool:
        """Whether the browser draws anything here."""
        return any(figure.chart for figure in self.figures)


def write_plugin_pages(
    plugins: Sequence[LoadedPlugin], records: Sequence[Record], html_dir: Path, project: str
) -> tuple[list[PluginPage], list[str]]:
    """Write the pages of every plugin that loads; returns them, and what went wrong, one line each.

    records: of each machine and point the current one.
    """
    problems: list[str] = []
    with _library(html_dir):
        pages = [_page(plugin, records, html_dir, project, problems) for plugin in plugins if not plugin.error]
        for page in pages:
            text = fill("plugin.html", here=page.address, page=page, project=project)
            (html_dir / page.address).write_text(text, encoding="utf-8")
        text = fill("plugins.html", pages=pages, project=project)
        (html_dir / "plugins.html").write_text(text, encoding="utf-8")
    return pages, problems


@contextmanager
def _library(html_dir: Path) -> Iterator[None]:
    """Write the script that draws, while the pages are written: bundling takes 1.5 s without holding Python's lock."""
    write_static(html_dir, "charts.js", "charts.css")
    (html_dir / LIBRARY).parent.mkdir(exist_ok=True)

    def write() -> None:
        import vl_convert

        (html_dir / LIBRARY).write_text(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"), encoding="utf-8")

    bundling = threading.Thread(target=write)
    bundling.start()
    try:
        yield
    finally:
        bundling.join()


def _page(
    plugin: LoadedPlugin, records: Sequence[Record], html_dir: Path, project: str, problems: list[str]
) -> PluginPage:
    name = plugin.entry.name
    try:
        figures = collect(plugin)
    except HpmlError as error:
        problems.append(str(error))
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


def _shown(drawable: Drawable, html_dir: Path, problems: list[str]) -> ShownFigure:
    figure, table = drawable.figure, drawable.table
    stem = f"{FOLDER}/{drawable.plugin}-{figure.name}"
    problem = str(drawable.error or "")
    chart = picture = csv = ""
    if len(table):
        (html_dir / FOLDER).mkdir(exist_ok=True)
        csv = f"{stem}.csv"
        (html_dir / csv).write_text(as_csv(table), encoding="utf-8")
        try:
            if figure.chart is not None:
                chart = f"{stem}.json"
                text = json.dumps(complete(figure.chart, table, figure.title), ensure_ascii=False, allow_nan=False)
                (html_dir / chart).write_text(text, encoding="utf-8")
            elif drawn := render(drawable, "svg"):
                picture = f"{stem}.svg"
                (html_dir / picture).write_bytes(drawn)
        except HpmlError as error:
            problem = str(error)
    if problem:
        problems.append(problem)
    return ShownFigure(
        figure.name,
        figure.title,
        figure.caption,
        chart,
        picture,
        csv,
        tuple(table.columns),
        tuple(numeric(table)),
        tuple(tuple(row) for row in formatted(table)),
        problem,
    )
