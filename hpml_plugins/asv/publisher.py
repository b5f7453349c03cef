"""Our part of `asv publish`: our pages, the regressions, and making the whole site work offline.

asv finds publishers among the subclasses of its own; importing this module is enough. It is
imported at every asv command, so heavy imports are delayed until a page is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from asv.publishing import OutputPublisher

#: The most problems of pages that are listed.
MOST_PROBLEMS = 5


def name_problems(problems: Sequence[str]) -> None:
    """Print the problems with pages."""
    from asv.console import log

    from hpml_plugins.model.formatting import counted
    from hpml_plugins.terminal import one_line

    shown = problems if log.is_debug_enabled() else problems[:MOST_PROBLEMS]
    for problem in shown:
        log.warning(one_line(problem))
    if more := len(problems) - len(shown):
        log.warning(f"{counted(more, 'further problem')}: asv publish -v shows all")


class GpuTypes(OutputPublisher):  # type: ignore[misc]  # asv is not typed
    """Writes our pages, then replaces the CDN addresses in asv's index, which asv has already
    written."""

    name = "gpus"
    button_label = "GPU types"
    description = "Benchmarks by GPU type"
    order = 10  # after asv's own pages

    @classmethod
    def publish(
        cls, conf: Any, repo: Any, benchmarks: Any, graphs: Any, revisions: dict[str, int]
    ) -> None:
        """Called once by asv. Raises HpmlError for an invalid registry, and if the site would not
        work offline."""
        import gc
        import time

        from asv.console import log

        from hpml_plugins.asv.stored_history import (
            StoredHistory,
            commit_dates,
            find_order,
        )
        from hpml_plugins.report.site.writing import write_site

        started = time.perf_counter()
        worked = time.process_time()
        order = repo.order if isinstance(repo, StoredHistory) else find_order(conf, repo)
        shown = order.within(revisions)
        # The collector repeatedly traverses all Records and finds nothing: for this repository's
        # results it took 6 to 9 % of the CPU time; without it the peak memory rises by 19 of 378
        # MiB.
        gc.disable()
        try:
            problems = write_site(conf, commit_dates(repo, shown), benchmarks, shown)
        finally:
            # Nothing is worth collecting now: for a million Records it takes 3 % of the CPU time,
            # and the process ends soon.
            gc.freeze()
            gc.enable()
        name_problems(problems)
        seconds = time.perf_counter() - started
        busy = time.process_time() - worked
        log.info(f"our pages took {seconds:.2f} s ({busy:.2f} s of one CPU)")
