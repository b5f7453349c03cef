"""All our pages, one after the other, from one reading of the results."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from asv.console import log
from asv.util import write_json

from hpml_plugins.errors import HpmlError
from hpml_plugins.host import Host, LoadedPlugin, Offers, make_host
from hpml_plugins.registry import read_registry
from hpml_plugins.report.figures import versions
from hpml_plugins.report.site import history_pages, nodes, regressions
from hpml_plugins.report.site.beside import beside
from hpml_plugins.report.site.grid import complete_grid
from hpml_plugins.report.site.guard import guard
from hpml_plugins.report.site.history import History, read_history
from hpml_plugins.report.site.matrix import build
from hpml_plugins.report.site.offline import make_offline
from hpml_plugins.report.site.page import fill, write_page, write_static
from hpml_plugins.report.site.plugin_pages import write_plugin_pages
from hpml_plugins.report.site.policy import apply_policies
from hpml_plugins.report.site.prices import read_costs
from hpml_plugins.report.site.record_files import RecordFiles
from hpml_plugins.report.site.search import write_search
from hpml_plugins.report.site.selection import select_lines
from hpml_plugins.store import read_records


def write_site(conf: Any, repo: Any, benchmarks: Any, graphs: Any, revisions: Mapping[str, int]) -> None:
    """Write every page of ours into the folder that asv is publishing to.

    `asv publish RANGE` asks for a part of the history; asv tells us so through the revisions only. Raises HpmlError.
    """
    host = _host()
    offers = host.offers if host else Offers()
    plugins = host.load_all() if host else []
    with offers.in_force():
        _write_pages(plugins, conf, repo, benchmarks, graphs, revisions)
    for line in offers.problems:
        log.warning(line)
    complete_grid(benchmarks, Path(conf.html_dir))
    make_offline(Path(conf.html_dir))
    for line in (*guard(Path(conf.html_dir)), *apply_policies(Path(conf.html_dir))):
        log.warning(line)


def _write_pages(
    plugins: Sequence[LoadedPlugin],
    conf: Any,
    repo: Any,
    benchmarks: Any,
    graphs: Any,
    revisions: Mapping[str, int],
) -> None:
    html_dir, results, project = Path(conf.html_dir), Path(conf.results_dir), str(conf.project)
    history = read_history(results, benchmarks, revisions)
    select_lines(history, benchmarks)
    # What is wrong with a line of the store is said once, by the pages of plugins.
    records = [record for record in read_records(results) if not record.commit or record.commit in revisions]
    files = RecordFiles(versions(plugins))
    files.take(records)
    series = regressions.look(conf, repo, benchmarks, graphs, history, revisions)

    def write_history() -> None:
        addresses = files.write(html_dir)
        history_pages.write_history(history, benchmarks, regressions.by_line(series), addresses, html_dir, project)

    with beside(write_history):
        matrix = build(history, benchmarks, read_costs(Path()))
        write_page(matrix, html_dir, project, datetime.datetime.now(datetime.UTC))
        _write_regressions(conf, repo, benchmarks, graphs, history, revisions, series)
        machines = nodes.machines(results, history, benchmarks, records, revisions)
        (html_dir / "nodes.html").write_text(fill("nodes.html", machines=machines, project=project), encoding="utf-8")
        pages, problems = write_plugin_pages(plugins, results, html_dir, project, revisions)
        for line in problems:
            log.warning(line)
        write_search(history, benchmarks, matrix, machines, pages, html_dir, project)


def _host() -> Host | None:
    try:
        return make_host(read_registry())
    except HpmlError as error:
        log.warning(f"no pages of plugins: {error}")
        return None


def _write_regressions(
    conf: Any,
    repo: Any,
    benchmarks: Any,
    graphs: Any,
    history: History,
    revisions: Mapping[str, int],
    series: list[regressions.Series],
) -> None:
    html_dir = Path(conf.html_dir)
    order = regressions.branch_places(repo, conf, revisions) if series else {}
    write_json(
        str(html_dir / "regressions.json"), regressions.asv_s(series, graphs.get_params() if series else {}, order)
    )
    shown = regressions.listed(series, benchmarks, history, order, regressions.LISTED)
    regressions.write_feed(html_dir / "regressions.xml", shown, str(conf.project))
    write_static(html_dir, "lists.js")
    text = fill(
        "regressions.html",
        project=conf.project,
        shown=shown,
        total=regressions.count(series),
        looked=len(series),
    )
    (html_dir / "regressions.html").write_text(text, encoding="utf-8")
