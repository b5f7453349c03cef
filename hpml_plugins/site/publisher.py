"""What `asv publish` runs for us: the page of GPU types, and the whole site made offline.

asv finds publishers among the subclasses of its own; importing this module is enough. It is imported at
every asv command, so all that is heavy is imported when a page is written.
"""

from __future__ import annotations

from typing import Any

from asv.publishing import OutputPublisher


class GpuTypes(OutputPublisher):  # type: ignore[misc]  # asv is not typed
    """Writes `gpus.html`; then replaces the CDN addresses in asv's index, which asv has written by then."""

    name = "gpus"
    button_label = "GPU types"
    description = "Benchmarks by GPU type"
    order = 10  # after asv's own pages

    @classmethod
    def publish(cls, conf: Any, repo: Any, benchmarks: Any, graphs: Any, revisions: dict[str, int]) -> None:
        """Called once by asv. Raises asv's UserError, which asv shows as one line, for errors of ours."""
        from asv.util import UserError

        from hpml_plugins.errors import HpmlError

        try:
            _write(conf, benchmarks, revisions)
        except HpmlError as error:
            raise UserError(str(error)) from error


def _write(conf: Any, benchmarks: Any, revisions: dict[str, int]) -> None:
    import datetime
    from pathlib import Path

    from asv.console import log
    from asv.results import iter_results

    from hpml_plugins.errors import HpmlError
    from hpml_plugins.host import Host, make_host
    from hpml_plugins.host.offers import Offers
    from hpml_plugins.registry import read_registry
    from hpml_plugins.site.matrix import build
    from hpml_plugins.site.offline import make_offline
    from hpml_plugins.site.page import write_page
    from hpml_plugins.site.plugin_pages import write_plugin_pages

    # `asv publish RANGE` asks for a part of the history; asv tells us so through the revisions only.
    results = (result for result in iter_results(conf.results_dir) if result.commit_hash in revisions)
    matrix = build(results, benchmarks, conf.hash_length)
    html_dir = Path(conf.html_dir)
    write_page(matrix, html_dir, conf.project, datetime.datetime.now(datetime.UTC))
    try:
        host: Host | None = make_host(read_registry())
    except HpmlError as error:
        log.warning(f"no pages of plugins: {error}")
        host = None
    offers = host.offers if host else Offers()
    with offers.in_force():
        plugins = host.plugins if host else ()
        problems = write_plugin_pages(plugins, Path(conf.results_dir), html_dir, conf.project, revisions)
    for line in [*offers.problems, *problems]:
        log.warning(line)
    make_offline(html_dir)
