"""One point measured in a test, as `hpml run` measures it."""

from __future__ import annotations

from hpml_plugins import measure
from hpml_plugins.measure import Context, Progress
from hpml_plugins.model import Benchmark, Params, Record, available_sources, use_sources
from hpml_plugins.workloads.datasets import SOURCES


def measure_point(
    benchmark: Benchmark,
    params: Params,
    context: Context,
    *,
    progress: Progress | None = None,
    timeout: float | None = None,
) -> Record:
    """Measure one point, as `hpml run` does. The built-in data sets are known: a test has no
    registry."""
    with use_sources({**SOURCES, **available_sources()}):
        return measure.measure_point(
            benchmark, params, context, progress=progress, timeout=timeout
        )
