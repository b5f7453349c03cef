"""What `asv publish` runs for us: our pages, the regressions, and the whole site made offline.

asv finds publishers among the subclasses of its own; importing this module is enough. It is imported at
every asv command, so all that is heavy is imported when a page is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from asv.publishing import OutputPublisher

if TYPE_CHECKING:
    from hpml_plugins.report.site.regressions import Graphs, Limit, Step
    from hpml_plugins.report.site.writing import Publication


class GpuTypes(OutputPublisher):  # type: ignore[misc]  # asv is not typed
    """Writes our pages; then replaces the CDN addresses in asv's index, which asv has written by then."""

    name = "gpus"
    button_label = "GPU types"
    description = "Benchmarks by GPU type"
    order = 10  # after asv's own pages

    @classmethod
    def publish(cls, conf: Any, repo: Any, benchmarks: Any, graphs: Any, revisions: dict[str, int]) -> None:
        """Called once by asv. Raises asv's UserError, which asv shows as one line, for errors of ours."""
        import time

        from asv.console import log
        from asv.util import UserError

        from hpml_plugins.errors import HpmlError
        from hpml_plugins.report.site.writing import write_site

        started, worked = time.perf_counter(), time.process_time()
        try:
            for problem in write_site(_publication(conf, repo, benchmarks, graphs, revisions)):
                log.warning(problem)
        except HpmlError as error:
            raise UserError(str(error)) from error
        seconds, busy = time.perf_counter() - started, time.process_time() - worked
        log.info(f"our pages took {seconds:.2f} s ({busy:.2f} s of one CPU)")


def _publication(conf: Any, repo: Any, benchmarks: Any, graphs: Any, revisions: Mapping[str, int]) -> Publication:
    from pathlib import Path

    from hpml_plugins.report.site.writing import Publication

    branches = {}
    for branch in conf.branches if revisions else ():
        commits = reversed(repo.get_branch_commits(branch))  # the last one comes first
        branches[repo.get_branch_name(branch)] = {commit: place for place, commit in enumerate(commits)}
    return Publication(
        results=Path(conf.results_dir),
        html_dir=Path(conf.html_dir),
        project=str(conf.project),
        declarations=benchmarks,
        revisions=revisions,
        dates={commit: float(repo.get_date(commit)) for commit in revisions},
        branches=branches,
        graphs=_graphs(graphs) if revisions else {},
        limit=_limit(conf, repo, revisions),
    )


def _graphs(graphs: Any) -> Graphs:
    several = {name for name, values in graphs.get_params().items() if len(values) > 1}
    return {
        (graph.benchmark_name, str(graph.params.get("machine")), str(graph.params.get("branch"))): (
            path,
            {name: value for name, value in graph.params.items() if name in several},
        )
        for path, graph in graphs
        if "summary" not in graph.params
    }


def _limit(conf: Any, repo: Any, revisions: Mapping[str, int]) -> Limit:
    """asv's own reading of `regressions_first_commits` and `regressions_thresholds`."""
    from types import SimpleNamespace

    from asv.plugins.regressions import _GraphDataFilter

    def limit(entry: str, branch: str, steps: list[Step]) -> tuple[list[Step], float] | None:
        graph = SimpleNamespace(params={"branch": branch}, get_steps=lambda: steps)
        for _, _, kept, threshold in chosen.get_graph_data(graph, {"name": entry}):
            return kept, threshold
        return None

    if not revisions:
        return lambda entry, branch, steps: None
    # `asv.patches` keeps asv from listing regressions by its own rule; ours go by the settings as they were.
    conf.regressions_first_commits = getattr(conf, "hpml_regressions_first_commits", conf.regressions_first_commits)
    chosen = _GraphDataFilter(conf, repo, revisions)
    return limit
