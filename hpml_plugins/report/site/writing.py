"""All our pages, one after the other, from one reading of the Records."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpml_plugins.errors import HpmlError
from hpml_plugins.host import Host, Offers, make_host
from hpml_plugins.registry import read_registry
from hpml_plugins.report.reading import read_history, tracked_metrics
from hpml_plugins.report.site import gpu_types, nodes, regressions
from hpml_plugins.report.site.asv_page import finish_asv_page, select_first_lines
from hpml_plugins.report.site.history import write_history
from hpml_plugins.report.site.page import write_page, write_static
from hpml_plugins.report.site.plugin_pages import find_code_changes, write_plugin_pages
from hpml_plugins.report.site.search import write_search


@dataclass(frozen=True)
class Publication:
    """What asv tells of the site that it publishes.

    declarations: asv's benchmarks.json.  revisions: commit → its place in history; `asv publish RANGE` asks for a part
    of it.  dates: commit → ms since 1970.  branches: name → commit → its place in the branch's first-parent history.
    graphs, limit: see `regressions`.
    """

    results: Path
    html_dir: Path
    project: str
    declarations: Mapping[str, dict[str, Any]]
    revisions: Mapping[str, int]
    dates: Mapping[str, float]
    branches: regressions.Branches
    graphs: regressions.Graphs
    limit: regressions.Limit


def write_site(publication: Publication) -> list[str]:
    """Write every page of ours into the folder that asv is publishing to; returns what went wrong, one line each.

    Raises HpmlError where the site would not work offline.
    """
    problems: list[str] = []
    host = _load_host(problems)
    offers = host.offers if host else Offers()
    with offers.in_force():
        _write_pages(host, publication, problems)
    problems += offers.problems
    finish_asv_page(publication.html_dir, publication.declarations)
    return problems


def _load_host(problems: list[str]) -> Host | None:
    try:
        return make_host(read_registry())
    except HpmlError as error:
        problems.append(f"no pages of plugins: {error}")
        return None


def _write_pages(host: Host | None, publication: Publication, problems: list[str]) -> None:
    html_dir, project, branches = publication.html_dir, publication.project, publication.branches
    metrics = tracked_metrics(host, publication.declarations)
    history = read_history(
        publication.results, metrics, publication.declarations, publication.revisions, publication.dates,
        lambda damage: problems.append(str(damage)),
    )  # fmt: skip
    problems += find_code_changes(history)
    select_first_lines(history, publication.declarations)
    series = regressions.find_changes(history, branches, publication.limit)
    write_static(html_dir, "site.css", "gpus.js")
    matrix = gpu_types.build(history, gpu_types.read_costs(Path()))
    write_page(html_dir, "gpus.html", matrix=matrix, project=project, published=datetime.datetime.now(datetime.UTC))
    write_history(history, series, html_dir, project)
    regressions.write_regressions(series, history, branches, html_dir, project)
    regressions.write_asv_regressions(series, history, branches, publication.graphs, publication.declarations, html_dir)
    found = nodes.find_nodes(history)
    write_page(html_dir, "nodes.html", machines=found, project=project)
    plugins = host.load_all() if host else []
    pages, faults = write_plugin_pages(plugins, history.current(), html_dir, project)
    problems += faults
    write_search(history, matrix, found, pages, html_dir, project)
