"""Measuring: what a benchmark is handed (Bench, Rank), and one point measured in a process of its own."""

from typing import TYPE_CHECKING

from hpml_plugins.lazy import lazy_names

if TYPE_CHECKING:
    from hpml_plugins.measure.bench import Bench
    from hpml_plugins.measure.libraries import SHARED, import_before_fork, shared, torch_build
    from hpml_plugins.measure.point import Context, measure_point, to_metrics
    from hpml_plugins.measure.ranks.mpi import why_no_mpi
    from hpml_plugins.measure.ranks.rank import Rank
    from hpml_plugins.measure.sampling import SamplingPlan

__all__ = [
    "SHARED",
    "Bench",
    "Context",
    "Rank",
    "SamplingPlan",
    "import_before_fork",
    "measure_point",
    "shared",
    "to_metrics",
    "torch_build",
    "why_no_mpi",
]

__getattr__ = lazy_names(
    __name__,
    {
        "bench": ("Bench",),
        "libraries": ("SHARED", "import_before_fork", "shared", "torch_build"),
        "point": ("Context", "measure_point", "to_metrics"),
        "ranks.mpi": ("why_no_mpi",),
        "ranks.rank": ("Rank",),
        "sampling": ("SamplingPlan",),
    },
)
