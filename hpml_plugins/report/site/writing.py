"""All our pages, one after the other, from one reading of the Records."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hpml_plugins.errors import HpmlError
from hpml_plugins.host import Host, make_host
from hpml_plugins.registry import read_registry
from hpml_plugins.report.reading import read_history
from hpml_plugins.report.site import gpu_types, nodes, regressions
from hpml_plugins.report.site.asv_page import finish_asv_page, name_machines
from hpml_plugins.report.site.badge import write_summary
from hpml_plugins.report.site.evidence import find_evidence
from hpml_plugins.report.site.history import write_history
from hpml_plugins.report.site.overview import headline_rows, write_overview
from hpml_plugins.report.site.page import commit_links, write_page
from hpml_plugins.report.site.plugin_pages import find_code_changes, write_plugin_pages
from hpml_plugins.report.site.questions import FOLDER, write_questions
from hpml_plugins.report.site.search import write_search
from hpml_plugins.store import CommitOrder


def write_site(
    conf: Any, repo: Any, declarations: Mapping[str, dict[str, Any]], order: CommitOrder
) -> list[str]:
    """Write every page of ours into the folder that asv is publishing to; returns what went wrong,
    one line each.

    The first arguments are those that asv hands to a publisher.  declarations: benchmarks.json.
    order: of the commits; `asv publish RANGE` asks for a part of them. Raises HpmlError where the
    site would not work offline.
    """
    problems: list[str] = []
    html_dir, project = Path(conf.html_dir), str(conf.project)
    host: Host | None = None
    try:
        host = make_host(read_registry())
    except HpmlError as error:
        problems.append(f"no pages of plugins: {error}")
    dates = {commit: float(repo.get_date(commit)) for commit in order}
    history = read_history(
        Path(conf.results_dir), host, declarations, order, dates, problems.append
    )
    problems += find_code_changes(history)
    name_machines(history, declarations)
    matrix = gpu_types.build(history, gpu_types.read_costs(Path()))
    headlines = headline_rows(matrix)
    verdicts = gpu_types.judge(matrix, {row.number for row in headlines})
    gpu_types.write_gpu_types(matrix, verdicts, html_dir, project)
    series = regressions.find_changes(history)
    loading = {plugin.entry.name for plugin in host.plugins if not plugin.error} if host else set()
    found, commit_url = nodes.find_nodes(history), commit_links(str(conf.show_commit_url))
    gaps = nodes.find_gaps(history, found)
    shifts, left_out = regressions.find_shifts(history, series, gaps)
    write_history(history, series, html_dir, project, loading, commit_url)
    regressions.write_regressions(
        shifts, left_out, series, history, gaps, html_dir, project, commit_url
    )
    evidence = find_evidence(history)
    write_page(html_dir, "nodes.html", machines=found, evidence=evidence, project=project)
    plugins = host.load_all() if host else []
    pages, faults = write_plugin_pages(plugins, history.current(), html_dir, project)
    questions = write_questions(FOLDER, history, pages, html_dir, project, problems)
    write_search(history, matrix, found, pages, questions, html_dir, project)
    finish_asv_page(html_dir, declarations)  # asv's index.html gets another name here
    write_overview(
        history, matrix, headlines, verdicts, shifts, gaps, html_dir, project, commit_url
    )
    write_summary(history, html_dir, project, regressions.count_judged(history, series))
    problems += [*faults, *(host.offers.problems if host else ())]
    return problems
