"""The figures of plugins on pages: charts and their tables, each on the page of a benchmark whose
Records it shows."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hpml_plugins.errors import HpmlError, describe
from hpml_plugins.host import LoadedPlugin
from hpml_plugins.model.record import Record
from hpml_plugins.model.site_page import Link
from hpml_plugins.report.drawing import DrawnPlugin
from hpml_plugins.report.figures import Drawable, naming, render
from hpml_plugins.report.site.chart_svg import chart_svg, vega_library
from hpml_plugins.report.site.page import SiteFolder, workload_address
from hpml_plugins.report.summaries import summarise
from hpml_plugins.report.tables import as_csv

#: The folder for charts and their data, below the published folder.
FOLDER = "figures"
#: Vega, Vega-Lite and vegaEmbed as one script.
LIBRARY = "vendor/vega.js"
#: A version of a plugin's code: its source, its distribution, SHA-256 (abbreviated); how many
#: Records it measured, and on which machines.
CodeState = tuple[str, str, str, int, str]
#: For each row of a figure's table, links to the Records on which it is based.
RowLinks = Callable[[Drawable], Sequence[Sequence[Link]]]


@dataclass(frozen=True)
class ShownFigure:
    """A figure on its page.

    chart: address of its specification, for interactive use.  picture, csv: addresses.  Missing
    ones are empty.  size: of a chart's picture: width and height, px.  summary: of a chart, in
    words.  links: of each row, to the Records on which it is based.  benchmark: on whose page it is
    shown.
    """

    drawable: Drawable
    csv: str = ""
    chart: str = ""
    summary: str = ""
    picture: str = ""
    problem: str = ""
    links: Sequence[Sequence[Link]] = ()
    benchmark: str = ""
    size: tuple[int, int] = (0, 0)

    @property
    def anchor(self) -> str:
        """Its id on its page."""
        return f"{self.drawable.plugin}.{self.drawable.figure.name}"

    @functools.cached_property
    def spans(self) -> list[int]:
        """For each row, the number of rows that share its links cell: following rows with the same
        links have 0."""
        found: list[int] = []
        for _, alike in itertools.groupby(self.links):
            count = len(list(alike))
            found += [count, *[0] * (count - 1)]
        return found

    @property
    def address(self) -> str:
        """The address of the figure on its page."""
        return f"{workload_address(self.benchmark)}#{self.anchor}"


@dataclass(frozen=True)
class PluginPage:
    """What a plugin shows. origins: where the code of the shown Records came from.

    problem: why figures are missing.
    """

    plugin: LoadedPlugin
    figures: list[ShownFigure]
    origins: list[CodeState]
    problem: str = ""


def write_plugin_pages(
    drawn: Sequence[DrawnPlugin],
    records: Sequence[Record],
    folder: SiteFolder,
    row_links: RowLinks | None = None,
) -> tuple[list[PluginPage], list[str]]:
    """Write the files of these plugins' figures and redirections from the addresses of their
    earlier pages; returns what they show, and the problems, one line each.

    records: the current one of each machine and point.  row_links: finds the Records of rows.
    """
    problems: list[str] = []
    pages = [_page(each, records, folder, problems, row_links) for each in drawn]
    for page in pages:
        old = f"plugin-{page.plugin.entry.name}.html"
        folder.write_page("moved.html", old, **_old_page(page))
    library = folder.html_dir / LIBRARY
    library.parent.mkdir(exist_ok=True)
    library.write_bytes(vega_library())
    return pages, problems


def _page(
    drawn: DrawnPlugin,
    records: Sequence[Record],
    folder: SiteFolder,
    problems: list[str],
    row_links: RowLinks | None,
) -> PluginPage:
    name = drawn.plugin.entry.name
    problem = str(drawn.error or "")
    own = [declared.name for declared in drawn.plugin.declared]
    every = [
        replace(_shown(drawable, folder, row_links), benchmark=_benchmark_of(drawable, own))
        for drawable in drawn.drawables
    ]
    if problem:
        problems.append(problem)
    problems += [figure.problem for figure in every if figure.problem]
    shown = [figure for figure in every if figure.csv or figure.problem]
    found: dict[tuple[str, str, str], list[str]] = {}
    for record in records:
        if record.plugin == name:
            found.setdefault(origin_of(record), []).append(record.machine)
    origins = [
        (*key, len(machines), ", ".join(sorted(set(machines))))
        for key, machines in found.items()
    ]
    return PluginPage(drawn.plugin, shown, origins, problem)


def _benchmark_of(drawable: Drawable, own: Sequence[str]) -> str:
    """The benchmark on whose page a figure is shown: the first of its plugin that it uses."""
    shown = drawable.figure.benchmarks
    return next((name for name in shown if name in own), shown[0])


def _old_page(page: PluginPage) -> dict[str, Any]:
    """Redirections from the earlier page of a plugin, and from each figure on it."""
    names = [declared.name for declared in page.plugin.declared]
    links = [
        (figure.drawable.figure.name, "", figure.drawable.figure.title, figure.address)
        for figure in page.figures
    ]
    if len(names) == 1:
        to = workload_address(names[0])
    else:
        to = f"workloads.html#{page.plugin.entry.name}"
    return {"title": page.plugin.entry.name, "to": to, "links": links}


def origin_of(record: Record) -> tuple[str, str, str]:
    """Where the code of a Record came from: path or module, distribution with version, SHA-256
    (abbreviated)."""
    source = record.source
    declared = next(
        (
            f"{kind} {source[kind]}"
            for kind in ("path", "module", "entry_point")
            if kind in source
        ),
        "",
    )
    distribution = f"{source.get('distribution', '')} {source.get('version', '')}".strip()
    return declared, distribution, source.get("sha256", "")[:12]


def _links(drawable: Drawable, row_links: RowLinks) -> Sequence[Sequence[Link]]:
    """The links from the rows to their Records. Raises HpmlError for any failure."""
    try:
        return row_links(drawable)
    except Exception as error:
        name = f"{drawable.plugin}.{drawable.figure.name}"
        raise HpmlError(
            f"no links from the rows of figure {name}: {describe(error)}"
        ) from error


def _shown(
    drawable: Drawable, folder: SiteFolder, row_links: RowLinks | None
) -> ShownFigure:
    """Write a figure's files. One without rows has none."""
    html_dir = folder.html_dir
    figure = drawable.figure
    table = drawable.table
    if not len(table):
        return ShownFigure(drawable, problem=str(drawable.error or ""))
    csv, chart, picture = (
        f"{FOLDER}/{drawable.plugin}-{figure.name}.{form}" for form in ("csv", "js", "svg")
    )
    (html_dir / FOLDER).mkdir(exist_ok=True)
    (html_dir / csv).write_text(as_csv(table), encoding="utf-8")
    shown = ShownFigure(drawable, csv)
    try:
        if row_links:
            shown = replace(shown, links=_links(drawable, row_links))
        if figure.chart and (specification := drawable.chart):
            with naming(drawable):
                svg = chart_svg(specification)
                (html_dir / picture).write_bytes(svg.file)
                folder.write_data(chart, specification)
                summary = summarise(figure.chart, drawable.drawn_table)
                summary = " ".join(filter(None, (summary, drawable.left_out)))
                size = svg.width, svg.height
                shown = replace(shown, picture=picture, size=size)
                return replace(shown, chart=chart, summary=summary)
        if drawn := render(drawable, "svg"):
            (html_dir / picture).write_bytes(drawn)
            return replace(shown, picture=picture)
    except Exception as error:  # of the plugin's chart or drawing
        return replace(shown, problem=describe(error))
    return shown
