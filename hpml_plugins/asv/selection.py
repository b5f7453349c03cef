"""Which points asv starts a process for: those of the run's profile, and of what the node lacks one metric each."""

from __future__ import annotations

import functools
from typing import Any

from asv.benchmarks import Benchmarks

from hpml_plugins.asv.sharding import keep_part, my_part
from hpml_plugins.host import Host
from hpml_plugins.suite.declaration import Suite

#: asv's benchmark name → the indices of its points, counted as asv counts them.
Selection = dict[str, set[int]]


def selection_of(suite: Suite, host: Host) -> Selection:
    """The points that need a process in this run.

    A point that the node cannot measure is asked for through its first metric alone: that one writes the Record with
    the reason, and the others have nothing to add. Benchmarks that only another node declares are left to asv.
    """
    found: Selection = {}
    declared = {each.benchmark: each for each in suite.benchmarks}
    for _, benchmark in host.benchmarks():
        points = list(enumerate(benchmark.points()))
        chosen = {index for index, params in points if declared[benchmark.name].is_chosen(params)}
        lacking = chosen & set(benchmark.unmet)
        for number, metric in enumerate(benchmark.metrics):
            wanted = chosen if number == 0 else chosen - lacking
            found[f"{benchmark.name}.track_{metric.name}"] = wanted
    return found


def narrow(benchmarks: Benchmarks, selection: Selection) -> None:
    """Keep of asv's selection what is in ours too; a benchmark of which nothing is left is not run at all."""
    for name in list(benchmarks):
        if name not in selection:
            continue
        active = benchmarks.benchmark_selection.get(name)
        if active is None:  # no parameters: one point
            if not selection[name]:
                del benchmarks[name]
            continue
        active[:] = [index for index in active if index in selection[name]]
        if not active:
            del benchmarks[name]


def discover_only(selection: Selection) -> None:
    """Let `Benchmarks.discover` of this process give these points only.

    asv has a selection of points, and fills it from `--bench` alone. A process a metric of each of 3,000 points, of
    which a quick profile measures a twentieth, would take longer than the measuring.
    """
    original = Benchmarks.discover.__func__

    @functools.wraps(original)
    def discover(cls: Any, *args: Any, **kwargs: Any) -> Any:
        found = original(cls, *args, **kwargs)
        narrow(found, selection)
        keep_part(found, *my_part())
        return found

    Benchmarks.discover = classmethod(discover)
