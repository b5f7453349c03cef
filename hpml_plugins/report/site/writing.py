"""Write all our pages from one reading of the Records."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hpml_plugins.errors import HpmlError
from hpml_plugins.host import Host, make_host
from hpml_plugins.model.site_page import SitePage
from hpml_plugins.model.validation import hide_homes
from hpml_plugins.registry import DEFAULT_PATH, read_registry
from hpml_plugins.report.drawing import draw_all
from hpml_plugins.report.kept import remove_unused
from hpml_plugins.report.reading import read_history
from hpml_plugins.report.site import changes, nodes
from hpml_plugins.report.site.asv_page import PAGE, STATIC, finish_asv_page, name_machines
from hpml_plugins.report.site.badge import write_summary
from hpml_plugins.report.site.changes_page import write_changes
from hpml_plugins.report.site.compare_page import write_compare_page
from hpml_plugins.report.site.components import (
    find_drifts,
    find_hosts,
    fold_warnings,
    read_cards,
)
from hpml_plugins.report.site.data_files import INDEX, write_data_files
from hpml_plugins.report.site.evidence import fill_evidence, find_evidence
from hpml_plugins.report.site.found_levels import kept_levels
from hpml_plugins.report.site.further import Site, collect_pages, write_pages
from hpml_plugins.report.site.manifest import write_manifest
from hpml_plugins.report.site.matrix import build, read_costs
from hpml_plugins.report.site.page import PAGES, SiteFolder, add_to_navigation, commit_links
from hpml_plugins.report.site.plugin_pages import (
    LIBRARY,
    write_plugin_pages,
)
from hpml_plugins.report.site.search import write_search
from hpml_plugins.report.site.tasks import find_rows
from hpml_plugins.report.site.workloads import find_workloads, write_workloads
from hpml_plugins.store import CommitOrder

#: The files of every site, besides the pages of plugins and those that they add.
EXPECTED = (
    *(address for _, _, address in PAGES),
    PAGE,
    *("search.html", "search-index.js", "summary.json", "badge.svg", "regressions.xml"),
    *("compare/points.js", "gpus.html", "history.html", "nodes.html", "regressions.html"),
    *(INDEX, LIBRARY),
    *(path.name for path in STATIC.iterdir() if path.is_file()),
)
#: Earlier pages: name, title, and the page that replaces it.
MOVED = (
    ("nodes", "Nodes", "evidence"),
    ("regressions", "Regressions", "changes"),
    ("gpus", "GPU types", "index"),
)


def write_site(
    conf: Any,
    dates: Mapping[str, float],
    declarations: Mapping[str, dict[str, Any]],
    order: CommitOrder,
) -> list[str]:
    """Write all our pages into the folder to which asv is publishing; returns the problems, one
    line each.

    conf: of asv.  dates: of the commits, ms since 1970.  declarations: benchmarks.json.  order: of
    the commits; `asv publish RANGE` requests a part of them. Raises HpmlError if the registry is
    invalid, and if the site would not work offline.
    """
    started = time.time()
    problems: list[str] = []
    host: Host | None = None
    try:
        host = make_host(read_registry())
        problems += [str(plugin.error) for plugin in host.broken]
    except HpmlError as error:
        if DEFAULT_PATH.exists():
            raise
        problems.append(f"no pages of plugins: {error}")  # a suite of asv's own has none
    further = collect_pages(host, problems) if host else []
    with add_to_navigation([(page.label, page.about, page.address) for page in further]):
        _write(conf, dates, declarations, order, host, further, problems)
    # the system's clock of files may be some ms behind
    remove_unused(started - 1.0)
    return problems


def _write(
    conf: Any,
    dates: Mapping[str, float],
    declarations: Mapping[str, dict[str, Any]],
    order: CommitOrder,
    host: Host | None,
    further: Sequence[SitePage],
    problems: list[str],
) -> None:
    """Write every page.  further: those that plugins add."""
    commit_url = commit_links(str(conf.show_commit_url))
    folder = SiteFolder(Path(conf.html_dir), str(conf.project), commit_url)
    history = read_history(
        Path(conf.results_dir),
        host,
        declarations,
        order,
        dates,
        problems.append,
        keeps=True,
    )
    name_machines(history, declarations)
    matrix = build(history, read_costs(Path()))
    with kept_levels(Path(conf.results_dir)) as find:
        series = changes.find_changes(history, find)
    found = nodes.find_nodes(history)
    gaps = nodes.find_gaps(history, found)
    shifts, left_out = changes.find_shifts(history, series, gaps)
    write_data_files(history, folder)
    write_changes(shifts, left_out, series, history, gaps, folder)
    current = history.current()
    tracing = next((page for page in further if page.row_links), None)
    trace, row_links = (tracing.trace, tracing.row_links) if tracing else (None, None)
    drawing = (
        draw_all(host, current, trace=trace, every_card=history.of_every_card)
        if host
        else ()
    )
    drawn = [each for each in drawing if each.plugin.declared]
    pages, faults = write_plugin_pages(drawn, current, folder, row_links)
    rows, wrong = find_rows(host.registry.tasks if host else {}, history, matrix)
    problems += wrong
    workloads = find_workloads(history, matrix, rows)
    of_places = {each.place: each for each in series}
    write_workloads(workloads, history, of_places, pages, folder)
    parts = fill_evidence(
        found,
        gaps,
        find_evidence(history, keeps=True),
        read_cards(workloads, find_hosts(history)),
        fold_warnings(history),
        find_drifts(history),
    )
    folder.write_page("evidence.html", **parts)
    for old, title, new in MOVED:
        to = f"{new}.html"
        folder.write_page("moved.html", f"{old}.html", title=title, to=to, links=())
    site = Site(**vars(folder), history=history, plugins=pages, problems=problems)
    entries = write_pages(further, site, EXPECTED)
    write_search(history, matrix, found, pages, rows, entries, folder)
    finish_asv_page(folder.html_dir, declarations)  # asv's index.html is renamed here
    judged = changes.count_judged(history, series)
    points = [row for workload in workloads for row in workload.rows]
    problems += [*faults, *(host.offers.problems if host else ())]
    told = list(map(hide_homes, problems))
    write_compare_page(history, matrix, rows, points, shifts, judged, gaps, told, folder)
    write_summary(history, folder, judged)
    of_workloads = [each.address for each in workloads]
    write_manifest(
        folder.html_dir,
        [*EXPECTED, *of_workloads, *site.written],
        declarations.keys(),
        problems=told,
        made=site.made,
        lasts=not (faults or (host and host.broken)),
    )
