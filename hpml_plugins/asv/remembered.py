"""`hpml publish`: what reading, fitting and writing came to last time, taken again where their input is the same.

Each entry is known by a digest of all that it was made from: a result file's bytes, a graph's results and revisions, a
series' numbers, a chart's table, and the code that worked on them. So none can be out of date, whatever was added,
removed or rewritten meanwhile, and everything else of `asv publish` is done anew.
"""

from __future__ import annotations

import functools
import inspect
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from asv import _stats, graph, results, step_detect, util
from asv.commands import publish
from asv.console import log

import hpml_plugins
from hpml_plugins.asv.graph_memory import Memory
from hpml_plugins.asv.known_files import Files
from hpml_plugins.asv.known_graphs import Listed, RememberingGraphs
from hpml_plugins.asv.summaries import Summaries
from hpml_plugins.records.packs import Packs, digest_of_sources
from hpml_plugins.site.known_charts import KnownCharts
from hpml_plugins.site.known_numbers import KnownNumbers

#: Names the folder in which `asv publish` is to remember; set by `hpml publish`.
VARIABLE = "HPML_PUBLISH_REMEMBERED"


def remember(folder: Path) -> None:
    """Let `asv publish` take what it can from this folder, and leave there what this time was used."""
    packs = Packs(folder, _made_by())
    files, memory = Files(packs), Memory(packs)
    numbers, charts = KnownNumbers(packs, files.by_path), KnownCharts(packs)
    summaries = Summaries(packs.load("summaries", dict[bytes, float | None]))
    run = publish.Publish.run.__func__
    folders: list[str] = []

    def iter_results(results_dir: str) -> Iterator[Any]:
        folders.append(results_dir)
        for file in files.all(results_dir):
            yield Listed(memory, file)

    def meanwhile() -> None:
        from hpml_plugins.site import writing  # noqa: F401

        numbers.look_ahead(Path(folders[-1]), memory.benchmarks)

    @functools.wraps(run)
    def running(cls: Any, conf: Any, *arguments: Any, **named: Any) -> Any:
        status = run(cls, conf, *arguments, **named)
        try:
            files.save()
            memory.save(Path(conf.html_dir))
            numbers.save()
            charts.save()
            packs.save("summaries", summaries.used)
            packs.forget_others()
        except (OSError, OverflowError, ValueError, TypeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            log.warning(f"{folder}: {reason}; the next `hpml publish` will take as long as this one")
        return status

    publish.iter_results = iter_results
    publish.GraphSet = functools.partial(RememberingGraphs, memory, numbers, charts, meanwhile)
    graph.Graph.detect_steps = memory.detecting(graph.Graph.detect_steps)
    graph.make_summary_graph = summaries.make
    publish.Publish.run = classmethod(running)


def _made_by() -> bytes:
    """A digest of the code that a site is made by: of another asv, NumPy or state of this package nothing counts."""
    import numpy as np

    package = Path(hpml_plugins.__file__).parent
    sources: list[str | Path] = [inspect.getfile(each) for each in (publish, results, step_detect, graph, util, _stats)]
    extension = getattr(step_detect, "_rangemedian", None)
    sources += [str(extension.__file__)] if extension is not None else []
    sources += sorted(path for folder in ("asv", "site", "figures") for path in package.glob(f"{folder}/*.py"))
    sources += [package / "drawing.py", package / "display.py"]
    return digest_of_sources(sources, platform.python_version(), np.__version__, platform.machine())
