"""The harness measured by itself: its cost, and the resolution, accuracy and repeatability of its
timing."""

from __future__ import annotations

from hpml_plugins import Benchmark, hookimpl
from hpml_plugins.plugins.harness.command import LIST, PLAN, STARTUP
from hpml_plugins.plugins.harness.energy import ENERGY
from hpml_plugins.plugins.harness.overhead import ASV, FIRST_KERNEL, POINT
from hpml_plugins.plugins.harness.publish import PAGE, PUBLISH
from hpml_plugins.plugins.harness.repeatability import SPREAD, WATCHER
from hpml_plugins.plugins.harness.timing import FIDELITY, GPU_TIMER, SLOWDOWN, TIMER


@hookimpl
def hpml_benchmarks() -> list[Benchmark]:
    """The command, overhead, resolution, fidelity, spread, cost of the GPU monitor and of
    publishing, pages, known slow-downs."""
    return [
        LIST,
        STARTUP,
        PLAN,
        POINT,
        ASV,
        FIRST_KERNEL,
        TIMER,
        GPU_TIMER,
        FIDELITY,
        SPREAD,
        WATCHER,
        PUBLISH,
        SLOWDOWN,
        ENERGY,
        PAGE,
    ]
